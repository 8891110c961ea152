"""Finds, among very many filters, those that cover a filter and those that it covers.

Each filter is a box: the hull of what it allows every attribute. One box can only hold
another whose sides lie inside its own, so a few comparisons of columns leave a handful of
candidates, and `Filter.covers` has the last word on each. `ScanIndex` asks everybody.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from tidegate.filters import Filter
from tidegate.filters.nodes import And, Group, Inside, Node, Not, Or, Path
from tidegate.filters.normalize import Conjunct, canonical_predicate, implied
from tidegate.filters.sets import Cut, ValueSet


class CoverIndex(Protocol):
    """Filters by number, asked by covering."""

    def add(self, number: int, filter_: Filter) -> None:
        """Take a filter under a number that is not in use."""

    def remove(self, number: int) -> None:
        """Forget a filter."""

    def coverer(self, filter_: Filter) -> int | None:
        """The least number whose filter covers this one."""

    def inside(self, filter_: Filter) -> Iterator[int]:
        """The numbers whose filters this one may cover, found as they are asked for: some may be gone by then."""

    def covered(self, filter_: Filter) -> list[int]:
        """The numbers, in order, whose filters this one covers."""

    def __len__(self) -> int: ...


class ScanIndex:
    """The oracle: asks each filter in turn."""

    def __init__(self) -> None:
        self._filters: dict[int, Filter] = {}

    def add(self, number: int, filter_: Filter) -> None:
        """Take a filter."""
        self._filters[number] = filter_

    def remove(self, number: int) -> None:
        """Forget a filter."""
        del self._filters[number]

    def coverer(self, filter_: Filter) -> int | None:
        """The least number whose filter covers this one."""
        return min((n for n, each in self._filters.items() if each.covers(filter_)), default=None)

    def inside(self, filter_: Filter) -> Iterator[int]:  # noqa: ARG002 - anybody may be
        """All numbers."""
        return iter(list(self._filters))

    def covered(self, filter_: Filter) -> list[int]:
        """The numbers whose filters this one covers."""
        return sorted(n for n, each in self._filters.items() if filter_.covers(each))

    def __len__(self) -> int:
        return len(self._filters)


Hull = tuple[float, float, float, float, float, float]
"""The least and greatest number, text and single text of a set. An empty one runs from +inf to -inf."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]
WIDTH = 6
EMPTY = (math.inf, -math.inf)
WHOLE = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class FilterBoxes:
    """A filter as the index sees it."""

    outer: tuple[tuple[frozenset[Hashable], dict[Path, Hull]], ...]
    """Each alternative as one that holds others: what those must constrain or say, and its sides."""
    inner: tuple[frozenset[Hashable], dict[Path, Hull]] | None
    """The first alternative as one that is held: what it constrains and says, and its sides. None: it has none."""


class BoxIndex:
    """The index by boxes."""

    def __init__(self) -> None:
        self._filters: dict[int, Filter] = {}
        self._outer, self._inner = Boxes(), Boxes()
        self._empty: set[int] = set()
        """Filters without an alternative, which match nothing: any other may cover them."""

    def add(self, number: int, filter_: Filter) -> None:
        """Take a filter."""
        self._filters[number] = filter_
        shape = boxes_of(filter_)
        for said, sides in shape.outer:
            self._outer.add(number, said, sides)
        if shape.inner is None:
            self._empty.add(number)
        else:
            self._inner.add(number, *shape.inner)

    def remove(self, number: int) -> None:
        """Forget a filter."""
        del self._filters[number]
        self._empty.discard(number)
        self._outer.remove(number)
        self._inner.remove(number)

    def coverer(self, filter_: Filter) -> int | None:
        """The least number whose filter covers this one."""
        inner = boxes_of(filter_).inner
        candidates = sorted(self._filters) if inner is None else self._outer.around(*inner)
        return next((n for n in candidates if self._filters[n].covers(filter_)), None)

    def inside(self, filter_: Filter) -> Iterator[int]:
        """The numbers whose filters this one may cover, some of them more than once."""
        yield from list(self._empty)
        for said, sides in boxes_of(filter_).outer:
            yield from self._inner.inside(said, sides)

    def covered(self, filter_: Filter) -> list[int]:
        """The numbers whose filters this one covers."""
        return [n for n in sorted(set(self.inside(filter_))) if filter_.covers(self._filters[n])]

    def __len__(self) -> int:
        return len(self._filters)


