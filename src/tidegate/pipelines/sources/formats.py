"""Files as records: CSV, NDJSON and Parquet, each from a place in them on."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import IO, Any, BinaryIO, NamedTuple

import orjson

from tidegate.errors import SourceError
from tidegate.model import Schema, timestamps
from tidegate.model.types import INTEGER_RANGES, Array, Struct, Type

RECORD_BYTES = 16 << 20
"""A line beyond this is refused without being read whole."""
QUOTED_BYTES = 64 << 10
"""How far a quoted cell may go over line ends; beyond, its quote is taken for a slip of its own line."""

_BOM = b"\xef\xbb\xbf"


class Place(NamedTuple):
    """How far a file was read."""

    records: int = 0
    offset: int = 0
    """In bytes; of a Parquet file its size, once all was read."""


class Row(NamedTuple):
    """One record of a file."""

    raw: bytes
    """A JSON object; where there is a reason, what stands in the file."""
    place: Place
    """Behind it."""
    reason: str | None = None
    """Why it is none."""


Reader = Callable[[BinaryIO, Place, Schema, bool], Iterator[Row]]
"""Reads on from a place. Unless `final`, a last line without an end is left for later: it may still be written."""


def ndjson(file: BinaryIO, place: Place, schema: Schema, final: bool) -> Iterator[Row]:  # noqa: ARG001
    """One JSON object a line; blank lines don't count."""
    number = place.records
    for line, end, whole in _lines(file, place.offset, final):
        if line.strip():
            number += 1
            reason = None if whole else f"a line of more than {RECORD_BYTES} bytes"
            yield Row(line.strip(), Place(number, end), reason)


def _lines(file: IO[bytes], offset: int, final: bool) -> Iterator[tuple[bytes, int, bool]]:
    """Lines, the offset behind each, and whether it is whole."""
    file.seek(offset)
    while line := file.readline(RECORD_BYTES):
        begin, whole = offset, True
        offset += len(line)
        if not line.endswith(b"\n") and len(line) == RECORD_BYTES:
            whole = False
            while (rest := file.readline(RECORD_BYTES)) and not rest.endswith(b"\n"):
                offset += len(rest)
            if not rest and not final:
                return
            offset += len(rest)
            line = line[:1_000]
        elif not line.endswith(b"\n") and not final:
            return
        yield line.removeprefix(_BOM) if begin == 0 else line, offset, whole


def csv_rows(file: BinaryIO, place: Place, schema: Schema, final: bool) -> Iterator[Row]:
    """Values under a header line, typed by the schema; an empty cell is a missing attribute.

    A header names attributes, also nested ones: `pos.x`.
    """
    head = next(_csv_records(file, 0, final), None)
    if head is None:
        return
    columns = _columns(head[0], schema)
    number = place.records
    for raw, end, whole in _csv_records(file, max(place.offset, head[1]), final):
        number += 1
        there = Place(number, end)
        try:
            if not whole:
                raise ValueError(f"a line of more than {RECORD_BYTES} bytes")
            yield Row(orjson.dumps(_typed(_cells(raw), columns)), there)
        except (ValueError, csv.Error) as exc:
            yield Row(raw, there, str(exc))


def _csv_records(file: IO[bytes], offset: int, final: bool) -> Iterator[tuple[bytes, int, bool]]:
    """Lines, several where a quoted cell goes over them; blank ones are left out."""
    while True:
        held: list[tuple[bytes, int]] = []
        quotes = size = 0
        for line, end, whole in _lines(file, offset, final):
            if not held and not line.strip():
                continue
            held.append((line, end))
            quotes += line.count(b'"')
            size += len(line)
            if quotes % 2 == 0 or not whole or size > QUOTED_BYTES:
                break
        else:
            if not held or not final:
                return
        if quotes % 2 and len(held) > 1:
            held = held[:1]  # the quote never closes: one line is bad, not the rest of the file
        offset = held[-1][1]
        yield b"".join(line for line, _ in held).rstrip(b"\r\n"), offset, whole


Column = tuple[tuple[str, ...], Callable[[str], Any]]


def _columns(head: bytes, schema: Schema) -> list[Column]:
    try:
        names = [name.strip() for name in _cells(head)]
    except (ValueError, csv.Error) as exc:
        raise SourceError(f"expected a header line with the names of attributes: {exc}") from exc
    if "" in names or len(set(names)) < len(names):
        raise SourceError(f"expected a header line with names that differ from each other, not {head[:80]!r}")
    return [_column(name, schema) for name in names]


