"""Fuzzy groups: their degree, and the boxes that an index can use.

The outer box is necessary: an event outside never matches. The inner box is sufficient: an event inside always matches.
Events between the two must be evaluated.
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
    """The numbers of a group's literals."""

    minimum: bool
    alpha: float
    betas: tuple[float, ...]
    weights: tuple[float, ...]
    total: float
    """The sum of the weights."""

    def degree(self, degrees: Sequence[float]) -> float:
        """Return the degree of the group from the degrees of its items."""
        if self.minimum:
            return min(degrees)
        return sum(w * mu for w, mu in zip(self.weights, degrees, strict=True)) / self.total

    def reached(self, degrees: Sequence[float], degree: float) -> bool:
        """Return True if each item reaches its minimum membership and the group its minimum degree."""
        return degree >= self.alpha - SLACK and all(
            mu >= beta - SLACK for mu, beta in zip(degrees, self.betas, strict=True)
        )

    def outer(self, n: int) -> float:
        """Return the lowest membership that item `n` has in any matching event."""
        if self.minimum:
            return max(self.betas[n], self.alpha) - SLACK
        weight = self.weights[n]
        others = self.total - weight
        return max(self.betas[n] - SLACK, ((self.alpha - SLACK) * self.total - others) / weight)

    def inner(self, n: int) -> float:
        """Return a membership of item `n` that suffices if every item reaches its own."""
        return max(self.betas[n], self.alpha)


def number(value: object) -> float:
    """Return the number of a literal."""
    assert isinstance(value, Literal)
    return float(value.value)


def thresholds(group: Group) -> Thresholds:
    """Return the numbers of a typed group."""
    betas = tuple(number(item.least) for item in group.items)
    weights = tuple(number(item.weight) for item in group.items)
    return Thresholds(group.mode == "MIN", number(group.least), betas, weights, sum(weights))


def shape_numbers(member: Member) -> tuple[float, ...]:
    """Return the numbers of a member's shape."""
    return tuple(number(n) for n in member.shape.numbers)


def outer_box(group: Group) -> Iterator[tuple[Path, Cuts]]:
    """Yield for each member the numbers that it must be among for the group to match."""
    limits = thresholds(group)
    for n, item in enumerate(group.items):
        if isinstance(item.predicate, Member):
            yield item.predicate.path, member_cuts(item, limits.outer(n))


def inner_box(group: Group) -> list[tuple[Path, Cuts]] | None:
    """Return numbers that suffice for the group to match; None if an item is not a member."""
    limits = thresholds(group)
    box = []
    for n, item in enumerate(group.items):
        if not isinstance(item.predicate, Member):
            return None
        box.append((item.predicate.path, _shrunk(item, limits.inner(n))))
    return box


def member_cuts(item: Item, gamma: float) -> Cuts:
    """Return the numbers whose membership is at least `gamma`, widened by the rounding margin."""
    member = item.predicate
    assert isinstance(member, Member)
    numbers = shape_numbers(member)
    if item.negated:
        cuts: Cuts = NONE
        for low, high in membership.cut_outside(member.shape.name, numbers, gamma):
            cuts = union(cuts, _span(low, high))
        return cuts
    interval = membership.cut(member.shape.name, numbers, gamma)
    return NONE if interval is None else _span(*interval)


def _span(low: float, high: float) -> Cuts:
    """Return the set from low to high; an infinite end is unbounded."""
    begin: Cut = START if low == -math.inf else (0, low, 0)
    end: Cut = END if high == math.inf else (0, high, 1)
    return (begin, end) if begin < end else NONE


def _shrunk(item: Item, gamma: float) -> Cuts:
    """Return numbers whose membership is certainly at least `gamma`; the edges are verified."""
    member = item.predicate
    assert isinstance(member, Member)
    name, numbers = member.shape.name, shape_numbers(member)
    mu = membership.membership(name, numbers)
    if item.negated:
        return NONE  # two rays with edges to verify: evaluating the event is cheaper
    interval = membership.cut(name, numbers, gamma)
    if interval is None:
        return NONE
    low, high = interval
    for _ in range(8):
        if mu(low) >= gamma - SLACK and mu(high) >= gamma - SLACK:
            return _span(low, high)
        # Every shape rises to one plateau and falls, so move both edges inward.
        step = 4e-9 * max(1.0, *map(abs, numbers))
        low, high = low + step, high - step
        if low > high:
            return NONE
    return NONE
