"""A batch of events as engines read it: Arrow columns, or dicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import orjson
import pyarrow as pa

from tidegate.errors import EventError, Violation
from tidegate.filters import Filter
from tidegate.filters.arrow_columns import ArrowColumn, distinct, in_one_piece, path_array, read_column
from tidegate.filters.by_meaning import ByMeaning
from tidegate.filters.columns import masks
from tidegate.filters.evaluate import matcher
from tidegate.filters.nodes import Node, Path, paths, predicates
from tidegate.filters.sets import DOMAINS, Domain, domain_of
from tidegate.filters.values import (
    LARGEST_EXACT,
    is_missing,
    number_reader,
    raw_reader,
    reader,
    text_reader,
)
from tidegate.matching.axis import Axis, TextThresholds
from tidegate.matching.result import NUMBER_BITS
from tidegate.matching.rows import BOOL, ENUM, FLOAT, INCOMPARABLE, INT, KINDS, MISTYPED, NULL, STRING, TIME, Point
from tidegate.matching.tuples import (
    BatchThemes,
    TupleColumn,
    WantedNumbers,
    of_batch,
    of_rows,
    themes_of_batch,
    themes_of_dicts,
)
from tidegate.model.numbers import nearest_float
from tidegate.model.schema import Schema

MAX_EVENTS = 2 ** (63 - NUMBER_BITS) - 1
"""Maximum number of events in a batch: (event, filter) pairs are sorted as 64-bit numbers."""

MAX_ROWWISE_EVENTS = 8
"""Up to this many events are read one by one; in larger batches each attribute becomes a column first."""


class EventBatch(Protocol):
    """What engines read from a batch. Not thread-safe: one match reads one batch."""

    size: int

    def mask(self, filter_: Filter, chosen: Any = None) -> Any:
        """Return which of the chosen events (indices; None: all) match a filter."""

    def degrees(self, filter_: Filter, chosen: Any) -> Any:
        """Return the degree, 0 to 1, to which each chosen event fits a filter."""

    def evaluate_semantic(self, by: ByMeaning) -> tuple[Any, Any]:
        """Return which events match a filter with ~, and the degree of each."""

    def event(self, index: int) -> Mapping[str, Any]:
        """Return one event as a dict."""

    def tuples(self, schema: Schema | None, numbers: WantedNumbers | None) -> list[TupleColumn]:
        """Return the attributes that predicates with ~ can match; of numbers only those in `numbers`."""

    def themes(self) -> BatchThemes:
        """Return the theme tags of the events."""

    def extended(self, attributes: Mapping[str, tuple[Any, Any]]) -> EventBatch:
        """Return the same events with more attributes: values, and which events have one."""

    def holds(self, node: Node, chosen: Any = None) -> Any:
        """Return for which of the chosen events a tree without `Not` is true."""

    def codes(self, axis: Axis) -> Any:
        """Return the code of each event on an axis."""

    def points(self, path: Path) -> list[Point]:
        """Return each event's value as a point on its axis; meant for few events."""

    def texts(self, path: Path) -> tuple[Any, list[str]]:
        """Return the distinct texts of an attribute, and for each event the index of its text (-1: none)."""

    def numbers(self, path: Path) -> Any:
        """Return an attribute as floats; NaN where an event has no number."""


def read_batch(batch: Any) -> EventBatch:
    """Return a batch as `EventBatch`: a record batch, a table, a list of dicts, or NDJSON bytes.

    Raises `EventError` for any other value, for a line that is not a JSON object, and for more than `MAX_EVENTS`
    events.
    """
    events = _read(batch)
    if events.size > MAX_EVENTS:
        raise EventError([Violation("batch", f"expected at most {MAX_EVENTS:,} events, not {events.size:,}")])
    return events


def _read(batch: Any) -> EventBatch:
    if isinstance(batch, bytes | bytearray | memoryview):
        return DictEvents(_parsed(bytes(batch)))
    batch = in_one_piece(batch)
    if isinstance(batch, pa.RecordBatch):
        return ArrowEvents(batch)
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        for n, event in enumerate(batch):
            if event.__class__ is not dict and not isinstance(event, Mapping):
                raise EventError([Violation(f"event {n}", f"expected a dict of attributes, not {event!r:.60}")])
        return DictEvents(batch)
    shown = type(batch).__name__
    raise EventError(
        [Violation("batch", f"expected a pyarrow.RecordBatch, a list of dicts or NDJSON bytes, not {shown}")]
    )


def _parsed(data: bytes) -> list[Mapping[str, Any]]:
    """Return the objects of NDJSON; blank lines are skipped."""
    rows: list[Mapping[str, Any]] = []
    for n, line in enumerate(data.split(b"\n")):
        if not line or line.isspace():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as exc:
            raise _bad_line(n, line, f": {exc}") from exc
        if row.__class__ is not dict:
            raise _bad_line(n, line)
        rows.append(row)
    return rows