class Boxes:
    """Boxes in groups that constrain the same attributes, six columns an attribute."""

    def __init__(self) -> None:
        self._groups: dict[frozenset[Hashable], _Rows] = {}
        self._anchored: dict[Hashable, dict[frozenset[Hashable], _Rows]] = {}
        """Each group under one thing that it says: whoever looks for less than it says never meets it."""
        self._saying: dict[Hashable, dict[frozenset[Hashable], _Rows]] = {}
        """Each group under everything that it says."""
        self._places: dict[int, list[_Rows]] = {}

    def add(self, number: int, said: frozenset[Hashable], sides: dict[Path, Hull]) -> None:
        """Take a box; a number may have several."""
        rows = self._groups.get(said)
        if rows is None:
            rows = self._groups[said] = _Rows(tuple(each for each in said if isinstance(each, Path)), said)
            self._anchored.setdefault(_anchor(said), {})[said] = rows
            for each in said:
                self._saying.setdefault(each, {})[said] = rows
        rows.add(number, sides)
        self._places.setdefault(number, []).append(rows)

    def remove(self, number: int) -> None:
        """Forget the boxes of a number."""
        for rows in self._places.pop(number, ()):
            rows.remove(number)
            if not rows and rows.said in self._groups:
                del self._groups[rows.said]
                _take_out(self._anchored, _anchor(rows.said), rows.said)
                for each in rows.said:
                    _take_out(self._saying, each, rows.said)

    def around(self, said: frozenset[Hashable], sides: dict[Path, Hull]) -> list[int]:
        """The numbers, in order, of boxes that may hold this one."""
        found: list[int] = []
        for each in (None, *said):
            for rows in self._anchored.get(each, {}).values():
                if rows.said <= said:
                    found += rows.around(sides).tolist()
        return sorted(set(found))

    def inside(self, said: frozenset[Hashable], sides: dict[Path, Hull]) -> Iterator[int]:
        """The numbers of boxes that this one may hold."""
        groups = min((self._saying.get(each, {}) for each in said), key=len, default=self._groups)
        for rows in list(groups.values()):
            if said <= rows.said:
                yield from map(int, rows.inside(sides))


class _Rows:
    """Boxes over the same attributes; what is removed leaves its row to the last."""

    def __init__(self, paths: tuple[Path, ...], said: frozenset[Hashable]) -> None:
        self.said = said
        self._paths = paths
        self._columns = np.empty((WIDTH * len(paths), 4))
        self._numbers = np.empty(4, np.int64)
        self._count = 0
        self._rows: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, number: int, sides: dict[Path, Hull]) -> None:
        row = self._count
        if row == len(self._numbers):
            self._columns = np.concatenate([self._columns, np.empty_like(self._columns)], axis=1)
            self._numbers = np.concatenate([self._numbers, np.empty_like(self._numbers)])
        self._columns[:, row] = [side for path in self._paths for side in sides[path]]
        self._numbers[row] = number
        self._rows.setdefault(number, []).append(row)
        self._count += 1

    def remove(self, number: int) -> None:
        """Forget one box of a number."""
        row = self._rows[number].pop()
        if not self._rows[number]:
            del self._rows[number]
        self._count -= 1
        last = self._count
        if row != last:
            moved = int(self._numbers[last])
            self._columns[:, row] = self._columns[:, last]
            self._numbers[row] = moved
            self._rows[moved][self._rows[moved].index(last)] = row

    def around(self, sides: dict[Path, Hull]) -> Numbers:
        """The numbers of boxes that may hold this one."""
        tests = [
            [(WIDTH * n + side, hull[side], side % 2 == 0) for side in _ORDER if _is_compared(hull[side], side)]
            for n, path in enumerate(self._paths)
            for hull in (sides[path],)
        ]
        return self._passing(tests)

    def inside(self, sides: dict[Path, Hull]) -> Numbers:
        """The numbers of boxes that this one may hold."""
        tests = [
            [(WIDTH * n + side, hull[side], side % 2 == 1) for side in _ORDER if not _is_open(hull[side], side)]
            for n, path in enumerate(self._paths)
            if (hull := sides.get(path)) is not None
        ]
        return self._passing(tests)

    def _passing(self, tests: list[list[tuple[int, float, bool]]]) -> Numbers:
        """Compare whole columns for the first attribute, and what is left for the others."""
        alive: Any = None
        columns, count = self._columns, self._count
        for each in sorted((test for test in tests if test), key=lambda test: test[0][0] % WIDTH < WIDTH - 2):
            passing: Any = None
            for column, limit, at_most in each:
                values = columns[column, :count] if alive is None else columns[column, alive]
                mask = values <= limit if at_most else values >= limit
                passing = mask if passing is None else passing & mask
            alive = np.flatnonzero(passing) if alive is None else alive[passing]
            if not len(alive):
                break
        return self._numbers[:count].copy() if alive is None else self._numbers[alive]


_ORDER = (4, 5, 2, 3, 0, 1)
"""The single text first: it tells most."""


