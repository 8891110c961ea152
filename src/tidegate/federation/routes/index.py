"""An index of filters by covering: finds the filters that cover a filter, and those that it covers.

`BoxIndex` stores each filter as boxes. A box has one side per attribute: the hull of the values that the filter allows
for it. A filter can only cover another if its box contains the other's box. Comparing columns of sides leaves few
candidates, and `Filter.covers` decides about each. `RouteScanIndex` compares all filters; tests use it as the oracle.
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
    """Filters by number. Not thread-safe."""

    def add(self, number: int, filter_: Filter) -> None:
        """Add a filter under an unused number."""

    def remove(self, number: int) -> None:
        """Remove a filter. Raises `KeyError` if there is none."""

    def find_covering(self, filter_: Filter) -> int | None:
        """Return the lowest number whose filter covers this one, or None."""

    def candidates(self, filter_: Filter) -> Iterator[int]:
        """Yield the numbers of filters that this one may cover, some of them possibly twice.

        The index may change while the iterator is in use; it may then yield numbers that were removed.
        """

    def find_covered(self, filter_: Filter) -> list[int]:
        """Return the numbers of the filters that this one covers, in ascending order."""

    def __len__(self) -> int: ...


class RouteScanIndex:
    """The oracle: compares all filters, one after the other."""

    def __init__(self) -> None:
        self._filters: dict[int, Filter] = {}

    def add(self, number: int, filter_: Filter) -> None:
        """Add a filter."""
        self._filters[number] = filter_

    def remove(self, number: int) -> None:
        """Remove a filter."""
        del self._filters[number]

    def find_covering(self, filter_: Filter) -> int | None:
        """Return the lowest number whose filter covers this one, or None."""
        return min((number for number, other in self._filters.items() if other.covers(filter_)), default=None)

    def candidates(self, filter_: Filter) -> Iterator[int]:  # noqa: ARG002 - every filter is a candidate
        """Yield all numbers."""
        return iter(list(self._filters))

    def find_covered(self, filter_: Filter) -> list[int]:
        """Return the numbers of the filters that this one covers, in ascending order."""
        return sorted(number for number, other in self._filters.items() if filter_.covers(other))

    def __len__(self) -> int:
        return len(self._filters)


Hull = tuple[float, float, float, float, float, float]
"""Lowest and highest number, prefix of a string, and hash of a single string of a value set.

