"""Sets of values of one attribute: what a conjunction allows.

A set over an ordered domain is a sorted list of *cuts*: the positions between values where the set begins and ends,
alternately. A cut is `(rank, value, side)`: side 0 is just before the value, side 1 just after it; ranks -1 and 1 are
the ends of the domain. So {3} is the cuts before and after 3, `x > 3` is the cut after 3 and the end, and union,
intersection and complement need no special case for open and closed intervals.

    x < 3 OR x > 5        -inf ====|3        5|==== +inf
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tidegate.model.types import INTEGER_RANGES, Enum, Scalar, Type

Cut = tuple[int, Any, int]
Cuts = tuple[Cut, ...]

START: Cut = (-1, 0, 0)
END: Cut = (1, 0, 0)
ALL: Cuts = (START, END)
NONE: Cuts = ()


@dataclass(frozen=True, slots=True)
class Domain:
    """An ordered kind of value. A discrete domain has a next value, and may have ends."""

    kind: str
    discrete: bool = False
    low: int | None = None
    high: int | None = None

    def holds(self, value: Any) -> bool:
        """Return True if a value lies between the ends."""
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def settle(self, cuts: Cuts) -> Cuts:
        """Return the one form of a set: for a discrete domain closed intervals inside the ends."""
        if not self.discrete:
            return cuts
        settled: list[Cut] = []
        for begin, end in zip(cuts[::2], cuts[1::2], strict=True):
            if begin[1] == math.inf or end[1] == -math.inf:  # beyond every whole number
                continue
            first, last = self._first(begin), self._last(end)
            if first is None or last is None or first <= last:
                low: Cut = START if first is None else (0, first, 0)
                high: Cut = END if last is None else (0, last, 1)
                if settled and _touches(settled[-1], low):
                    settled[-1] = high
                else:
                    settled += [low, high]
        return tuple(settled)

    def _first(self, cut: Cut) -> int | None:
        rank, value, side = cut
        if rank < 0 or value == -math.inf:
            return self.low
        first: int = math.floor(value) + 1 if side else math.ceil(value)
        return first if self.low is None else max(first, self.low)

    def _last(self, cut: Cut) -> int | None:
        rank, value, side = cut
        if rank > 0 or value == math.inf:
            return self.high
        last: int = math.floor(value) if side else math.ceil(value) - 1
        return last if self.high is None else min(last, self.high)


def _touches(end: Cut, begin: Cut) -> bool:
    """Return True if no value lies between two intervals of a discrete set."""
    return end[0] == begin[0] == 0 and bool(end[1] + 1 >= begin[1])


DOMAINS = {
    "bool": Domain("bool", True, 0, 1),
    "int": Domain("int", True),
    "float": Domain("float"),
    "string": Domain("string"),
    "time": Domain("time", True),
    "other": Domain("other"),
}
"""Kinds of value of a field without a schema; `other` compares with nothing."""


@lru_cache(maxsize=1024)
def domain_of(kind: Type) -> Domain:
    """Return the domain of a typed field."""
    match kind:
        case Enum(labels):
            return Domain("enum", True, 0, len(labels) - 1)
        case Scalar(name) if name in INTEGER_RANGES:
            return Domain("int", True, *INTEGER_RANGES[name])
        case Scalar() if kind.kind in DOMAINS:
            return DOMAINS[kind.kind]
        case Scalar():  # a char is ordered as text
            return DOMAINS["string"]
    return DOMAINS["other"]


def between(low: Any, high: Any) -> Cuts:
    """Return the set from `low` to `high`, both included; empty if `low` is above `high`."""
    begin, end = (0, low, 0), (0, high, 1)
    return (begin, end) if begin < end else NONE


def related(relation: str, value: Any) -> Cuts:
    """Return the set of values that have a relation to a value."""
    before, after = (0, value, 0), (0, value, 1)
    match relation:
        case "=":
            return before, after
        case "<>":
            return START, before, after, END
        case "<":
            return START, before
        case "<=":
            return START, after
        case ">":
            return after, END
    return before, END


def points(values: Iterable[Any]) -> Cuts:
    """Return the finite set of some values."""
    cuts: list[Cut] = []
    for value in sorted(set(values)):
        cuts += [(0, value, 0), (0, value, 1)]
    return tuple(cuts)


def prefixed(prefix: str) -> Cuts:
    """Return the texts with a prefix: an interval, because texts are ordered by code points."""
    if not prefix:
        return ALL
    letters = list(prefix)
    while letters:
        code = ord(letters.pop())
        if code < 0x10FFFF:
            # Surrogates are not characters: after U+D7FF comes U+E000.
            following = 0xE000 if code == 0xD7FF else code + 1
            return (0, prefix, 0), (0, "".join(letters) + chr(following), 0)
    return (0, prefix, 0), END


def invert(cuts: Cuts) -> Cuts:
    """Return all other values."""
    begin = cuts[1:] if cuts and cuts[0] == START else (START, *cuts)
    return begin[:-1] if begin and begin[-1] == END else (*begin, END)


def intersect(one: Cuts, other: Cuts) -> Cuts:
    """Return the values in both sets."""
    if one is ALL or one == ALL:
        return other
    if other is ALL or other == ALL:
        return one
    out: list[Cut] = []
    i = j = 0
    while i < len(one) and j < len(other):
        begin, end = max(one[i], other[j]), min(one[i + 1], other[j + 1])
        if begin < end:
            out += [begin, end]
        if one[i + 1] < other[j + 1]:
            i += 2
        else:
            j += 2
    return tuple(out)


def union(one: Cuts, other: Cuts) -> Cuts:
    """Return the values in at least one of the sets."""
    return invert(intersect(invert(one), invert(other)))


def holds(cuts: Cuts, value: Any) -> bool:
    """Return True if a value is in the set."""
    before, after = (0, value, 0), (0, value, 1)
    return any(a <= before and after <= b for a, b in zip(cuts[::2], cuts[1::2], strict=True))


def is_subset(one: Cuts, other: Cuts) -> bool:
    """Return True if every value of one set is in the other."""
    return intersect(one, other) == one


def single_values(cuts: Cuts, limit: int = 64) -> list[Any] | None:
    """Return the values of a finite set of at most `limit` values; None for any other set."""
    out: list[Any] = []
    for begin, end in zip(cuts[::2], cuts[1::2], strict=True):
        if begin[0] or end[0]:
            return None
        if begin[1] == end[1]:
            out.append(begin[1])
        elif isinstance(begin[1], int) and isinstance(end[1], int) and begin[2] == 0 and end[2] == 1:
            if end[1] - begin[1] >= limit:
                return None
            out += range(begin[1], end[1] + 1)
        else:
            return None
        if len(out) > limit:
            return None
    return out


@dataclass(frozen=True, slots=True)
class ValueSet:
    """The values that one attribute may have: a set per kind of value, perhaps null, and tests.

    `tests` are predicates that no interval expresses (general patterns, edit distance). A value is in the set if it
    lies inside the cuts and passes all tests.
    """

    cuts: Mapping[str, Cuts]
    null: bool = False
    tests: frozenset[Any] = field(default=frozenset())

    def is_empty(self) -> bool:
        """Return True if the cuts allow no value."""
        return not self.null and not any(self.cuts.values())

    def intersect(self, other: ValueSet) -> ValueSet:
        """Return the values in both sets."""
        cuts = {kind: intersect(mine, other.cuts[kind]) for kind, mine in self.cuts.items() if kind in other.cuts}
        return ValueSet(cuts, self.null and other.null, self.tests | other.tests)

    def union(self, other: ValueSet) -> ValueSet | None:
        """Return the values in at least one set; None if the tests differ, so that no `ValueSet` expresses it."""
        if self.tests != other.tests:
            return None
        kinds = self.cuts.keys() | other.cuts.keys()
        cuts = {kind: union(self.cuts.get(kind, NONE), other.cuts.get(kind, NONE)) for kind in kinds}
        return ValueSet(cuts, self.null or other.null, self.tests)

    def within(self, other: ValueSet) -> bool:
        """Return True if the cuts lie inside those of `other`. The caller compares the tests."""
        if self.null and not other.null:
            return False
        return all(is_subset(mine, other.cuts.get(kind, NONE)) for kind, mine in self.cuts.items())

    def __hash__(self) -> int:
        return hash((frozenset(self.cuts.items()), self.null, self.tests))


def describe(cuts: Cuts, show: Any = repr) -> str:
    """Return a set in readable form: `(-inf, 3) u [5, 5]`."""
    if cuts == ALL:
        return "any"
    parts = []
    for (rank, low, low_side), (end_rank, high, high_side) in zip(cuts[::2], cuts[1::2], strict=True):
        if rank == end_rank == 0 and low == high:
            parts.append(f"{{{show(low)}}}")
            continue
        left = "(-inf" if rank else ("(" if low_side else "[") + show(low)
        right = "+inf)" if end_rank else show(high) + ("]" if high_side else ")")
        parts.append(f"{left}, {right}")
    return " u ".join(parts) if parts else "none"