def _is_compared(value: float, side: int) -> bool:
    """Whether a side of a box that is held has to be compared: an empty set is inside every other."""
    return value != (math.inf if side % 2 == 0 else -math.inf)


def _is_open(value: float, side: int) -> bool:
    """Whether a side of a box that holds others holds them all."""
    return value == (-math.inf if side % 2 == 0 else math.inf)


def _anchor(said: frozenset[Hashable]) -> Hashable:
    """One thing of a set, rather one that few say."""
    terms = [each for each in said if not isinstance(each, Path)]
    return next(iter(terms), None) or min(said, key=repr, default=None)


def _take_out(
    table: dict[Hashable, dict[frozenset[Hashable], _Rows]], key: Hashable, said: frozenset[Hashable]
) -> None:
    del table[key][said]
    if not table[key]:
        del table[key]


# A filter as boxes ---------------------------------------------------------------


@lru_cache(maxsize=4096)
def boxes_of(filter_: Filter) -> FilterBoxes:
    """Make the boxes of a filter."""
    query, conjuncts = filter_.tree, filter_.normal.conjuncts
    themes = frozenset({(query.themes, query.threshold)} if query.themes or query.threshold else ())
    outer = tuple(_outer(each, themes) for each in conjuncts)
    if not conjuncts:
        return FilterBoxes(outer, None)
    return FilterBoxes(outer, _inner(conjuncts[0], themes) if conjuncts[0].rest else outer[0])


def _outer(conjunct: Conjunct, themes: frozenset[Hashable]) -> tuple[frozenset[Hashable], dict[Path, Hull]]:
    """A conjunct as one that holds others: of the rest only groups have sides, what no box can say is said."""
    sides = {path: hull_of(found) for path, found in conjunct.exact.items()}
    said: set[Hashable] = set()
    for term in conjunct.rest:
        if isinstance(term, Group) and not term.negated:
            for path, found in implied(term):
                box = _widened(hull_of(found))
                sides[path] = _meet(sides[path], box) if path in sides else box
        elif not isinstance(term, Or) and not (isinstance(term, Inside) and not term.negated):
            said.add(_canonical(term))
    return frozenset(sides) | said | themes, sides


def _inner(conjunct: Conjunct, themes: frozenset[Hashable]) -> tuple[frozenset[Hashable], dict[Path, Hull]]:
    """A conjunct as one that is held."""
    sides = {path: hull_of(found) for path, found in conjunct.necessary.items()}
    return frozenset(sides) | frozenset(map(_canonical, conjunct.rest)) | themes, sides


def _canonical(term: Node) -> Node:
    """A term as all who say the same have it: `a = b` and `b = a` are one."""
    return term if isinstance(term, And | Or | Not) else canonical_predicate(term)


def hull_of(found: ValueSet) -> Hull:
    """The ends of a set: numbers of all kinds together, texts by their first letters, one text by its hash."""
    numbers = [cuts for kind, cuts in found.cuts.items() if cuts and kind not in ("string", "other")]
    low, high = EMPTY
    if numbers:
        low = min(_end(cuts[0], _number) for cuts in numbers)
        high = max(_end(cuts[-1], _number) for cuts in numbers)
    texts = found.cuts.get("string")
    if not texts:
        return low, high, *EMPTY, *EMPTY
    begin, end = texts[0], texts[-1]
    is_single = len(texts) == 2 and begin[0] == end[0] == 0 and begin[1] == end[1]
    single = (_hash(begin[1]), _hash(begin[1])) if is_single else WHOLE
    return low, high, _end(begin, _letters), _end(end, _letters), *single


def _end(cut: Cut, code: Any) -> float:
    return math.copysign(math.inf, cut[0]) if cut[0] else code(cut[1])


def _number(value: Any) -> float:
    """A number as a float: never in another order than the numbers were."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _letters(text: str) -> float:
    """The first six bytes of a text: never in another order than the texts were."""
    return float(int.from_bytes(text.encode("utf-8", "surrogatepass")[:6].ljust(6, b"\0"), "big"))


def _hash(text: str) -> float:
    return float(hash(text) & 0xFFFFFFFFFFFF)


def _widened(hull: Hull) -> Hull:
    """A little more at the ends: the sides of a fuzzy group are rounded."""
    slack = [0.0 if math.isinf(end) else 1e-6 * max(1.0, abs(end)) for end in hull[:2]]
    return hull[0] - slack[0], hull[1] + slack[1], *hull[2:]


def _meet(one: Hull, other: Hull) -> Hull:
    """The part that is in both, side by side."""
    ends = [(max if side % 2 == 0 else min)(one[side], other[side]) for side in range(WIDTH)]
    return ends[0], ends[1], ends[2], ends[3], ends[4], ends[5]
