"""The rows of an Arrow stream as records.

Whatever a stream says of itself is checked before any value is used: first what it would expand to (`ipc`), then that
its columns have types that the schema can have, then each batch in full (`validate`), as Arrow trusts offsets, lengths
and indices that it has read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BodyError, BodyTooLarge, did_you_mean
from tidegate.gateway.ingest.ipc import Bounds, check_stream
from tidegate.model import Schema, timestamps
from tidegate.model.schema import RESERVED
from tidegate.model.types import Array, Enum, Scalar, Struct, Type

_MOMENT = pa.timestamp("us", "UTC")


class _Column(NamedTuple):
    """A column of a stream, and what it is read as."""

    name: str
    kind: Type
    target: pa.DataType


def rows(data: bytes, schema: Schema, bounds: Bounds) -> list[bytes]:
    """Read an IPC stream and write each row as a JSON object; a null is left out.

    Raises a `BodyError` for a stream that is damaged, compressed or too large, and for a column that the schema does
    not have, lacks, or has as another type. Whether values fit is for the validator.
    """
    try:
        check_stream(data, bounds)
        with pa.ipc.open_stream(data) as reader:
            columns = _columns(reader.schema, schema)
            return list(_bounded(_batches(reader, columns, bounds), bounds.decoded_bytes))
    except (pa.ArrowException, OSError, struct.error, UnicodeDecodeError) as exc:
        raise BodyError(f"expected an Arrow IPC stream: {_first_line(exc)[:500]}") from exc


def _bounded(records: Iterator[bytes], most_bytes: int) -> Iterator[bytes]:
    size_bytes = 0
    for record in records:
        size_bytes += len(record)
        if size_bytes > most_bytes:
            raise BodyTooLarge(f"expected an Arrow body of at most {most_bytes:,} bytes as JSON: send several")
        yield record


def _batches(reader: pa.RecordBatchReader, columns: list[_Column], bounds: Bounds) -> Iterator[bytes]:
    for batch in reader:
        batch.validate(full=True)
        for column, found in zip(columns, batch.columns, strict=True):
            _need_size(found, column.name, bounds.decoded_bytes)
        yield from _records(batch, columns)


def _columns(given: pa.Schema, schema: Schema) -> list[_Column]:
    """The columns, whose names are those of the schema."""
    kinds: dict[str, Type] = {**RESERVED, **{field.name: field.type for field in schema.root}}
    columns: dict[str, _Column] = {}
    for field in given:
        name = field.name
        kind = kinds.get(name)
        if kind is None:
            shown = [each.name for each in schema.root]
            raise BodyError(f"column {name[:200]!r}: unknown attribute{did_you_mean(name[:200], sorted(shown))}")
        if name in columns:
            raise BodyError(f"column {name!r}: expected it once")
        target = _target(field.type, kind, name)
        if target is None:
            raise BodyError(f"column {name!r}: expected {kind}, not Arrow's {str(field.type)[:200]}")
        columns[name] = _Column(name, kind, target)
    if not columns:
        raise BodyError("expected an Arrow stream with at least one column")
    missing = [field.name for field in schema.root if field.required and field.name not in columns]
    if missing:
        raise BodyError(f"expected columns {', '.join(map(repr, missing))} too, beside {', '.join(columns)}")
    return list(columns.values())


def _need_size(column: pa.Array, name: str, most_bytes: int) -> None:
    """Refuse a column whose values share bytes, and would take too many when each has its own."""
    if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
        lengths = _lengths(column.dictionary)
        used = column.indices.drop_null().to_numpy(zero_copy_only=False)
        size_bytes = int(lengths[used].sum()) if len(used) else 0
    elif pa.types.is_string_view(column.type):
        size_bytes = int(_lengths(column).sum())
    else:
        return
    if size_bytes > most_bytes:
        raise BodyTooLarge(f"column {name!r}: its texts take {size_bytes:,} bytes, and {most_bytes:,} are allowed")


def _lengths(texts: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The bytes of each text; 0 for a null."""
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_string_view(texts.type):  # a view is 16 bytes, the first 4 of them its length
        views = np.frombuffer(texts.buffers()[1], "<i4")[: 4 * (texts.offset + len(texts))]
        found = views[4 * texts.offset :: 4]
    else:
        found = pc.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False)
    return np.where(valid, found, 0).astype(np.int64)


def _records(batch: pa.RecordBatch, columns: list[_Column]) -> Iterator[bytes]:
    names = [each.name for each in columns]
    try:
        values = [_values(_cast(found, each)) for found, each in zip(batch.columns, columns, strict=True)]
        for row in zip(*values, strict=True):
            event = {name: value for name, value in zip(names, row, strict=True) if value is not None}
            yield orjson.dumps(event, _written, orjson.OPT_PASSTHROUGH_DATETIME)
    except (OverflowError, ValueError) as exc:
        raise BodyError(f"expected moments of the years 1 to 9999: {exc}") from exc
    except TypeError as exc:  # orjson's: a string that is no text
        raise BodyError(f"a row that JSON can't say: {exc}") from exc


