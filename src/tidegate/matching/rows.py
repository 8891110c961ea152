"""A filter as rows of an index: each alternative a row, each row spans on axes.

An attribute is an *axis*. What a row allows there is one or more *spans*: from
the first value that is in to the first value that is out, of one kind of value.
Where a span has no end it is None. A row with no span on an axis takes whatever
is there. So `speed > 60 AND lane IN (1, 2)` is one row:

    axis     kind     low           high
    speed    float    60.0000…01    None
    lane     int      1             3

What spans can't say is left as checks, for the events that pass all spans.
"""

from __future__ import annotations

import marshal
from collections.abc import Hashable, Iterator
from hashlib import blake2b
from itertools import chain
from math import ceil, floor, inf, nextafter
from operator import itemgetter
from threading import Lock
from typing import Any, NamedTuple

from tidegate.filters import Filter
from tidegate.filters.nodes import (
    And,
    Between,
    Compare,
    Group,
    Inside,
    Literal,
    Member,
    Node,
    Path,
    Pattern,
    StrLike,
    paths,
    predicates,
)
from tidegate.filters.normalize import Conjunct, to_dnf
from tidegate.filters.render import operand, predicate
from tidegate.filters.sets import Cut, ValueSet, domain_of
from tidegate.filters.values import LARGEST_EXACT, nearest_float

NULL, UNFIT, ODD, BOOL, INT, FLOAT, STRING, TIME, ENUM = range(9)
"""The kinds of value on an axis: none at all, one that compares with nothing, one that its type does not
hold, and those that are ordered."""

Point = tuple[int, Any]
"""A value on an axis: its kind, and the value as it compares."""

KINDS = {"null": NULL, "other": UNFIT, "bool": BOOL, "int": INT, "float": FLOAT, "string": STRING, "time": TIME}
KINDS |= {"enum": ENUM}
KIND_NAMES = {NULL: "null", UNFIT: "no value that compares", ODD: "a value that its type does not hold"}
KIND_NAMES |= {n: name for name, n in KINDS.items() if n > ODD}

Check = Pattern | StrLike | Group | Inside


Span = tuple[int, int, Any, Any]
"""Axis, kind, the first value that is in and the first that is out."""


class Row(NamedTuple):
    """One alternative: its spans, those of one axis side by side."""

    flat: tuple[Any, ...]
    """The spans end to end: a tuple of plain values is no work for the garbage collector."""
    checks: tuple[Check, ...] | None = ()
    """What is left to verify; None: ask the whole filter."""

    @property
    def spans(self) -> Iterator[Span]:
        """The spans one by one."""
        each = iter(self.flat)
        return zip(each, each, each, each, strict=True)


class Compiled(NamedTuple):
    """A filter as rows. Filters with equal keys match the same events."""

    rows: tuple[Row, ...]
    key: Hashable
    graded: bool
    """Whether a match may fit by less than 1."""

    @property
    def is_simple(self) -> bool:
        """Whether it is one row that spans say in full."""
        return len(self.rows) == 1 and self.rows[0].checks == ()


def explained(row: Row, axes: Axes) -> dict[str, Any]:
    """A row for a reader: what it allows each attribute to be, and what is left to ask."""
    allows: dict[str, list[str]] = {}
    for axis, kind, low, high in row.spans:
        allows.setdefault(operand(axes.paths[axis]), []).append(span_text(kind, low, high))
    return {"allows": allows, "asks": asked(row.checks)}


def span_text(kind: int, low: Any, high: Any) -> str:
    """A span for a reader."""
    begin = "" if low is None else f" from {low!r}"
    end = "" if high is None else f" below {high!r}"
    return KIND_NAMES[kind] + begin + end


def asked(checks: tuple[Check, ...] | None) -> list[str]:
    """What is left to ask of a row, for a reader."""
    return ["the whole filter"] if checks is None else [predicate(check) for check in checks]


Fact = tuple[int, int, str, Any, Any]
"""One predicate: axis, kind, relation, and the value or, of BETWEEN, both."""