def _column(name: str, schema: Schema) -> Column:
    found = schema.get(name)
    if found is not None:
        return (name,), _cell_reader(found.type)
    path = tuple(name.split("."))
    kind: Type = schema.root
    for part in path:
        field = kind.get(part) if isinstance(kind, Struct) else None
        if field is None:
            return (name,), str  # not the schema's: Spark will say so
        kind = field.type
    return path, _cell_reader(kind)


def _cells(raw: bytes) -> list[str]:
    text = raw.decode()
    return next(csv.reader([text], strict=True)) if '"' in text else text.split(",")


def _typed(cells: list[str], columns: list[Column]) -> dict[str, Any]:
    if len(cells) != len(columns):
        raise ValueError(f"expected {len(columns)} cells, as the header has, not {len(cells)}")
    event: dict[str, Any] = {}
    for cell, (path, read) in zip(cells, columns, strict=True):
        if cell:
            try:
                value = read(cell)
            except ValueError as exc:
                raise ValueError(f"{'.'.join(path)}: {exc}, not {cell[:60]!r}") from exc
            inner = event
            for part in path[:-1]:
                inner = inner.setdefault(part, {})
            inner[path[-1]] = value
    return event


_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TRUTHS = {"true": True, "false": False, "1": True, "0": False}


def _cell_reader(kind: Type) -> Callable[[str], Any]:
    if isinstance(kind, Struct | Array):
        return _json_cell
    if kind.kind == "bool":
        return _truth
    if kind.kind == "float":
        return _number
    if kind.kind == "int":
        low, high = INTEGER_RANGES[str(kind)]
        return lambda cell: _whole(cell, low, high)
    return str


def _json_cell(cell: str) -> Any:
    try:
        return orjson.loads(cell)
    except ValueError:
        raise ValueError("expected JSON") from None


def _truth(cell: str) -> bool:
    found = _TRUTHS.get(cell.strip().lower())
    if found is None:
        raise ValueError("expected true or false")
    return found


def _number(cell: str) -> float:
    if _NUMBER.fullmatch(cell.strip()) and math.isfinite(number := float(cell)):
        return number
    raise ValueError("expected a number")


def _whole(cell: str, low: int, high: int) -> int:
    if _WHOLE.fullmatch(cell.strip()) and low <= int(cell) <= high:
        return int(cell)
    raise ValueError(f"expected a whole number from {low} to {high}")


def parquet(file: BinaryIO, place: Place, schema: Schema, final: bool) -> Iterator[Row]:  # noqa: ARG001
    """Rows, one row group at a time; a null is a missing attribute, and so is NaN, which JSON has not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as exc:
        raise SourceError(f"no whole Parquet file: {exc}") from exc
    with found:
        first = 0
        for group in range(found.num_row_groups):
            last = first + found.metadata.row_group(group).num_rows
            if last > place.records:
                yield from _row_group(found, group, (first, last), place.records)
            first = last


def _row_group(file: Any, group: int, span: tuple[int, int], done: int) -> Iterator[Row]:
    import pyarrow as pa

    number = span[0]
    try:
        for batch in file.iter_batches(batch_size=1_000, row_groups=[group]):
            for row in _objects(batch):
                number += 1
                if number > done:
                    raw, reason = row
                    yield Row(raw, Place(number), reason)
    except (pa.ArrowException, OSError) as exc:
        yield Row(b"", Place(span[1]), f"rows {number + 1} to {span[1]} can't be read: {exc}")


def _objects(batch: Any) -> Iterator[tuple[bytes, str | None]]:
    """Rows as JSON; one that can't be is a reason."""
    try:
        rows = _micros(batch).to_pylist()
    except (ValueError, OverflowError):  # a moment that no calendar has; find its row
        if batch.num_rows == 1:
            yield b"", "a value that has no text"
            return
        for n in range(batch.num_rows):
            yield from _objects(batch.slice(n, 1))
        return
    for row in rows:
        given = {name: value for name, value in row.items() if value is not None and value == value}
        try:
            yield orjson.dumps(given, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME), None
        except TypeError as exc:  # orjson's errors
            yield b"", str(exc)


def _micros(batch: Any) -> Any:
    """Moments in microseconds: Python's have no more."""
    import pyarrow as pa

    fields = [
        field.with_type(pa.timestamp("us", field.type.tz)) if pa.types.is_timestamp(field.type) else field
        for field in batch.schema
    ]
    columns = [column.cast(field.type, safe=False) for column, field in zip(batch.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return timestamps.to_text(timestamps.from_datetime(value))
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(f"a {type(value).__name__} has no counterpart in JSON")


READERS: dict[str, Reader] = {"csv": csv_rows, "ndjson": ndjson, "parquet": parquet}
ENDINGS = {".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".parquet": "parquet"}
