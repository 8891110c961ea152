"""Fuzzy groups: their degree, and the boxes an index can use.

The outer box is necessary (an event outside never matches), the inner box
sufficient (an event inside always does); what lies between is verified.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegate.filters import membership
from tidegate.filters.membership import SLACK
from tidegate.filters.nodes import Group, Item, Literal, Member, Path
from tidegate.filters.sets import END, NONE, START, Cut, Cuts, union


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A group's numbers, out of its literals."""

    minimum: bool
    alpha: float
    betas: tuple[float, ...]
    weights: tuple[float, ...]
    total: float
    """The sum of the weights."""

    def degree(self, degrees: Sequence[float]) -> float:
        """The degree of a whole group from those of its items."""
        if self.minimum:
            return min(degrees)
        return sum(w * mu for w, mu in zip(self.weights, degrees, strict=True)) / self.total

    def reached(self, degrees: Sequence[float], degree: float) -> bool:
        """Whether every item reaches its least membership and the group its degree."""
        return degree >= self.alpha - SLACK and all(
            mu >= beta - SLACK for mu, beta in zip(degrees, self.betas, strict=True)
        )

    def outer(self, n: int) -> float:
        """The least membership of item `n` in any event that matches."""
        if self.minimum:
            return max(self.betas[n], self.alpha) - SLACK
        weight = self.weights[n]
        others = self.total - weight
        return max(self.betas[n] - SLACK, ((self.alpha - SLACK) * self.total - others) / weight)

    def inner(self, n: int) -> float:
        """A membership of item `n` that is enough when every item has as much."""
        return max(self.betas[n], self.alpha)


def number(value: object) -> float:
    """The number of a literal."""
    assert isinstance(value, Literal)
    return float(value.value)


def thresholds(group: Group) -> Thresholds:
    """Read a typed group's numbers."""
    betas = tuple(number(item.least) for item in group.items)
    weights = tuple(number(item.weight) for item in group.items)
    return Thresholds(group.mode == "MIN", number(group.least), betas, weights, sum(weights))


def shape_numbers(member: Member) -> tuple[float, ...]:
    """The numbers of a member's shape."""
    return tuple(number(n) for n in member.shape.numbers)


def outer_box(group: Group) -> Iterator[tuple[Path, Cuts]]:
    """For each member the numbers it must be among for the group to match."""
    limits = thresholds(group)
    for n, item in enumerate(group.items):
        if isinstance(item.predicate, Member):
            yield item.predicate.path, member_cuts(item, limits.outer(n))


def inner_box(group: Group) -> list[tuple[Path, Cuts]] | None:
    """Numbers that are enough for the group to match; None where items are no members."""
    limits = thresholds(group)
    box = []
    for n, item in enumerate(group.items):
        if not isinstance(item.predicate, Member):
            return None
        box.append((item.predicate.path, _shrunk(item, limits.inner(n))))
    return box


def member_cuts(item: Item, gamma: float) -> Cuts:
    """The numbers whose membership is at least `gamma`, widened."""
    member = item.predicate
    assert isinstance(member, Member)
    numbers = shape_numbers(member)
    if item.negated:
        cuts: Cuts = NONE
        for low, high in membership.cut_outside(member.shape.name, numbers, gamma):
            cuts = union(cuts, _span(low, high))
        return cuts
    found = membership.cut(member.shape.name, numbers, gamma)
    return NONE if found is None else _span(*found)


def _span(low: float, high: float) -> Cuts:
    """The set from low to high; an infinite end is the end of all numbers."""
    begin: Cut = START if low == -math.inf else (0, low, 0)
    end: Cut = END if high == math.inf else (0, high, 1)
    return (begin, end) if begin < end else NONE


def _shrunk(item: Item, gamma: float) -> Cuts:
    """The numbers whose membership surely is at least `gamma`: verified at the edges."""
    member = item.predicate
    assert isinstance(member, Member)
    name, numbers = member.shape.name, shape_numbers(member)
    mu = membership.membership(name, numbers)
    if item.negated:
        return NONE  # two rays with edges to verify: not worth it, verify the event instead
    found = membership.cut(name, numbers, gamma)
    if found is None:
        return NONE
    low, high = found
    for _ in range(8):
        if mu(low) >= gamma - SLACK and mu(high) >= gamma - SLACK:
            return _span(low, high)
        # Every shape rises to one plateau and falls: move both edges inward.
        step = 4e-9 * max(1.0, *map(abs, numbers))
        low, high = low + step, high - step
        if low > high:
            return NONE
    return NONE