An even index is a lower end, an odd one an upper end. An empty range runs from +inf to -inf.
"""

Numbers = np.ndarray[Any, np.dtype[np.int64]]
HULL_SIZE = 6
EMPTY = (math.inf, -math.inf)
WHOLE = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class FilterBoxes:
    """The boxes of a filter: a set of terms and the sides of each box.

    The terms are the attributes that an alternative constrains, the predicates that no box can express, and the themes.
    """

    outer: tuple[tuple[frozenset[Hashable], dict[Path, Hull]], ...]
    """A box per alternative, to find filters that it contains: their terms must include these."""
    inner: tuple[frozenset[Hashable], dict[Path, Hull]] | None
    """A box of the first alternative, to find filters that contain it. None: the filter has no alternative."""


class BoxIndex:
    """The index that compares boxes before it compares filters."""

    def __init__(self) -> None:
        self._filters: dict[int, Filter] = {}
        self._outer, self._inner = Boxes(), Boxes()
        self._empty: set[int] = set()
        """Filters without an alternative. They match no event, so every filter may cover them."""

    def add(self, number: int, filter_: Filter) -> None:
        """Add a filter."""
        self._filters[number] = filter_
        boxes = boxes_of(filter_)
        for terms, sides in boxes.outer:
            self._outer.add(number, terms, sides)
        if boxes.inner is None:
            self._empty.add(number)
        else:
            self._inner.add(number, *boxes.inner)

    def remove(self, number: int) -> None:
        """Remove a filter."""
        del self._filters[number]
        self._empty.discard(number)
        self._outer.remove(number)
        self._inner.remove(number)

    def find_covering(self, filter_: Filter) -> int | None:
        """Return the lowest number whose filter covers this one, or None."""
        inner = boxes_of(filter_).inner
        numbers = sorted(self._filters) if inner is None else self._outer.containing(*inner)
        return next((number for number in numbers if self._filters[number].covers(filter_)), None)

    def candidates(self, filter_: Filter) -> Iterator[int]:
        """Yield the numbers of filters that this one may cover, some of them possibly twice."""
        yield from list(self._empty)
        for terms, sides in boxes_of(filter_).outer:
            yield from self._inner.contained(terms, sides)

    def find_covered(self, filter_: Filter) -> list[int]:
        """Return the numbers of the filters that this one covers, in ascending order."""
        numbers = sorted(set(self.candidates(filter_)))
        return [number for number in numbers if filter_.covers(self._filters[number])]

    def __len__(self) -> int:
        return len(self._filters)


class Boxes:
    """Boxes by number, in groups with the same terms."""

    def __init__(self) -> None:
        self._groups: dict[frozenset[Hashable], _Rows] = {}
        self._anchored: dict[Hashable, dict[frozenset[Hashable], _Rows]] = {}
        """Each group under one of its terms. A search for groups that have a subset of some terms looks here."""
        self._by_term: dict[Hashable, dict[frozenset[Hashable], _Rows]] = {}
        """Each group under all of its terms. A search for groups that have a superset of some terms looks here."""
        self._by_number: dict[int, list[_Rows]] = {}

    def add(self, number: int, terms: frozenset[Hashable], sides: dict[Path, Hull]) -> None:
        """Add a box. A number may have several."""
        rows = self._groups.get(terms)
        if rows is None:
            rows = self._groups[terms] = _Rows(tuple(term for term in terms if isinstance(term, Path)), terms)
            self._anchored.setdefault(_anchor(terms), {})[terms] = rows
            for term in terms:
                self._by_term.setdefault(term, {})[terms] = rows
        rows.add(number, sides)
        self._by_number.setdefault(number, []).append(rows)

    def remove(self, number: int) -> None:
        """Remove all boxes of a number. Does nothing if it has none."""
        for rows in self._by_number.pop(number, ()):
            rows.remove(number)
            if not rows and rows.terms in self._groups:
                del self._groups[rows.terms]
                _remove_group(self._anchored, _anchor(rows.terms), rows.terms)
                for term in rows.terms:
                    _remove_group(self._by_term, term, rows.terms)

    def containing(self, terms: frozenset[Hashable], sides: dict[Path, Hull]) -> list[int]:
        """Return the numbers of boxes that may contain this one, in ascending order."""
        numbers: list[int] = []
        for term in (None, *terms):
            for rows in self._anchored.get(term, {}).values():
                if rows.terms <= terms:
                    numbers += rows.containing(sides).tolist()
        return sorted(set(numbers))

    def contained(self, terms: frozenset[Hashable], sides: dict[Path, Hull]) -> Iterator[int]:
        """Yield the numbers of boxes that this one may contain."""
        groups = min((self._by_term.get(term, {}) for term in terms), key=len, default=self._groups)
        for rows in list(groups.values()):
            if terms <= rows.terms:
                yield from map(int, rows.contained(sides))


class _Rows:
    """Boxes with the same terms: one row per box, `HULL_SIZE` columns per attribute.

    The last row moves into the place of a removed one.
    """

    def __init__(self, paths: tuple[Path, ...], terms: frozenset[Hashable]) -> None:
        self.terms = terms
        self._paths = paths
        self._columns = np.empty((HULL_SIZE * len(paths), 4))
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
        """Remove one box of a number."""
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

    def containing(self, sides: dict[Path, Hull]) -> Numbers:
        """Return the numbers of boxes that may contain this one."""
        tests = [
            [(HULL_SIZE * n + side, hull[side], side % 2 == 0) for side in _ORDER if _is_compared(hull[side], side)]
            for n, path in enumerate(self._paths)
            for hull in (sides[path],)
        ]
        return self._passing(tests)

    def contained(self, sides: dict[Path, Hull]) -> Numbers:
        """Return the numbers of boxes that this one may contain."""
        tests = [
            [(HULL_SIZE * n + side, hull[side], side % 2 == 1) for side in _ORDER if not _is_open(hull[side], side)]
            for n, path in enumerate(self._paths)
            if (hull := sides.get(path)) is not None
        ]
        return self._passing(tests)

    def _passing(self, tests: list[list[tuple[int, float, bool]]]) -> Numbers:
        """Return the numbers of the rows that pass all tests, which are grouped by attribute.

        A test is a column, a limit, and whether the value must be at most (True) or at least (False) the limit. The
        tests of the first attribute compare whole columns, those of the others only the rows that are left.
        """
        alive: Any = None
        columns, count = self._columns, self._count
        by_attribute = (group for group in tests if group)
        for group in sorted(by_attribute, key=lambda group: group[0][0] % HULL_SIZE < HULL_SIZE - 2):
            passing: Any = None
            for column, limit, at_most in group:
                values = columns[column, :count] if alive is None else columns[column, alive]
                mask = values <= limit if at_most else values >= limit
                passing = mask if passing is None else passing & mask
            alive = np.flatnonzero(passing) if alive is None else alive[passing]
            if not len(alive):
                break
        return self._numbers[:count].copy() if alive is None else self._numbers[alive]


_ORDER = (4, 5, 2, 3, 0, 1)
"""The order in which sides are compared: the hash of a single string first, as it excludes most boxes."""


def _is_compared(value: float, side: int) -> bool:
    """True if a side of a contained box has to be compared: an empty range is inside every other."""
    return value != (math.inf if side % 2 == 0 else -math.inf)


def _is_open(value: float, side: int) -> bool:
    """True if a side of a containing box is unlimited."""
    return value == (-math.inf if side % 2 == 0 else math.inf)


def _anchor(terms: frozenset[Hashable]) -> Hashable:
    """Return one of the terms, preferably a predicate: fewer groups share it than an attribute."""
    predicates = [term for term in terms if not isinstance(term, Path)]
    return next(iter(predicates), None) or min(terms, key=repr, default=None)


def _remove_group(
    table: dict[Hashable, dict[frozenset[Hashable], _Rows]], key: Hashable, terms: frozenset[Hashable]
) -> None:
    del table[key][terms]
    if not table[key]:
        del table[key]


# A filter as boxes ---------------------------------------------------------------


@lru_cache(maxsize=4096)
def boxes_of(filter_: Filter) -> FilterBoxes:
    """Return the boxes of a filter."""
    query, conjuncts = filter_.tree, filter_.normal.conjuncts
    themes = frozenset({(query.themes, query.threshold)} if query.themes or query.threshold else ())
    outer = tuple(_outer(conjunct, themes) for conjunct in conjuncts)
    if not conjuncts:
        return FilterBoxes(outer, None)
    return FilterBoxes(outer, _inner(conjuncts[0], themes) if conjuncts[0].rest else outer[0])


def _outer(conjunct: Conjunct, themes: frozenset[Hashable]) -> tuple[frozenset[Hashable], dict[Path, Hull]]:
    """Return the terms and sides of a conjunct as a containing box.

    Fuzzy groups become sides. An OR and a positive area constrain nothing here. Other predicates become terms.
    """
    sides = {path: hull_of(values) for path, values in conjunct.exact.items()}
    predicates: set[Hashable] = set()
    for term in conjunct.rest:
        if isinstance(term, Group) and not term.negated:
            for path, values in implied(term):
                hull = _widened(hull_of(values))
                sides[path] = _intersection(sides[path], hull) if path in sides else hull
        elif not isinstance(term, Or) and not (isinstance(term, Inside) and not term.negated):
            predicates.add(_canonical(term))
    return frozenset(sides) | predicates | themes, sides


def _inner(conjunct: Conjunct, themes: frozenset[Hashable]) -> tuple[frozenset[Hashable], dict[Path, Hull]]:
    """Return the terms and sides of a conjunct as a contained box."""
    sides = {path: hull_of(values) for path, values in conjunct.necessary.items()}
    return frozenset(sides) | frozenset(map(_canonical, conjunct.rest)) | themes, sides


def _canonical(term: Node) -> Node:
    """Return the form of a term that all equal ones share: `a = b` and `b = a` have the same."""
    return term if isinstance(term, And | Or | Not) else canonical_predicate(term)


def hull_of(values: ValueSet) -> Hull:
    """Return the hull of a value set: all kinds of numbers together, prefixes of strings, the hash of a single one."""
    numbers = [cuts for kind, cuts in values.cuts.items() if cuts and kind not in ("string", "other")]
    low, high = EMPTY
    if numbers:
        low = min(_end(cuts[0], _number) for cuts in numbers)
        high = max(_end(cuts[-1], _number) for cuts in numbers)
    strings = values.cuts.get("string")
    if not strings:
        return low, high, *EMPTY, *EMPTY
    begin, end = strings[0], strings[-1]
    is_single = len(strings) == 2 and begin[0] == end[0] == 0 and begin[1] == end[1]
    single = (_hash(begin[1]), _hash(begin[1])) if is_single else WHOLE
    return low, high, _end(begin, _prefix), _end(end, _prefix), *single


def _end(cut: Cut, code: Any) -> float:
    return math.copysign(math.inf, cut[0]) if cut[0] else code(cut[1])


def _number(value: Any) -> float:
    """Return a number as a float. Keeps the order of numbers, though different ones may become equal."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _prefix(text: str) -> float:
    """Return the first six bytes of a string as a number. Keeps the order, though different ones may become equal."""
    return float(int.from_bytes(text.encode("utf-8", "surrogatepass")[:6].ljust(6, b"\0"), "big"))


def _hash(text: str) -> float:
    return float(hash(text) & 0xFFFFFFFFFFFF)


def _widened(hull: Hull) -> Hull:
    """Return a slightly wider hull, because the limits of a fuzzy group are rounded."""
    slack = [0.0 if math.isinf(end) else 1e-6 * max(1.0, abs(end)) for end in hull[:2]]
    return hull[0] - slack[0], hull[1] + slack[1], *hull[2:]


def _intersection(one: Hull, other: Hull) -> Hull:
    ends = [(max if side % 2 == 0 else min)(one[side], other[side]) for side in range(HULL_SIZE)]
    return ends[0], ends[1], ends[2], ends[3], ends[4], ends[5]
