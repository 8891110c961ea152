"""Reads the records of CSV, NDJSON and Parquet files, starting at a position."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import IO, Any, NamedTuple

import orjson

from tidegate.errors import SourceError
from tidegate.model import Schema, timestamps
from tidegate.model.types import INTEGER_RANGES, Array, Struct, Type

MAX_RECORD_BYTES = 16 << 20
"""A longer line is refused, and not kept in memory."""
MAX_QUOTED_BYTES = 64 << 10
"""Longest record whose quoted cells contain line breaks. Beyond it, the quote counts as an error of its line."""

_BOM = b"\xef\xbb\xbf"


class FilePosition(NamedTuple):
    """How far a file was read."""

    records: int = 0
    offset: int = 0
    """In bytes. For a Parquet file: its size if all rows were read, else 0."""


class FileRecord(NamedTuple):
    """One record of a file."""

    raw: bytes
    """A JSON object; if there is a reason, the bytes of the file."""
    position: FilePosition
    """The position after the record."""
    reason: str | None = None
    """Why the record is refused; None: it is not."""


class RecordShape(NamedTuple):
    """What the records of a file should be."""

    schema: Schema
    columns: tuple[str, ...] = ()
    """The names of CSV columns; empty: the first line has them."""


Reader = Callable[[IO[bytes], FilePosition, RecordShape, bool], Iterator[FileRecord]]
"""Yields records from a position on. Unless `final`, it skips a last line without a line end: it may be incomplete."""


def ndjson(file: IO[bytes], position: FilePosition, shape: RecordShape, final: bool) -> Iterator[FileRecord]:  # noqa: ARG001
    """Read one JSON object per line; blank lines are not counted."""
    number = position.records
    for line, end, whole in _lines(file, position.offset, final):
        if line.strip():
            number += 1
            reason = None if whole else f"a line of more than {MAX_RECORD_BYTES} bytes"
            yield FileRecord(line.strip(), FilePosition(number, end), reason)


def _lines(file: IO[bytes], offset: int, final: bool) -> Iterator[tuple[bytes, int, bool]]:
    """Yield each line, the offset after it, and False if the line is too long and was cut."""
    file.seek(offset)
    while line := file.readline(MAX_RECORD_BYTES):
        begin, whole = offset, True
        offset += len(line)
        if not line.endswith(b"\n") and len(line) == MAX_RECORD_BYTES:
            whole = False
            while (rest := file.readline(MAX_RECORD_BYTES)) and not rest.endswith(b"\n"):
                offset += len(rest)
            if not rest and not final:
                return
            offset += len(rest)
            line = line[:1_000]
        elif not line.endswith(b"\n") and not final:
            return
        yield line.removeprefix(_BOM) if begin == 0 else line, offset, whole


def csv_rows(file: IO[bytes], position: FilePosition, shape: RecordShape, final: bool) -> Iterator[FileRecord]:
    """Read rows, converted to the types of the schema. An empty cell is a missing attribute.

    The columns of `shape`, else the header line, name attributes, also nested ones: `pos.x`. Raises SourceError for a
    bad header.
    """
    start = position.offset
    if shape.columns:
        columns = [_column(name, shape.schema) for name in shape.columns]
    else:
        head = next(_csv_records(file, 0, final), None)
        if head is None:
            return
        columns = _columns(head[0], shape.schema)
        start = max(start, head[1])
    number = position.records
    for raw, end, whole in _csv_records(file, start, final):
        number += 1
        position_after = FilePosition(number, end)
        try:
            if not whole:
                raise ValueError(f"a line of more than {MAX_RECORD_BYTES} bytes")
            yield FileRecord(orjson.dumps(_typed(_cells(raw), columns)), position_after)
        except (ValueError, csv.Error) as exc:
            yield FileRecord(raw, position_after, str(exc))


def _csv_records(file: IO[bytes], offset: int, final: bool) -> Iterator[tuple[bytes, int, bool]]:
    """Yield the lines of each record: several if a quoted cell contains line breaks. Skips blank lines."""
    while True:
        lines: list[tuple[bytes, int]] = []
        quotes = size = 0
        for line, end, whole in _lines(file, offset, final):
            if not lines and not line.strip():
                continue
            lines.append((line, end))
            quotes += line.count(b'"')
            size += len(line)
            if quotes % 2 == 0 or not whole or size > MAX_QUOTED_BYTES:
                break
        else:
            if not lines or not final:
                return
        if quotes % 2 and len(lines) > 1:
            lines = lines[:1]  # the quote is never closed: refuse one line, not the rest of the file
        offset = lines[-1][1]
        yield b"".join(line for line, _ in lines).rstrip(b"\r\n"), offset, whole


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
    attribute = schema.get(name)
    if attribute is not None:
        return (name,), _cell_reader(attribute.type)
    path = tuple(name.split("."))
    kind: Type = schema.root
    for part in path:
        field = kind.get(part) if isinstance(kind, Struct) else None
        if field is None:
            return (name,), str  # not in the schema: the services that read the stream report it
        kind = field.type
    return path, _cell_reader(kind)


def _cells(raw: bytes) -> list[str]:
    text = raw.decode()
    return next(csv.reader([text], strict=True)) if '"' in text else text.split(",")


def _typed(cells: list[str], columns: list[Column]) -> dict[str, Any]:
    if len(cells) != len(columns):
        raise ValueError(f"expected {len(columns)} cells, one for each column, not {len(cells)}")
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
    value = _TRUTHS.get(cell.strip().lower())
    if value is None:
        raise ValueError("expected true or false")
    return value


def _number(cell: str) -> float:
    if _NUMBER.fullmatch(cell.strip()) and math.isfinite(number := float(cell)):
        return number
    raise ValueError("expected a number")


def _whole(cell: str, low: int, high: int) -> int:
    if _WHOLE.fullmatch(cell.strip()) and low <= int(cell) <= high:
        return int(cell)
    raise ValueError(f"expected a whole number from {low} to {high}")


def parquet(file: IO[bytes], position: FilePosition, shape: RecordShape, final: bool) -> Iterator[FileRecord]:  # noqa: ARG001
    """Read rows, one row group at a time. Nulls are missing attributes, and so are NaNs, which JSON can't express."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet_file = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as exc:
        raise SourceError(f"not a complete Parquet file: {exc}") from exc
    with parquet_file:
        first = 0
        for group in range(parquet_file.num_row_groups):
            last = first + parquet_file.metadata.row_group(group).num_rows
            if last > position.records:
                yield from _row_group(parquet_file, group, (first, last), position.records)
            first = last


