"""Compiles a filter to rows of an index: one row per alternative, with spans on axes.

An attribute is an *axis*. What a row allows on an axis is one or more *spans*: from the first value inside to the first
value outside, of one kind of value; None where a span is unbounded. A row without a span on an axis allows every value
there. So `speed > 60 AND lane IN (1, 2)` is one row:

    axis     kind     low           high
    speed    float    60.0000…01    None
    lane     int      1             3

What spans can't express is left as checks, for the events that pass all spans.
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
    ComputedValue,
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
from tidegate.filters.values import LARGEST_EXACT
from tidegate.model.numbers import nearest_float

NULL, INCOMPARABLE, MISTYPED, BOOL, INT, FLOAT, STRING, TIME, ENUM = range(9)
"""The kinds of value on an axis: missing, comparable with nothing, not of the attribute's type, and the ordered kinds.
"""

Point = tuple[int, Any]
"""A value on an axis: its kind, and the value in comparable form."""

KINDS = {"null": NULL, "other": INCOMPARABLE, "bool": BOOL, "int": INT, "float": FLOAT, "string": STRING, "time": TIME}
KINDS |= {"enum": ENUM}
KIND_NAMES = {NULL: "null", INCOMPARABLE: "no value that compares", MISTYPED: "a value that its type does not hold"}
KIND_NAMES |= {n: name for name, n in KINDS.items() if n > MISTYPED}

RowCheck = Pattern | StrLike | Group | Inside


AxisSpan = tuple[int, int, Any, Any]
"""Axis, kind, first value inside, first value outside."""


class IndexRow(NamedTuple):
    """One alternative of a filter: its spans, grouped by axis."""

    flat: tuple[Any, ...]
    """All spans in one flat tuple, because the garbage collector does not track tuples of plain values."""
    checks: tuple[RowCheck, ...] | None = ()
    """What candidates must still be checked for; None: evaluate the whole filter."""

    @property
    def spans(self) -> Iterator[AxisSpan]:
        """The spans one by one."""
        values = iter(self.flat)
        return zip(values, values, values, values, strict=True)


class CompiledFilter(NamedTuple):
    """A filter as rows. Filters with equal keys match the same events."""

    rows: tuple[IndexRow, ...]
    key: Hashable
    graded: bool
    """True if a match may have a degree below 1."""

    @property
    def is_simple(self) -> bool:
        """True if the filter is one row without checks."""
        return len(self.rows) == 1 and self.rows[0].checks == ()


def describe_row(row: IndexRow, axes: Axes) -> dict[str, Any]:
    """Return a row in readable form: the spans of each attribute, and the checks."""
    allows: dict[str, list[str]] = {}
    for axis, kind, low, high in row.spans:
        allows.setdefault(operand(axes.paths[axis]), []).append(span_text(kind, low, high))
    return {"allows": allows, "asks": describe_checks(row.checks)}


def span_text(kind: int, low: Any, high: Any) -> str:
    """Return a span in readable form."""
    begin = "" if low is None else f" from {low!r}"
    end = "" if high is None else f" below {high!r}"
    return KIND_NAMES[kind] + begin + end


def describe_checks(checks: tuple[RowCheck, ...] | None) -> list[str]:
    """Return the checks of a row in readable form."""
    return ["the whole filter"] if checks is None else [predicate(check) for check in checks]


Fact = tuple[int, int, str, Any, Any]
"""One predicate: axis, kind, relation, and the value (both values for BETWEEN)."""


def compile_plain(facts: list[Fact]) -> CompiledFilter | None:
    """Compile a conjunction of ranges and equalities; None if it is not that simple, for `Axes.compile` to normalise.

    The key is made from the facts, not from the row: `lane > 0` and `lane >= 0.5` give the same row, but differ for a
    lane that is not an integer.
    """
    spans: dict[int, AxisSpan] = {}
    # The conditions are ordered for speed: this takes most of the time of adding a filter.
    for axis, kind, relation, first, last in facts:
        if relation != "BETWEEN":
            first, last = value_range(kind, relation, first)
        elif kind == FLOAT and first.__class__ is last.__class__ is float and -_LARGE < first <= last < _LARGE:
            last = nextafter(last, inf)
        elif kind in _INTEGER_KINDS and first.__class__ is last.__class__ is int:
            last += 1
        else:
            first, last = _first(kind, first, False), _first(kind, last, True)
        if first is UNDECIDED or last is UNDECIDED:
            return None
        if axis in spans:
            first, last = _narrowed(spans[axis], first, last)
        if first is not None and last is not None and first >= last:
            return None
        spans[axis] = (axis, kind, first, last)
    if not spans:
        return None
    facts.sort()
    # A digest, because a million keys with all their numbers would take more memory than the index.
    key = blake2b(marshal.dumps(facts, 2), digest_size=16).digest()
    return CompiledFilter((IndexRow(_flat(list(spans.values()))),), key, False)


class Axes:
    """Numbers the attributes that the filters of one matcher name. Thread-safe."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str | int, ...], tuple[int, int]] = {}
        self.paths: list[Path] = []
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    def compile(self, filter_: Filter) -> CompiledFilter:
        """Compile a filter to rows: ranges and equalities directly, anything else by its normal form."""
        facts = self.facts(filter_.pushed)
        compiled = None if facts is None else compile_plain(facts)
        if compiled is not None:
            return compiled
        conjuncts = filter_.normal.conjuncts
        rows = [row for conjunct in conjuncts if (row := self._row(conjunct)) is not None]
        rows = self._with_mistyped_values(rows, filter_.pushed)
        graded = any(isinstance(node, Group) for node in predicates(filter_.pushed))
        return CompiledFilter(tuple(rows), (str(filter_), filter_.like_star), graded)

    def number(self, path: Path) -> tuple[int, int]:
        """Return the axis of an attribute, and the kind of its values (-1 if it has no type); adds the axis if it is
        new.
        """
        numbered = self._numbers.get(path.parts)
        if numbered is None:
            with self._lock:
                kind = -1 if path.type is None else KINDS[domain_of(path.type).kind]
                numbered = self._numbers.get(path.parts)
                if numbered is None:
                    numbered = len(self.paths), kind
                    self.paths.append(path)  # before the number, whose readers look up the path
                    self._numbers[path.parts] = numbered
        return numbered

    # Plain filters -------------------------------------------------------------

    def facts(self, root: Node) -> list[Fact] | None:
        """Return the facts of a conjunction of ranges and equalities; None for any other tree."""
        numbers = self._numbers
        facts: list[Fact] = []
        terms: tuple[Any, ...] = root.terms if isinstance(root, And) else (root,)
        for term in terms:
            if term.__class__ in (Between, Compare) and term.path.__class__ is ComputedValue:
                return None
            if term.__class__ is Between and not term.negated:
                axis, kind = numbers.get(term.path.parts) or self.number(term.path)
                facts.append((axis, kind, "BETWEEN", term.low.value, term.high.value))  # type: ignore[union-attr]
            elif term.__class__ is Compare and term.other.__class__ is Literal:
                axis, kind = numbers.get(term.path.parts) or self.number(term.path)
                facts.append((axis, kind, term.relation, term.other.value, None))
            else:
                return None
        return facts

    # All other filters ----------------------------------------------------------

    def _row(self, conjunct: Conjunct) -> IndexRow | None:
        """Return the row of a conjunct; None if it allows nothing."""
        spans: list[AxisSpan] = []
        for path, allowed in conjunct.necessary.items():
            if isinstance(path, ComputedValue):
                continue
            axis, _ = self.number(path)
            own_spans = [(axis, *span) for span in _spans(allowed)]
            if not own_spans:
                return None
            spans += sorted(own_spans, key=lambda span: span[1])  # stable: spans of one kind stay in order
        return IndexRow(_flat(spans), _checks(conjunct))

    def _with_mistyped_values(self, rows: list[IndexRow], root: Node) -> list[IndexRow]:
        """Return the rows, extended so that the filter itself decides on each event with a mistyped value.

        Conclusions from the type of an attribute do not hold for such a value: `lane >= 0` is no tautology for it, and
        `lane > 300` no contradiction. So every row gets a span on attributes that no row names any more, and
        alternatives that were dropped are added again for mistyped values.
        """
        named = {path.parts: path for node in predicates(root) for path in paths(node) if path.type is not None}
        free = [self.number(path) for path in named.values()]
        used = {axis for row in rows for axis, *_ in row.spans}
        unused = [(axis, kind) for axis, kind in free if axis not in used]
        whole = tuple(value for axis, own in unused for kind in (NULL, own) for value in (axis, kind, None, None))
        rows = [IndexRow(row.flat + whole, row.checks) for row in rows] if whole else rows
        if len(rows) < len(to_dnf(root)):
            rows = rows + [IndexRow((axis, MISTYPED, None, None), None) for axis, _ in free]
        return rows


