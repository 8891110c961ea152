"""A batch of events as the engines read it: Arrow, or dicts as they came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import orjson
import pyarrow as pa

from tidegate.errors import EventError, Violation
from tidegate.filters import Filter
from tidegate.filters.arrow_columns import Column, distinct, in_one_piece, path_array, read_column
from tidegate.filters.by_meaning import ByMeaning
from tidegate.filters.columns import masks
from tidegate.filters.evaluate import matcher
from tidegate.filters.nodes import Node, Path, paths, predicates
from tidegate.filters.sets import DOMAINS, Domain, domain_of
from tidegate.filters.values import (
    LARGEST_EXACT,
    is_missing,
    nearest_float,
    number_reader,
    raw_reader,
    reader,
    text_reader,
)
from tidegate.matching.axis import Axis, Texts
from tidegate.matching.result import NUMBER_BITS
from tidegate.matching.rows import BOOL, ENUM, FLOAT, INT, KINDS, NULL, ODD, STRING, TIME, UNFIT, Point
from tidegate.matching.tuples import (
    Numbers,
    Themes,
    TupleColumn,
    of_batch,
    of_rows,
    themes_of_batch,
    themes_of_dicts,
)
from tidegate.model.schema import Schema

MOST = 2 ** (63 - NUMBER_BITS) - 1
"""Events of one batch: a pair of event and filter is sorted as one number of 64 bits."""

FEW = 8
"""Events that are read one by one; of more, each attribute is made a column first."""


class Events(Protocol):
    """What an engine asks of a batch."""

    size: int

    def mask(self, filter_: Filter, chosen: Any = None) -> Any:
        """Say which of the chosen events (indexes; all) match a filter."""

    def degrees(self, filter_: Filter, chosen: Any) -> Any:
        """Say how well the chosen events fit a filter."""

    def judged(self, by: ByMeaning) -> tuple[Any, Any]:
        """Say which events match a filter with ~, and how well each fits."""

    def event(self, index: int) -> Mapping[str, Any]:
        """Give one event as a dict."""

    def tuples(self, schema: Schema | None, numbers: Numbers | None) -> list[TupleColumn]:
        """Give the attributes with values that can be meant, of numbers only some."""

    def themes(self) -> Themes:
        """Give the events' tags."""

    def extended(self, attributes: Mapping[str, tuple[Any, Any]]) -> Events:
        """Give the same events with more attributes: their values, and which events have one."""

    def holds(self, node: Node, chosen: Any = None) -> Any:
        """Say for which of the chosen events a tree without `Not` is true."""

    def codes(self, axis: Axis) -> Any:
        """Give each event's code on an axis."""

    def points(self, path: Path) -> list[Point]:
        """Give each event's value as an axis orders it; for a few events."""

    def texts(self, path: Path) -> tuple[Any, list[str]]:
        """Give the distinct texts of an attribute, and for each event the number of its own; -1 for none."""

    def numbers(self, path: Path) -> Any:
        """Give an attribute as floats; NaN for none."""


def read(batch: Any) -> Events:
    """Take a record batch, a table, a list of dicts, or NDJSON: one JSON object a line."""
    events = _read(batch)
    if events.size > MOST:
        raise EventError([Violation("batch", f"expected at most {MOST:,} events, not {events.size:,}")])
    return events


def _read(batch: Any) -> Events:
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
    """The objects of NDJSON; blank lines are passed over."""
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