def _values(column: pa.Array) -> list[Any]:
    """The column's values as JSON has them, but for moments inside of others."""
    if column.type == _MOMENT:
        _need_writable(column)  # Arrow's years have 16 bits: 67562 would be 2026
        # Arrow's text, for the whole column: a third of the time that a text for each takes.
        column = pc.strftime(column.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%SZ")
    elif not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        found: list[Any] = column.to_numpy().tolist()
        return found
    values: list[Any] = column.to_pylist()
    return values


def _need_writable(column: pa.Array) -> None:
    ends = pc.min_max(column.cast(pa.int64()))
    for micros in (ends["min"].as_py(), ends["max"].as_py()):
        if micros is not None and not timestamps.is_writable(micros):
            raise OverflowError(f"{micros} microseconds since 1970 are not")


def _written(value: Any) -> str:
    if isinstance(value, datetime):
        return timestamps.to_text(timestamps.from_datetime(value))
    raise TypeError(f"expected a value that JSON has, not {value!r:.60}")


def _cast(column: pa.Array, read_as: _Column) -> pa.Array:
    """The column as a type whose Python values are the wire's; nothing may be lost by it."""
    name, kind, target = read_as
    try:
        found = column if target == column.type else column.cast(target)
    except pa.ArrowException as exc:
        reason = _first_line(exc)[:500]
        raise BodyError(f"column {name!r}: expected {kind}, but a value would change: {reason}") from exc
    if not _is_finite(found):
        raise BodyError(f"column {name!r}: expected numbers or null; JSON has no NaN and no infinity")
    return found


def _target(given: pa.DataType, kind: Type, name: str, *, nested: bool = False) -> pa.DataType | None:
    """What an Arrow type is read as, for values of a type; None: it can't be.

    Types whose values take no bytes of their own (null, empty structs and lists of fixed size 0) are refused: a few
    bytes would say any number of them. Dictionaries and views, whose values share bytes, are bounded by `_need_size`,
    which looks at columns alone, so they are refused inside of others.
    """
    if pa.types.is_null(given):
        raise BodyError(f"column {name!r}: Arrow's null type has no values; leave it out, or cast it to {kind}")
    if pa.types.is_dictionary(given) or pa.types.is_string_view(given):
        if nested:
            return None
        if pa.types.is_dictionary(given):
            inner = given.value_type
            is_plain = not (
                pa.types.is_nested(inner) or pa.types.is_dictionary(inner) or pa.types.is_string_view(inner)
            )
            return _target(inner, kind, name, nested=True) if is_plain else None
    match kind:
        case Struct():
            return _struct_target(given, kind, name)
        case Array():
            return _list_target(given, kind, name)
        case Enum():
            return _text_target(given)  # by label, as on the wire
    return _scalar_target(given, kind)


def _list_target(given: pa.DataType, kind: Array, name: str) -> pa.DataType | None:
    is_fixed = pa.types.is_fixed_size_list(given) and given.list_size > 0
    if not (pa.types.is_list(given) or pa.types.is_large_list(given) or is_fixed):
        return None
    item = _target(given.value_type, kind.item, name, nested=True)
    return None if item is None else pa.list_(item)


def _struct_target(given: pa.DataType, kind: Struct, name: str) -> pa.DataType | None:
    if not pa.types.is_struct(given) or not given.num_fields:
        return None
    fields: dict[str, pa.Field] = {}
    for field in (given.field(n) for n in range(given.num_fields)):
        known = kind.get(field.name)
        if known is None or field.name in fields:
            expected = "unknown attribute" if known is None else "expected once, attribute"
            raise BodyError(f"column {name!r}: {expected} {field.name[:200]!r}")
        target = _target(field.type, known.type, name, nested=True)
        if target is None:
            return None
        fields[field.name] = pa.field(field.name, target)
    return pa.struct(list(fields.values()))


def _scalar_target(given: pa.DataType, kind: Scalar) -> pa.DataType | None:
    whole = pa.uint64() if kind.name == "uint64" else pa.int64()
    match kind.kind:
        case "bool":
            return given if pa.types.is_boolean(given) else None
        case "int" if pa.types.is_integer(given):
            return given  # whether it is in range is for the validator
        case "int" if pa.types.is_floating(given) or pa.types.is_decimal(given):
            return whole
        case "float" if pa.types.is_float16(given):
            return pa.float32()
        case "float" if pa.types.is_floating(given) or pa.types.is_integer(given):
            return given
        case "time" if pa.types.is_timestamp(given) or pa.types.is_date(given):
            return _MOMENT
        case "time" | "string" | "char":
            return _text_target(given)
    return None


def _text_target(given: pa.DataType) -> pa.DataType | None:
    return pa.string() if _is_text(given) else None


def _is_text(given: pa.DataType) -> bool:
    return bool(pa.types.is_string(given) or pa.types.is_large_string(given) or pa.types.is_string_view(given))


def _is_finite(column: pa.Array) -> bool:
    if pa.types.is_floating(column.type):
        return bool(pc.all(pc.is_finite(column), skip_nulls=True).as_py() is not False)
    if pa.types.is_list(column.type):
        return _is_finite(column.flatten())
    if pa.types.is_struct(column.type):
        return all(map(_is_finite, column.flatten()))
    return True


def _first_line(exc: BaseException) -> str:
    return str(exc).partition("\n")[0]