def _row_group(file: Any, group: int, span: tuple[int, int], done: int) -> Iterator[FileRecord]:
    import pyarrow as pa

    number = span[0]
    try:
        for batch in file.iter_batches(batch_size=1_000, row_groups=[group]):
            for row in _objects(batch):
                number += 1
                if number > done:
                    raw, reason = row
                    yield FileRecord(raw, FilePosition(number), reason)
    except (pa.ArrowException, OSError) as exc:
        yield FileRecord(b"", FilePosition(span[1]), f"rows {number + 1} to {span[1]} can't be read: {exc}")


def _objects(batch: Any) -> Iterator[tuple[bytes, str | None]]:
    """Yield each row as JSON, or an empty text and the reason why it has no JSON."""
    try:
        rows = _with_microseconds(batch).to_pylist()
    except (ValueError, OverflowError):  # a time outside of the years 1 to 9999; find its row
        if batch.num_rows == 1:
            yield b"", "a value that has no text"
            return
        for n in range(batch.num_rows):
            yield from _objects(batch.slice(n, 1))
        return
    for row in rows:
        event = {name: value for name, value in row.items() if value is not None and value == value}
        try:
            yield orjson.dumps(event, default=_json_value, option=orjson.OPT_PASSTHROUGH_DATETIME), None
        except TypeError as exc:  # orjson's errors
            yield b"", str(exc)


def _with_microseconds(batch: Any) -> Any:
    """Return the batch with times in microseconds, the precision of Python."""
    import pyarrow as pa

    fields = [
        field.with_type(pa.timestamp("us", field.type.tz)) if pa.types.is_timestamp(field.type) else field
        for field in batch.schema
    ]
    columns = [column.cast(field.type, safe=False) for column, field in zip(batch.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _json_value(value: Any) -> Any:
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
FORMAT_BY_SUFFIX = {".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".parquet": "parquet"}