class _Columns:
    """What Arrow and dicts have in common: an attribute as a column, read once."""

    size: int

    def __init__(self) -> None:
        self._read: dict[Path, tuple[pa.Array, Column] | None] = {}
        """The attributes that were read already: every segment asks for the same ones."""
        self._points: dict[tuple[str | int, ...], list[Point]] = {}

    def _array(self, path: Path) -> pa.Array | None:
        raise NotImplementedError

    def _read_points(self, path: Path) -> list[Point]:
        raise NotImplementedError

    def points(self, path: Path) -> list[Point]:
        """Give each event's value as an axis orders it."""
        found = self._points.get(path.parts)
        if found is None:
            found = self._points[path.parts] = self._read_points(path)
        return found

    def codes(self, axis: Axis) -> Any:
        """Give each event's code on an axis."""
        if self.size > FEW:
            read = self._column(axis.path)
            if read is not None:
                return self._column_codes(axis, *read)
        try:
            return np.array([axis.code(kind, value) for kind, value in self.points(axis.path)], np.int32)
        except (OverflowError, pa.ArrowInvalid):  # a moment that Python's calendar does not have
            read = self._column(axis.path)
            if read is None:
                raise
            return self._column_codes(axis, *read)

    def _column(self, path: Path) -> tuple[pa.Array, Column] | None:
        if path not in self._read:
            array = self._array(path)
            self._read[path] = None if array is None else (array, read_column(array, path.type))
        return self._read[path]

    def _column_codes(self, axis: Axis, array: pa.Array, column: Column) -> Any:
        """Rank a whole column among the thresholds of an axis."""
        typed = axis.path.type
        domain = domain_of(typed) if typed is not None else DOMAINS[column.kind]
        kind = KINDS[domain.kind]
        fits = column.kind in _FITTING.get(kind, ())
        present = _present(array, column)
        if kind == FLOAT and column.kind == "int" and typed is not None and column.values.dtype != object:
            fits, column = True, _as_floats(column)
        if fits and present is None and column.valid is None and domain.low is None:
            return _ranked(axis, kind, column)
        present = np.ones(self.size, dtype=bool) if present is None else present
        known = _known(column, domain, present) if fits else np.zeros(self.size, dtype=bool)
        codes = np.full(self.size, NULL, np.int32)
        # Of a typed attribute every value that does not fit is odd; without a type it compares with nothing.
        codes[present] = UNFIT if typed is None or kind == UNFIT else ODD
        if fits:
            codes[known] = _ranked(axis, kind, column)[known]
        return codes

    def _column_numbers(self, column: Column | None) -> Any:
        if column is None or column.kind not in ("int", "float"):
            return np.full(self.size, np.nan)
        values = column.values.astype(np.float64)
        if column.valid is not None:
            values[~column.valid] = np.nan
        return values

    def _column_texts(self, column: Column | None) -> tuple[Any, list[str]]:
        if column is None or column.kind != "string":
            return np.full(self.size, -1), []
        return distinct(column.values)