def _bad_line(n: int, line: bytes, why: str = "") -> EventError:
    shown = line[:60].decode("utf-8", "replace")
    return EventError([Violation(f"line {n + 1}", f"expected a JSON object, not {shown!r}{why}")])


class _ColumnReader:
    """What Arrow and dict batches share: each attribute is read as a column once."""

    size: int

    def __init__(self) -> None:
        self._read: dict[Path, tuple[pa.Array, ArrowColumn] | None] = {}
        """Columns by path, read already: every segment asks for the same ones."""
        self._points: dict[tuple[str | int, ...], list[Point]] = {}

    def _array(self, path: Path) -> pa.Array | None:
        raise NotImplementedError

    def _read_points(self, path: Path) -> list[Point]:
        raise NotImplementedError

    def points(self, path: Path) -> list[Point]:
        """Return each event's value as a point on its axis."""
        points = self._points.get(path.parts)
        if points is None:
            points = self._points[path.parts] = self._read_points(path)
        return points

    def codes(self, axis: Axis) -> Any:
        """Return the code of each event on an axis."""
        if self.size > MAX_ROWWISE_EVENTS:
            column = self._column(axis.path)
            if column is not None:
                return self._column_codes(axis, *column)
        try:
            return np.array([axis.code(kind, value) for kind, value in self.points(axis.path)], np.int32)
        except (OverflowError, pa.ArrowInvalid):  # a time outside of Python's calendar
            column = self._column(axis.path)
            if column is None:
                raise
            return self._column_codes(axis, *column)

    def _column(self, path: Path) -> tuple[pa.Array, ArrowColumn] | None:
        if path not in self._read:
            array = self._array(path)
            self._read[path] = None if array is None else (array, read_column(array, path.type))
        return self._read[path]

    def _column_codes(self, axis: Axis, array: pa.Array, column: ArrowColumn) -> Any:
        """Return the codes of a whole column on an axis."""
        typed = axis.path.type
        domain = domain_of(typed) if typed is not None else DOMAINS[column.kind]
        kind = KINDS[domain.kind]
        fits = column.kind in _FITTING.get(kind, ())
        present = _present(array, column)
        if kind == FLOAT and column.kind == "int" and typed is not None and column.values.dtype != object:
            fits, column = True, _as_floats(column)
        if fits and present is None and column.valid is None and domain.low is None:
            return _codes_of_column(axis, kind, column)
        present = np.ones(self.size, dtype=bool) if present is None else present
        known = _in_domain(column, domain, present) if fits else np.zeros(self.size, dtype=bool)
        codes = np.full(self.size, NULL, np.int32)
        # With a type, every other value is mistyped; without one, it compares with nothing.
        codes[present] = INCOMPARABLE if typed is None or kind == INCOMPARABLE else MISTYPED
        if fits:
            codes[known] = _codes_of_column(axis, kind, column)[known]
        return codes

    def _column_numbers(self, column: ArrowColumn | None) -> Any:
        if column is None or column.kind not in ("int", "float"):
            return np.full(self.size, np.nan)
        values = column.values.astype(np.float64)
        if column.valid is not None:
            values[~column.valid] = np.nan
        return values

    def _column_texts(self, column: ArrowColumn | None) -> tuple[Any, list[str]]:
        if column is None or column.kind != "string":
            return np.full(self.size, -1), []
        return distinct(column.values)