UNDECIDED = object()
"""A bound that `compile_plain` can't compute."""

_LARGE = 1e300
_INTEGER_KINDS = frozenset({INT, TIME})


def _flat(spans: list[AxisSpan]) -> tuple[Any, ...]:
    """Return spans as one flat tuple, ordered by axis."""
    spans.sort(key=itemgetter(0))
    return tuple(chain.from_iterable(spans))


def _narrowed(before: AxisSpan, first: Any, last: Any) -> tuple[Any, Any]:
    """Return the intersection of two spans on one axis."""
    _, _, low, high = before
    if low is not None and (first is None or low > first):
        first = low
    if high is not None and (last is None or high < last):
        last = high
    return first, last


def value_range(kind: int, relation: str, value: Any) -> tuple[Any, Any]:
    """Return the span of values of a kind that have a relation to a value; `UNDECIDED` if it is not one span."""
    if relation == "<>":
        return UNDECIDED, UNDECIDED
    if kind == STRING:
        return (value, value + "\0") if relation == "=" else (UNDECIDED, UNDECIDED)
    first = None if relation[0] == "<" else _first(kind, value, relation == ">")
    last = None if relation[0] == ">" else _first(kind, value, relation != "<")
    return first, last


def _first(kind: int, value: Any, beyond: bool) -> Any:
    """Return the first value of a kind of number at a value, or after it if `beyond`."""
    if kind == FLOAT:
        if value.__class__ is int and -LARGEST_EXACT <= value <= LARGEST_EXACT:
            value = float(value)
        if value.__class__ is not float or value - value != 0:  # too large, infinite or NaN
            return UNDECIDED
        return nextafter(value, inf) if beyond else value
    if kind in _INTEGER_KINDS:
        if value.__class__ is int:
            return value + beyond
        if value.__class__ is float and value - value == 0:
            return floor(value) + 1 if beyond else ceil(value)
    return UNDECIDED


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
    """Return True if a set contains some value of a span."""
    return any(
        own == kind and (end is None or low is None or low < end) and (begin is None or high is None or begin < high)
        for own, begin, end in _spans(allowed)
    )


