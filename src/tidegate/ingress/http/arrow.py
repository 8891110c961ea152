"""Converts the rows of an Arrow stream to records.

A stream is untrusted, and checked before any value is used: first the size after decoding (`arrow_bounds`), then the
types of its columns against the schema, then each batch in full (`validate`), because Arrow itself trusts the offsets,
lengths and indices that it reads.
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
from tidegate.ingress.http.arrow_bounds import ArrowBounds, check_stream
from tidegate.model import Schema, timestamps
from tidegate.model.schema import RESERVED
from tidegate.model.types import Array, Enum, Scalar, Struct, Type

_TIMESTAMP = pa.timestamp("us", "UTC")


class _Column(NamedTuple):
    """A column of a stream, its type in the schema, and the Arrow type it is cast to."""

    name: str
    kind: Type
    target: pa.DataType


def rows(data: bytes, schema: Schema, bounds: ArrowBounds) -> list[bytes]:
    """Return each row of an IPC stream as a JSON object without nulls.

    Raises `BodyError` if the stream is damaged, compressed or too large, if a column is unknown or has another type
    than in the schema, and if a required column is missing. Does not validate values: the validator does.
    """
    try:
        check_stream(data, bounds)
        with pa.ipc.open_stream(data) as reader:
            columns = _columns(reader.schema, schema)
            return list(_bounded(_batches(reader, columns, bounds), bounds.decoded_bytes))
    except (pa.ArrowException, OSError, struct.error, UnicodeDecodeError) as exc:
        raise BodyError(f"expected an Arrow IPC stream: {_first_line(exc)[:500]}") from exc


def _bounded(records: Iterator[bytes], max_bytes: int) -> Iterator[bytes]:
    size_bytes = 0
    for record in records:
        size_bytes += len(record)
        if size_bytes > max_bytes:
            raise BodyTooLarge(f"expected an Arrow body of at most {max_bytes:,} bytes as JSON: send several")
        yield record


def _batches(reader: pa.RecordBatchReader, columns: list[_Column], bounds: ArrowBounds) -> Iterator[bytes]:
    for batch in reader:
        batch.validate(full=True)
        for column, values in zip(columns, batch.columns, strict=True):
            _need_size(values, column.name, bounds.decoded_bytes)
        yield from _records(batch, columns)


def _columns(arrow_schema: pa.Schema, schema: Schema) -> list[_Column]:
    """Return the columns of a stream. Raises `BodyError` if they don't fit the schema."""
    kinds: dict[str, Type] = {**RESERVED, **{field.name: field.type for field in schema.root}}
    columns: dict[str, _Column] = {}
    for field in arrow_schema:
        name = field.name
        kind = kinds.get(name)
        if kind is None:
            names = [attribute.name for attribute in schema.root]
            raise BodyError(f"column {name[:200]!r}: unknown attribute{did_you_mean(name[:200], sorted(names))}")
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


def _need_size(column: pa.Array, name: str, max_bytes: int) -> None:
    """Refuse a column whose values share bytes in memory, and would be too large as JSON."""
    if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
        lengths = _lengths(column.dictionary)
        used = column.indices.drop_null().to_numpy(zero_copy_only=False)
        size_bytes = int(lengths[used].sum()) if len(used) else 0
    elif pa.types.is_string_view(column.type):
        size_bytes = int(_lengths(column).sum())
    else:
        return
    if size_bytes > max_bytes:
        raise BodyTooLarge(f"column {name!r}: its texts take {size_bytes:,} bytes, and {max_bytes:,} are allowed")