class ArrowEvents(_Columns):
    """Events as Arrow columns: numbers are read without a copy."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        super().__init__()
        self.batch, self.size = batch, batch.num_rows
        self._mask = masks(batch)

    def mask(self, filter_: Filter, chosen: Any = None) -> Any:
        """Say which of the chosen events match a filter."""
        if chosen is None:
            return filter_.mask(self.batch)
        taken = self._taken(filter_.pushed, chosen)
        return filter_.mask(self.batch)[chosen] if taken is None else filter_.mask(taken)

    def degrees(self, filter_: Filter, chosen: Any) -> Any:
        """Say how well the chosen events fit a filter."""
        taken = self._taken(filter_.pushed, chosen)
        return filter_.degrees(self.batch)[chosen] if taken is None else filter_.degrees(taken)

    def judged(self, by: ByMeaning) -> tuple[Any, Any]:
        """Say which events match a filter with ~, and how well each fits."""
        return by.judged(self.batch)

    def event(self, index: int) -> Mapping[str, Any]:
        """Give one event as a dict."""
        row = self.batch.slice(index, 1)
        values = [_in_micros(column).to_pylist()[0] for column in row.columns]
        return dict(reversed(list(zip(row.schema.names, values, strict=True))))  # of two with one name the first

    def tuples(self, schema: Schema | None, numbers: Numbers | None) -> list[TupleColumn]:
        """Give the attributes with values that can be meant, of numbers only some."""
        return of_batch(self.batch, schema, numbers)

    def themes(self) -> Themes:
        """Give the events' tags."""
        return themes_of_batch(self.batch)

    def extended(self, attributes: Mapping[str, tuple[Any, Any]]) -> Events:
        """Give the same events with more attributes: their values, and which events have one."""
        batch = self.batch
        for name, (values, known) in attributes.items():
            batch = batch.append_column(name, pa.array(values, mask=~known))
        return ArrowEvents(batch)

    def holds(self, node: Node, chosen: Any = None) -> Any:
        """Say for which of the chosen events a tree without `Not` is true."""
        found = self._mask(node)  # to compare a whole column takes less time than to gather some rows of it
        return found if chosen is None else found[chosen]

    def _read_points(self, path: Path) -> list[Point]:
        array = self._array(path)
        if array is None:
            return [(NULL, None)] * self.size
        return _points_of_rows(({path.parts[0]: value} for value in array.to_pylist()), Path(path.parts[:1], path.type))

    def texts(self, path: Path) -> tuple[Any, list[str]]:
        """Give the distinct texts of an attribute and each event's own."""
        read = self._column(path)
        return self._column_texts(None if read is None else read[1])

    def numbers(self, path: Path) -> Any:
        """Give an attribute as floats; NaN for none."""
        read = self._column(path)
        return self._column_numbers(None if read is None else read[1])

    def _array(self, path: Path) -> pa.Array | None:
        return path_array(self.batch, path)

    def _taken(self, node: Node, chosen: Any) -> pa.RecordBatch | None:
        """Some events, with the attributes that a tree names; None where Arrow can't take some of them."""
        named = dict.fromkeys(str(path.parts[0]) for each in predicates(node) for path in paths(each))
        at = [found[0] for name in named if (found := self.batch.schema.get_all_field_indices(name))]
        if not at:  # a batch without columns has no length
            at = list(range(self.batch.num_columns))
        try:
            return self.batch.select(at).take(pa.array(chosen))
        except pa.ArrowNotImplementedError:  # views of text
            return None


class DictEvents(_Columns):
    """Events as dicts: an attribute whose values are of one type becomes a column."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self.rows, self.size = rows, len(rows)

    def mask(self, filter_: Filter, chosen: Any = None) -> Any:
        """Say which of the chosen events match a filter."""
        rows = self._chosen(chosen)
        return np.fromiter((filter_.matches(row) for row in rows), dtype=bool, count=len(rows))

    def degrees(self, filter_: Filter, chosen: Any) -> Any:
        """Say how well the chosen events fit a filter."""
        return np.fromiter((filter_.degree(self.rows[n]) for n in chosen), dtype=np.float64, count=len(chosen))

    def judged(self, by: ByMeaning) -> tuple[Any, Any]:
        """Say which events match a filter with ~, and how well each fits."""
        holds = np.fromiter((by.truth(row) is True for row in self.rows), dtype=bool, count=self.size)
        return holds, np.fromiter((by.degree(row) for row in self.rows), dtype=np.float64, count=self.size)

    def event(self, index: int) -> Mapping[str, Any]:
        """Give one event as a dict."""
        return self.rows[index]

    def tuples(self, schema: Schema | None, numbers: Numbers | None) -> list[TupleColumn]:
        """Give the attributes with values that can be meant, of numbers only some."""
        return of_rows(self.rows, schema, numbers)

    def themes(self) -> Themes:
        """Give the events' tags."""
        return themes_of_dicts(self.rows)

    def extended(self, attributes: Mapping[str, tuple[Any, Any]]) -> Events:
        """Give the same events with more attributes: their values, and which events have one."""
        more = {name: np.where(known, values, np.array(None)).tolist() for name, (values, known) in attributes.items()}
        return DictEvents(
            [{**row, **{name: each[n] for name, each in more.items()}} for n, row in enumerate(self.rows)]
        )

    def holds(self, node: Node, chosen: Any = None) -> Any:
        """Say for which of the chosen events a tree without `Not` is true."""
        test, rows = matcher(node), self._chosen(chosen)
        return np.fromiter((test(row) is True for row in rows), dtype=bool, count=len(rows))

    def _read_points(self, path: Path) -> list[Point]:
        return _points_of_rows(self.rows, path)

    def texts(self, path: Path) -> tuple[Any, list[str]]:
        """Give the distinct texts of an attribute and each event's own."""
        read = text_reader(path)
        numbers: dict[str, int] = {}
        own = [-1 if (text := read(row)) is None else numbers.setdefault(text, len(numbers)) for row in self.rows]
        return np.array(own, np.int64), list(numbers)

    def numbers(self, path: Path) -> Any:
        """Give an attribute as floats; NaN for none."""
        read = self._column(path) if self.size > FEW else None
        if read is not None:
            return self._column_numbers(read[1])
        number = number_reader(path)
        return np.array([np.nan if (value := number(row)) is None else value for row in self.rows], np.float64)

    def _chosen(self, chosen: Any) -> Sequence[Mapping[str, Any]]:
        return self.rows if chosen is None else [self.rows[n] for n in chosen]

    def _array(self, path: Path) -> pa.Array | None:
        """A column of the values at a path; None where they are of several types, or of one that Arrow lacks."""
        values = list(map(raw_reader(path), self.rows))
        kind = _ARROW.get(frozenset(map(type, values)) - {type(None)})
        if kind is None:
            return None
        try:
            return pa.array(values, kind)
        except (pa.ArrowInvalid, OverflowError, UnicodeError):
            return None