_NEVER = object()


def _beyond(cut: Cut, kind: str) -> Any:
    """Return the first value after a cut; None at the end of all values, `_NEVER` if no value follows."""
    rank, value, side = cut
    if rank:
        return None
    if kind == "string":
        return value + "\0" if side else value  # no text lies between the two
    if kind == "float":
        return _first_float(value, bool(side))
    return value + 1 if side else value


def _first_float(value: int | float, beyond: bool) -> Any:
    """Return the least float at or above a number, or above it if `beyond`."""
    nearest = nearest_float(value)
    if nearest > value or (nearest == value and not beyond):
        return nearest
    return _NEVER if nearest == inf else nextafter(nearest, inf)


def _checks(conjunct: Conjunct) -> tuple[RowCheck, ...] | None:
    """Return the checks that spans leave open (text, fuzzy groups, areas); None if the whole filter is needed."""
    checks: list[RowCheck] = []
    for path, allowed in conjunct.exact.items():
        if isinstance(path, ComputedValue):
            return None
        checks += sorted(allowed.tests, key=repr)
    for term in conjunct.rest:
        if isinstance(term, Inside):
            if term.area.name != "BOX" or term.negated:  # spans express a box completely
                checks.append(term)
        elif isinstance(term, Group) and all(isinstance(item.predicate, Member) for item in term.items):
            checks.append(term)
        else:
            return None
    return tuple(checks)
