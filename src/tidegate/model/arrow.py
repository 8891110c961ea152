"""Conversion of schemas and events from and to Arrow.

If an Arrow type does not say everything (char, enum, bounded array, optional attribute inside a struct), the field's
metadata has our notation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tidegate.errors import EventError, SchemaError, Violation
from tidegate.model import events
from tidegate.model.schema import RESERVED, Schema
from tidegate.model.types import Array, Enum, Field, Scalar, Struct, Type, notation, parse_field_type

_METADATA = b"tidegate"

_SCALARS: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "char": pa.string(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_FROM_ARROW = {kind: name for name, kind in _SCALARS.items() if name != "char"}


def write_schema(root: Struct) -> pa.Schema:
    """Return a struct as an Arrow schema."""
    return pa.schema([_write_field(field) for field in root])


def _write_field(field: Field) -> pa.Field:
    return pa.field(
        field.name, write_type(field.type), nullable=not field.required, metadata={_METADATA: notation(field).encode()}
    )


def write_type(kind: Type) -> pa.DataType:
    """Return the Arrow type for a type: strings for enums, lists for arrays."""
    match kind:
        case Scalar():
            return _SCALARS[kind.name]
        case Enum():
            return pa.string()
        case Array():
            return pa.list_(write_type(kind.item))
        case Struct():
            return pa.struct([_write_field(field) for field in kind])


def read_schema(schema: pa.Schema) -> Struct:
    """Read an Arrow schema, preferring our metadata; reserved keys are left out. Raises `SchemaError`."""
    return Struct(tuple(_read_field(field, field.name) for field in schema if not field.name.startswith("_")))


def _read_field(field: pa.Field, path: str) -> Field:
    written = (field.metadata or {}).get(_METADATA)
    if written is not None:
        kind, required = parse_field_type(written.decode(), path)
        if write_type(kind).equals(field.type):
            return Field(field.name, kind, required)
    return Field(field.name, _read_type(field.type, path), required=not field.nullable)


def _read_type(kind: pa.DataType, path: str) -> Type:
    if kind in _FROM_ARROW:
        return Scalar(_FROM_ARROW[kind])
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return Scalar("string")
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return Scalar("timestamp")
    if pa.types.is_float16(kind):
        return Scalar("float32")
    if pa.types.is_dictionary(kind):
        return _read_type(kind.value_type, path)
    if pa.types.is_decimal(kind) and kind.scale == 0 and kind.precision <= 18:  # int64 holds every such number
        return Scalar("int64")
    if pa.types.is_struct(kind):
        return Struct(tuple(_read_field(kind.field(i), f"{path}.{kind.field(i).name}") for i in range(kind.num_fields)))
    if pa.types.is_fixed_size_list(kind):
        return Array(_read_type(kind.value_type, f"{path}[]"), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return Array(_read_type(kind.value_type, f"{path}[]"))
    raise SchemaError(f"Arrow's {kind} has no counterpart; expected a type of the schema language", path)


def to_batch(rows: Iterable[Mapping[str, Any]], schema: Schema) -> pa.RecordBatch:
    """Return events as a record batch, with the reserved keys that occur.

    A missing value becomes null. Raises `EventError`, with event and path, for a value of another type or an attribute
    that the schema does not have.
    """
    rows = list(rows)
    for n, row in enumerate(rows):
        violations = list(events.violations(row, schema, partial=True))
        if violations:
            raise EventError(Violation(f"event {n}, {violation.path}", violation.message) for violation in violations)
    fields = [_write_field(field) for field in schema.root]
    fields += [
        _write_field(Field(name, kind, required=False))
        for name, kind in RESERVED.items()
        if any(name in row for row in rows)
    ]
    kinds = [field.type for field in schema.root] + [RESERVED[f.name] for f in fields[len(schema.root.fields) :]]
    columns = []
    for field, kind in zip(fields, kinds, strict=True):
        values = [events.to_python(row.get(field.name), kind) for row in rows]
        columns.append(pa.array(values, type=field.type))
    nullable = [field.with_nullable(True) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(nullable))


def to_events(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the events of a record batch as dicts, without null attributes."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]