def _in_micros(array: pa.Array) -> pa.Array:
    """Moments to what Python's have."""
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
    """A value that was read, as an axis orders it."""
    if path.type is None:
        kind = _CLASSES.get(value.__class__, UNFIT)
        if kind == UNFIT and isinstance(value, int):  # a moment
            kind, value = TIME, int(value)
        return kind, value
    domain = domain_of(path.type)
    kind = KINDS[domain.kind]
    if kind == UNFIT:
        return UNFIT, None
    if value.__class__ not in _CLASSES_OF_KIND[kind] or not domain.holds(value):
        return ODD, None
    if kind == FLOAT and value.__class__ is int and nearest_float(value) != value:
        return ODD, None  # it lies between two floats, where no span has an end
    return kind, value


def _present(array: pa.Array, column: Column) -> Any:
    """Where a column has a value; None: everywhere."""
    present = np.asarray(array.is_valid()) if array.null_count else None
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        present = np.asarray(array.indices.cast(pa.int64()).fill_null(-1))
        present = np.append(np.asarray(array.dictionary.is_valid()), False)[present]
    if column.kind == "float" and (nothing := column.values != column.values).any():
        present = ~nothing if present is None else present & ~nothing
    return present


def _as_floats(column: Column) -> Column:
    """Whole numbers as floats; where one may lie between two floats it is not valid."""
    exact = (column.values >= -LARGEST_EXACT) & (column.values <= LARGEST_EXACT)
    valid = exact if column.valid is None else column.valid & exact
    return Column("float", column.values.astype(np.float64), valid)


def _known(column: Column, domain: Domain, present: Any) -> Any:
    """Which values of a column lie in a domain."""
    known = present if column.valid is None else present & column.valid
    if domain.low is None or domain.high is None or column.kind == "bool":
        return known
    return known & (column.values >= domain.low) & (column.values <= domain.high)


def _ranked(axis: Axis, kind: int, column: Column) -> Any:
    """The code of each value of a column; texts are looked up once each."""
    ladder, base = axis.ladders[kind], axis.base[kind]
    if not isinstance(ladder, Texts):
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
"""Which columns a ladder of a kind can rank."""