def plain(facts: list[Fact]) -> Compiled | None:
    """Compile a conjunction of ranges and equalities, or None where it is left to the long way.

    The key is of the facts, not of the row: `lane > 0` and `lane >= 0.5` are the
    same row, but not for a lane that is no whole number.
    """
    spans: dict[int, Span] = {}
    # The order of the questions is for speed: this is most of the time that adding a filter takes.
    for axis, kind, relation, first, last in facts:
        if relation != "BETWEEN":
            first, last = value_range(kind, relation, first)
        elif kind == FLOAT and first.__class__ is last.__class__ is float and -_FAR < first <= last < _FAR:
            last = nextafter(last, inf)
        elif kind in _WHOLE and first.__class__ is last.__class__ is int:
            last += 1
        else:
            first, last = _first(kind, first, False), _first(kind, last, True)
        if first is UNSURE or last is UNSURE:
            return None
        if axis in spans:
            first, last = _narrowed(spans[axis], first, last)
        if first is not None and last is not None and first >= last:
            return None
        spans[axis] = (axis, kind, first, last)
    if not spans:
        return None
    facts.sort()
    # A digest: a million keys of all their numbers would weigh more than the index.
    key = blake2b(marshal.dumps(facts, 2), digest_size=16).digest()
    return Compiled((Row(_flat(list(spans.values()))),), key, False)


class Axes:
    """The attributes that filters of one matcher name, numbered as they come."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str | int, ...], tuple[int, int]] = {}
        self.paths: list[Path] = []
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    def compile(self, filter_: Filter) -> Compiled:
        """Turn a filter into rows; the plain ones, ranges and equalities, by a short way."""
        facts = self.facts(filter_.pushed)
        compiled = None if facts is None else plain(facts)
        if compiled is not None:
            return compiled
        conjuncts = filter_.normal.conjuncts
        rows = [found for conjunct in conjuncts if (found := self._row(conjunct)) is not None]
        rows = self._with_odd_values(rows, filter_.pushed)
        graded = any(isinstance(node, Group) for node in predicates(filter_.pushed))
        return Compiled(tuple(rows), (str(filter_), filter_.like_star), graded)

    def number(self, path: Path) -> tuple[int, int]:
        """Give an attribute's axis and, where it has a type, the kind of its values."""
        found = self._numbers.get(path.parts)
        if found is None:
            with self._lock:
                kind = -1 if path.type is None else KINDS[domain_of(path.type).kind]
                found = self._numbers.get(path.parts)
                if found is None:
                    found = len(self.paths), kind
                    self.paths.append(path)  # first: whoever finds the number asks for the path
                    self._numbers[path.parts] = found
        return found

    # The short way -------------------------------------------------------------

    def facts(self, root: Node) -> list[Fact] | None:
        """What a conjunction of ranges and equalities says of typed attributes; None for all else."""
        numbers = self._numbers
        found: list[Fact] = []
        terms: tuple[Any, ...] = root.terms if isinstance(root, And) else (root,)
        for term in terms:
            if term.__class__ is Between and not term.negated:
                axis, kind = numbers.get(term.path.parts) or self.number(term.path)
                found.append((axis, kind, "BETWEEN", term.low.value, term.high.value))  # type: ignore[union-attr]
            elif term.__class__ is Compare and term.other.__class__ is Literal:
                axis, kind = numbers.get(term.path.parts) or self.number(term.path)
                found.append((axis, kind, term.relation, term.other.value, None))
            else:
                return None
        return found

    # The long way --------------------------------------------------------------

    def _row(self, conjunct: Conjunct) -> Row | None:
        """A row of what a conjunct allows; None where it allows nothing."""
        spans: list[Span] = []
        for path, allowed in conjunct.necessary.items():
            axis, _ = self.number(path)
            found = [(axis, *span) for span in _spans(allowed)]
            if not found:
                return None
            spans += sorted(found, key=lambda span: span[1])  # by kind: each kind's own are in order
        return Row(_flat(spans), _checks(conjunct))

    def _with_odd_values(self, rows: list[Row], root: Node) -> list[Row]:
        """The rows, so that an event with a value that its type does not hold is put to the filter.

        What is concluded from a type says nothing of such a value: `lane >= 0` is no
        tautology for it, `lane > 300` no contradiction. So an attribute that no row
        names any more is named by all of them, and alternatives that were dropped
        come back for odd values alone.
        """
        named = {path.parts: path for node in predicates(root) for path in paths(node) if path.type is not None}
        free = [self.number(path) for path in named.values()]
        used = {axis for row in rows for axis, *_ in row.spans}
        unused = [(axis, kind) for axis, kind in free if axis not in used]
        whole = tuple(value for axis, own in unused for kind in (NULL, own) for value in (axis, kind, None, None))
        rows = [Row(row.flat + whole, row.checks) for row in rows] if whole else rows
        if len(rows) < len(to_dnf(root)):
            rows = rows + [Row((axis, ODD, None, None), None) for axis, _ in free]
        return rows