class ArrowEvents(_ColumnReader):
    """Events as Arrow columns; numbers are read without a copy."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        super().__init__()
        self.batch, self.size = batch, batch.num_rows
        self._mask = masks(batch)

    def mask(self, filter_: Filter, chosen: Any = None) -> Any:
        """Return which of the chosen events match a filter."""
        if chosen is None:
            return filter_.mask(self.batch)
        selected = self._selected(filter_.pushed, chosen)
        return filter_.mask(self.batch)[chosen] if selected is None else filter_.mask(selected)

    def degrees(self, filter_: Filter, chosen: Any) -> Any:
        """Return the degree to which each chosen event fits a filter."""
        selected = self._selected(filter_.pushed, chosen)
        return filter_.degrees(self.batch)[chosen] if selected is None else filter_.degrees(selected)

    def evaluate_semantic(self, by: ByMeaning) -> tuple[Any, Any]:
        """Return which events match a filter with ~, and the degree of each."""
        return by.judged(self.batch)

    def event(self, index: int) -> Mapping[str, Any]:
        """Return one event as a dict."""
        row = self.batch.slice(index, 1)
        values = [_in_micros(column).to_pylist()[0] for column in row.columns]
        return dict(
            reversed(list(zip(row.schema.names, values, strict=True)))
        )  # of two columns with one name, the first

    def tuples(self, schema: Schema | None, numbers: WantedNumbers | None) -> list[TupleColumn]:
        """Return the attributes that predicates with ~ can match."""
        return of_batch(self.batch, schema, numbers)

    def themes(self) -> BatchThemes:
        """Return the theme tags of the events."""
        return themes_of_batch(self.batch)

    def extended(self, attributes: Mapping[str, tuple[Any, Any]]) -> EventBatch:
        """Return the same events with more attributes."""
        batch = self.batch
        for name, (values, known) in attributes.items():
            batch = batch.append_column(name, pa.array(values, mask=~known))
        return ArrowEvents(batch)

    def holds(self, node: Node, chosen: Any = None) -> Any:
        """Return for which of the chosen events a tree without `Not` is true."""
        holds = self._mask(node)  # comparing a whole column is faster than gathering rows of it
        return holds if chosen is None else holds[chosen]

    def _read_points(self, path: Path) -> list[Point]:
        array = self._array(path)
        if array is None:
            return [(NULL, None)] * self.size
        return _points_of_rows(({path.parts[0]: value} for value in array.to_pylist()), Path(path.parts[:1], path.type))

    def texts(self, path: Path) -> tuple[Any, list[str]]:
        """Return the distinct texts of an attribute, and the index of each event's text."""
        column = self._column(path)
        return self._column_texts(None if column is None else column[1])

    def numbers(self, path: Path) -> Any:
        """Return an attribute as floats; NaN where an event has no number."""
        column = self._column(path)
        return self._column_numbers(None if column is None else column[1])

    def _array(self, path: Path) -> pa.Array | None:
        return path_array(self.batch, path)

    def _selected(self, node: Node, chosen: Any) -> pa.RecordBatch | None:
        """Return the chosen events with the attributes that a tree names; None if Arrow can't select them."""
        named = dict.fromkeys(str(path.parts[0]) for predicate in predicates(node) for path in paths(predicate))
        at = [indices[0] for name in named if (indices := self.batch.schema.get_all_field_indices(name))]
        if not at:  # keep a column: a batch without columns has no length
            at = list(range(self.batch.num_columns))
        try:
            return self.batch.select(at).take(pa.array(chosen))
        except pa.ArrowNotImplementedError:  # Arrow can't take from string views
            return None


class DictEvents(_ColumnReader):
    """Events as dicts; an attribute whose values have one type becomes a column."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self.rows, self.size = rows, len(rows)

    def mask(self, filter_: Filter, chosen: Any = None) -> Any:
        """Return which of the chosen events match a filter."""
        rows = self._chosen(chosen)
        return np.fromiter((filter_.matches(row) for row in rows), dtype=bool, count=len(rows))

    def degrees(self, filter_: Filter, chosen: Any) -> Any:
        """Return the degree to which each chosen event fits a filter."""
        return np.fromiter((filter_.degree(self.rows[n]) for n in chosen), dtype=np.float64, count=len(chosen))

    def evaluate_semantic(self, by: ByMeaning) -> tuple[Any, Any]:
        """Return which events match a filter with ~, and the degree of each."""
        holds = np.fromiter((by.truth(row) is True for row in self.rows), dtype=bool, count=self.size)
        return holds, np.fromiter((by.degree(row) for row in self.rows), dtype=np.float64, count=self.size)

    def event(self, index: int) -> Mapping[str, Any]:
        """Return one event as a dict."""
        return self.rows[index]

    def tuples(self, schema: Schema | None, numbers: WantedNumbers | None) -> list[TupleColumn]:
        """Return the attributes that predicates with ~ can match."""
        return of_rows(self.rows, schema, numbers)

    def themes(self) -> BatchThemes:
        """Return the theme tags of the events."""
        return themes_of_dicts(self.rows)

    def extended(self, attributes: Mapping[str, tuple[Any, Any]]) -> EventBatch:
        """Return the same events with more attributes."""
        more = {name: np.where(known, values, np.array(None)).tolist() for name, (values, known) in attributes.items()}
        return DictEvents(
            [{**row, **{name: column[n] for name, column in more.items()}} for n, row in enumerate(self.rows)]
        )

    def holds(self, node: Node, chosen: Any = None) -> Any:
        """Return for which of the chosen events a tree without `Not` is true."""
        test, rows = matcher(node), self._chosen(chosen)
        return np.fromiter((test(row) is True for row in rows), dtype=bool, count=len(rows))

    def _read_points(self, path: Path) -> list[Point]:
        return _points_of_rows(self.rows, path)

    def texts(self, path: Path) -> tuple[Any, list[str]]:
        """Return the distinct texts of an attribute, and the index of each event's text."""
        read = text_reader(path)
        numbers: dict[str, int] = {}
        own = [-1 if (text := read(row)) is None else numbers.setdefault(text, len(numbers)) for row in self.rows]
        return np.array(own, np.int64), list(numbers)

    def numbers(self, path: Path) -> Any:
        """Return an attribute as floats; NaN where an event has no number."""
        column = self._column(path) if self.size > MAX_ROWWISE_EVENTS else None
        if column is not None:
            return self._column_numbers(column[1])
        number = number_reader(path)
        return np.array([np.nan if (value := number(row)) is None else value for row in self.rows], np.float64)

    def _chosen(self, chosen: Any) -> Sequence[Mapping[str, Any]]:
        return self.rows if chosen is None else [self.rows[n] for n in chosen]

    def _array(self, path: Path) -> pa.Array | None:
        """Return the values at a path as an Arrow array; None if they have several types, or one that Arrow lacks."""
        values = list(map(raw_reader(path), self.rows))
        kind = _ARROW.get(frozenset(map(type, values)) - {type(None)})
        if kind is None:
            return None
        try:
            return pa.array(values, kind)
        except (pa.ArrowInvalid, OverflowError, UnicodeError):
            return None