def _lengths(texts: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the length of each text in bytes; 0 for null."""
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_string_view(texts.type):  # a view is 16 bytes, the first 4 of them its length
        views = np.frombuffer(texts.buffers()[1], "<i4")[: 4 * (texts.offset + len(texts))]
        lengths = views[4 * texts.offset :: 4]
    else:
        lengths = pc.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False)
    return np.where(valid, lengths, 0).astype(np.int64)


def _records(batch: pa.RecordBatch, columns: list[_Column]) -> Iterator[bytes]:
    names = [column.name for column in columns]
    try:
        values = [_values(_cast(values, column)) for values, column in zip(batch.columns, columns, strict=True)]
        for row in zip(*values, strict=True):
            event = {name: value for name, value in zip(names, row, strict=True) if value is not None}
            yield orjson.dumps(event, _json_value, orjson.OPT_PASSTHROUGH_DATETIME)
    except (OverflowError, ValueError) as exc:
        raise BodyError(f"expected times of the years 1 to 9999: {exc}") from exc
    except TypeError as exc:  # from orjson: a string that is not valid UTF-8
        raise BodyError(f"a row that JSON can't say: {exc}") from exc


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column as JSON values; times inside of structs and lists stay datetimes."""
    if column.type == _TIMESTAMP:
        _need_writable(column)  # Arrow formats years with 16 bits: 67562 would become 2026
        # Arrow formats the whole column in a third of the time of formatting each value.
        column = pc.strftime(column.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%SZ")
    elif not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        numbers: list[Any] = column.to_numpy().tolist()
        return numbers
    values: list[Any] = column.to_pylist()
    return values


def _need_writable(column: pa.Array) -> None:
    ends = pc.min_max(column.cast(pa.int64()))
    for micros in (ends["min"].as_py(), ends["max"].as_py()):
        if micros is not None and not timestamps.is_writable(micros):
            raise OverflowError(f"{micros} microseconds since 1970 are not")


def _json_value(value: Any) -> str:
    if isinstance(value, datetime):
        return timestamps.to_text(timestamps.from_datetime(value))
    raise TypeError(f"expected a value that JSON has, not {value!r:.60}")


def _cast(values: pa.Array, column: _Column) -> pa.Array:
    """Cast to the target type, whose Python values are those of JSON. Raises `BodyError` if a value would change."""
    name, kind, target = column
    try:
        cast = values if target == values.type else values.cast(target)
    except pa.ArrowException as exc:
        reason = _first_line(exc)[:500]
        raise BodyError(f"column {name!r}: expected {kind}, but a value would change: {reason}") from exc
    if not _is_finite(cast):
        raise BodyError(f"column {name!r}: expected numbers or null; JSON has no NaN and no infinity")
    return cast


def _target(arrow_type: pa.DataType, kind: Type, name: str, *, nested: bool = False) -> pa.DataType | None:
    """Return the Arrow type that values of an Arrow type are cast to; None: they don't fit `kind`.

    Types whose values take no bytes (null, empty structs, lists of fixed size 0) are refused: a few bytes could encode
    any number of them. The values of dictionaries and views share bytes. `_need_size` limits them for whole columns
    only, so they are refused inside of structs and lists.
    """
    if pa.types.is_null(arrow_type):
        raise BodyError(f"column {name!r}: Arrow's null type has no values; leave it out, or cast it to {kind}")
    if pa.types.is_dictionary(arrow_type) or pa.types.is_string_view(arrow_type):
        if nested:
            return None
        if pa.types.is_dictionary(arrow_type):
            inner = arrow_type.value_type
            is_plain = not (
                pa.types.is_nested(inner) or pa.types.is_dictionary(inner) or pa.types.is_string_view(inner)
            )
            return _target(inner, kind, name, nested=True) if is_plain else None
    match kind:
        case Struct():
            return _struct_target(arrow_type, kind, name)
        case Array():
            return _list_target(arrow_type, kind, name)
        case Enum():
            return _text_target(arrow_type)  # by label, as on the wire
    return _scalar_target(arrow_type, kind)


def _list_target(arrow_type: pa.DataType, kind: Array, name: str) -> pa.DataType | None:
    is_fixed = pa.types.is_fixed_size_list(arrow_type) and arrow_type.list_size > 0
    if not (pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type) or is_fixed):
        return None
    item = _target(arrow_type.value_type, kind.item, name, nested=True)
    return None if item is None else pa.list_(item)


def _struct_target(arrow_type: pa.DataType, kind: Struct, name: str) -> pa.DataType | None:
    if not pa.types.is_struct(arrow_type) or not arrow_type.num_fields:
        return None
    fields: dict[str, pa.Field] = {}
    for field in (arrow_type.field(n) for n in range(arrow_type.num_fields)):
        known = kind.get(field.name)
        if known is None or field.name in fields:
            expected = "unknown attribute" if known is None else "expected once, attribute"
            raise BodyError(f"column {name!r}: {expected} {field.name[:200]!r}")
        target = _target(field.type, known.type, name, nested=True)
        if target is None:
            return None
        fields[field.name] = pa.field(field.name, target)
    return pa.struct(list(fields.values()))


def _scalar_target(arrow_type: pa.DataType, kind: Scalar) -> pa.DataType | None:
    whole = pa.uint64() if kind.name == "uint64" else pa.int64()
    match kind.kind:
        case "bool":
            return arrow_type if pa.types.is_boolean(arrow_type) else None
        case "int" if pa.types.is_integer(arrow_type):
            return arrow_type  # the validator checks the range
        case "int" if pa.types.is_floating(arrow_type) or pa.types.is_decimal(arrow_type):
            return whole
        case "float" if pa.types.is_float16(arrow_type):
            return pa.float32()
        case "float" if pa.types.is_floating(arrow_type) or pa.types.is_integer(arrow_type):
            return arrow_type
        case "time" if pa.types.is_timestamp(arrow_type) or pa.types.is_date(arrow_type):
            return _TIMESTAMP
        case "time" | "string" | "char":
            return _text_target(arrow_type)
    return None


def _text_target(arrow_type: pa.DataType) -> pa.DataType | None:
    return pa.string() if _is_text(arrow_type) else None


def _is_text(arrow_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type)
    )


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