UNSURE = object()
"""A threshold that the short way leaves to the long one."""

_FAR = 1e300
_WHOLE = frozenset({INT, TIME})


def _flat(spans: list[Span]) -> tuple[Any, ...]:
    """Spans end to end, ordered by axis."""
    spans.sort(key=itemgetter(0))
    return tuple(chain.from_iterable(spans))


def _narrowed(before: Span, first: Any, last: Any) -> tuple[Any, Any]:
    """Two spans on one axis as one."""
    _, _, low, high = before
    if low is not None and (first is None or low > first):
        first = low
    if high is not None and (last is None or high < last):
        last = high
    return first, last


def value_range(kind: int, relation: str, value: Any) -> tuple[Any, Any]:
    """The span of values of a kind that stand in a relation to one."""
    if relation == "<>":
        return UNSURE, UNSURE
    if kind == STRING:
        return (value, value + "\0") if relation == "=" else (UNSURE, UNSURE)
    first = None if relation[0] == "<" else _first(kind, value, relation == ">")
    last = None if relation[0] == ">" else _first(kind, value, relation != "<")
    return first, last


def _first(kind: int, value: Any, beyond: bool) -> Any:
    """The first value at a number, or beyond it, of a kind of number."""
    if kind == FLOAT:
        if value.__class__ is int and -LARGEST_EXACT <= value <= LARGEST_EXACT:
            value = float(value)
        if value.__class__ is not float or value - value != 0:  # huge, infinite
            return UNSURE
        return nextafter(value, inf) if beyond else value
    if kind in _WHOLE:
        if value.__class__ is int:
            return value + beyond
        if value.__class__ is float and value - value == 0:
            return floor(value) + 1 if beyond else ceil(value)
    return UNSURE


def _spans(allowed: ValueSet) -> Iterator[tuple[int, Any, Any]]:
    if allowed.null:
        yield NULL, None, None
    for name, cuts in allowed.cuts.items():
        kind = KINDS[name]
        for begin, end in zip(cuts[::2], cuts[1::2], strict=True):
            low, high = _beyond(begin, name), _beyond(end, name)
            if low is not _NEVER and (low is None or high is None or high is _NEVER or low < high):
                yield kind, low, None if high is _NEVER else high


def allows(allowed: ValueSet, kind: int, low: Any, high: Any) -> bool:
    """Whether a set has some value of a span."""
    return any(
        own == kind and (end is None or low is None or low < end) and (begin is None or high is None or begin < high)
        for own, begin, end in _spans(allowed)
    )


_NEVER = object()


def _beyond(cut: Cut, kind: str) -> Any:
    """The first value beyond a cut; None where it is the end of all values, `_NEVER` where there is none."""
    rank, value, side = cut
    if rank:
        return None
    if kind == "string":
        return value + "\0" if side else value  # no text lies between
    if kind == "float":
        return _first_float(value, bool(side))
    return value + 1 if side else value


def _first_float(value: int | float, beyond: bool) -> Any:
    """The least float that is at a number or above it, or, where `beyond`, above it."""
    nearest = nearest_float(value)
    if nearest > value or (nearest == value and not beyond):
        return nearest
    return _NEVER if nearest == inf else nextafter(nearest, inf)


def _checks(conjunct: Conjunct) -> tuple[Check, ...] | None:
    """What spans leave open: tests of text, groups of shapes, areas; None for all that needs the filter."""
    found: list[Check] = []
    for allowed in conjunct.exact.values():
        found += sorted(allowed.tests, key=repr)
    for term in conjunct.rest:
        if isinstance(term, Inside):
            if term.area.name != "BOX" or term.negated:  # the spans of a box say all of it
                found.append(term)
        elif isinstance(term, Group) and all(isinstance(item.predicate, Member) for item in term.items):
            found.append(term)
        else:
            return None
    return tuple(found)
