"""The rows of an Arrow stream as records."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BodyError, did_you_mean
from tidegate.model import Schema, timestamps
from tidegate.model.schema import RESERVED
from tidegate.model.types import Array, Enum, Scalar, Struct, Type

_MOMENT = pa.timestamp("us", "UTC")


def rows(data: bytes, schema: Schema) -> list[bytes]:
    """Read an IPC stream and write each row as a JSON object; a null is left out.

    A column that the schema does not have, lacks, or has as another type is a
    `BodyError`; whether values fit is for the validator.
    """
    try:
        with pa.ipc.open_stream(data) as reader:
            kinds = _kinds(reader.schema, schema)
            return [row for batch in reader for row in _records(batch, kinds)]
    except (pa.ArrowException, OSError) as exc:
        raise BodyError(f"expected an Arrow IPC stream: {_first_line(exc)}") from exc


def _kinds(given: pa.Schema, schema: Schema) -> dict[str, Type]:
    """The type of every column; the columns are those of the schema."""
    kinds: dict[str, Type] = {field.name: field.type for field in schema.root}
    for name in given.names:
        if name not in kinds and name not in RESERVED:
            raise BodyError(f"column {name!r}: unknown attribute{did_you_mean(name, sorted(kinds))}")
        if given.names.count(name) > 1:
            raise BodyError(f"column {name!r}: expected it once")
    missing = [field.name for field in schema.root if field.required and field.name not in given.names]
    if missing:
        raise BodyError(f"expected columns {', '.join(map(repr, missing))} too, beside {', '.join(given.names)}")
    return {name: kinds.get(name) or RESERVED[name] for name in given.names}


def _records(batch: pa.RecordBatch, kinds: dict[str, Type]) -> Iterator[bytes]:
    names = batch.schema.names
    try:
        columns = [_values(_cast(column, kinds[name], name)) for name, column in zip(names, batch.columns, strict=True)]
        for row in zip(*columns, strict=True):
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


def _cast(column: pa.Array, kind: Type, name: str) -> pa.Array:
    """The column as a type whose Python values are the wire's; nothing may be lost by it."""
    target = _target(column.type, kind)
    if target is None:
        raise BodyError(f"column {name!r}: expected {kind}, not Arrow's {column.type}")
    try:
        found = column if target == column.type else column.cast(target)
    except pa.ArrowException as exc:
        raise BodyError(f"column {name!r}: expected {kind}, but a value would change: {_first_line(exc)}") from exc
    if not _is_finite(found):
        raise BodyError(f"column {name!r}: expected numbers or null; JSON has no NaN and no infinity")
    return found


def _target(given: pa.DataType, kind: Type) -> pa.DataType | None:
    """What an Arrow type is read as, for values of a type; None: it can't be."""
    if pa.types.is_null(given):
        return given
    if pa.types.is_dictionary(given):
        return _target(given.value_type, kind)
    match kind:
        case Struct():
            return _struct_target(given, kind)
        case Array():
            if not (pa.types.is_list(given) or pa.types.is_large_list(given) or pa.types.is_fixed_size_list(given)):
                return None
            item = _target(given.value_type, kind.item)
            return None if item is None else pa.list_(item)
        case Enum():
            return _text_target(given)  # by label, as on the wire
    return _scalar_target(given, kind)


def _struct_target(given: pa.DataType, kind: Struct) -> pa.DataType | None:
    """Attributes that the schema does not have stay, for the validator to name."""
    if not pa.types.is_struct(given):
        return None
    fields = []
    for field in (given.field(n) for n in range(given.num_fields)):
        known = kind.get(field.name)
        target = field.type if known is None else _target(field.type, known.type)
        if target is None:
            return None
        fields.append(pa.field(field.name, target))
    return pa.struct(fields)


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
    is_text = pa.types.is_string(given) or pa.types.is_large_string(given) or pa.types.is_string_view(given)
    return pa.string() if is_text else None


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