def _in_micros(array: pa.Array) -> pa.Array:
    """Return timestamps in microseconds, the precision of Python's datetime."""
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        return array.cast(pa.timestamp("us", array.type.tz), safe=False)
    return array


_ARROW = {
    frozenset({float}): pa.float64(),
    frozenset({int}): pa.int64(),
    frozenset({str}): pa.string(),
    frozenset({bool}): pa.bool_(),
}


def _points_of_rows(rows: Iterable[Mapping[Any, Any]], path: Path) -> list[Point]:
    raw, convert = raw_reader(path), reader(path)
    return [(NULL, None) if is_missing(raw(row)) else _point(convert(row), path) for row in rows]


_CLASSES = {bool: BOOL, int: INT, float: FLOAT, str: STRING}
_CLASSES_OF_KIND = {FLOAT: (float, int), STRING: (str,), BOOL: (bool,), INT: (int,), TIME: (int,), ENUM: (int,)}


def _point(value: Any, path: Path) -> Point:
    """Return a value as a point on the axis of a path."""
    if path.type is None:
        kind = _CLASSES.get(value.__class__, INCOMPARABLE)
        if kind == INCOMPARABLE and isinstance(value, int):  # a timestamp
            kind, value = TIME, int(value)
        return kind, value
    domain = domain_of(path.type)
    kind = KINDS[domain.kind]
    if kind == INCOMPARABLE:
        return INCOMPARABLE, None
    if value.__class__ not in _CLASSES_OF_KIND[kind] or not domain.holds(value):
        return MISTYPED, None
    if kind == FLOAT and value.__class__ is int and nearest_float(value) != value:
        return MISTYPED, None  # between two floats, where no span can end
    return kind, value


def _present(array: pa.Array, column: ArrowColumn) -> Any:
    """Return where a column has a value; None: everywhere."""
    present = np.asarray(array.is_valid()) if array.null_count else None
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        present = np.asarray(array.indices.cast(pa.int64()).fill_null(-1))
        present = np.append(np.asarray(array.dictionary.is_valid()), False)[present]
    if column.kind == "float" and (nothing := column.values != column.values).any():
        present = ~nothing if present is None else present & ~nothing
    return present


def _as_floats(column: ArrowColumn) -> ArrowColumn:
    """Return integers as floats; those that may lie between two floats become invalid."""
    exact = (column.values >= -LARGEST_EXACT) & (column.values <= LARGEST_EXACT)
    valid = exact if column.valid is None else column.valid & exact
    return ArrowColumn("float", column.values.astype(np.float64), valid)


def _in_domain(column: ArrowColumn, domain: Domain, present: Any) -> Any:
    """Return which values of a column lie in a domain."""
    known = present if column.valid is None else present & column.valid
    if domain.low is None or domain.high is None or column.kind == "bool":
        return known
    return known & (column.values >= domain.low) & (column.values <= domain.high)


def _codes_of_column(axis: Axis, kind: int, column: ArrowColumn) -> Any:
    """Return the code of each value of a column; distinct texts are looked up once each."""
    ladder, base = axis.ladders[kind], axis.base[kind]
    if not isinstance(ladder, TextThresholds):
        return (base + ladder.ranks(column.values)).astype(np.int32)
    texts = column.values
    encoded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    ranks = base + ladder.ranks(encoded.dictionary.fill_null(""))
    return np.append(ranks, 0).astype(np.int32)[np.asarray(encoded.indices.cast(pa.int64()).fill_null(-1))]


_FITTING = {
    BOOL: ("bool",),
    INT: ("int",),
    FLOAT: ("float",),
    STRING: ("string",),
    TIME: ("int", "time"),
    ENUM: ("int",),
}
"""Which kinds of column can be ranked on each kind of axis."""
