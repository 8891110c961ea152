"""Converts events from their JSON form to Arrow record batches with one fixed schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from tidegate.model import Schema, events, timestamps
from tidegate.model.types import Enum, Field, Scalar, Struct, Type

if TYPE_CHECKING:
    import pyarrow as pa

MORE = "_more"
"""The column with a JSON object of all values without a column: values of another type than in the schema and other
attributes, which an earlier version of the service may have written, and reserved keys such as `_violations`."""


class HistoryColumns:
    """The columns of a history: `_id`, `_time`, the attributes, and `_more`."""

    def __init__(self, schema: Schema, select: Sequence[str] | None) -> None:
        """`schema` is the one that the caller sees; `select` are the attributes to show, in order; None: all."""
        import pyarrow as pa

        from tidegate.model.arrow import write_schema

        fields = schema.root.fields
        if select is not None:
            fields = tuple(field for name in select for field in fields if field.name == name)
        self._fields = (Field("_time", Scalar("timestamp"), required=False), *fields)
        self._names = {"_id", *(field.name for field in self._fields)}
        attributes = write_schema(Struct(fields))
        named = [pa.field("_id", pa.string()), pa.field("_time", pa.timestamp("us", "UTC"))]
        self.arrow = pa.schema(
            [*named, *(field.with_nullable(True) for field in attributes), pa.field(MORE, pa.string())]
        )

    def batch(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Return events in the format `plain` as a record batch."""
        import pyarrow as pa

        more: list[dict[str, Any]] = [
            {name: value for name, value in row.items() if name not in self._names} for row in rows
        ]
        columns = [pa.array([_text(row.get("_id")) for row in rows], pa.string())]
        for field, arrow_field in zip(self._fields, list(self.arrow)[1:-1], strict=True):
            values = [self._value(row, field, rest) for row, rest in zip(rows, more, strict=True)]
            columns.append(pa.array(values, arrow_field.type))
        columns.append(pa.array([orjson.dumps(rest).decode() if rest else None for rest in more], pa.string()))
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)

    def _value(self, row: Mapping[str, Any], field: Field, rest: dict[str, Any]) -> Any:
        value = row.get(field.name)
        if value is None:
            return None
        if next(events.value_violations(value, field.type, field.name, partial=True), None) is not None:
            rest[field.name] = value
            return None
        return _arrow_value(value, field.type)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _arrow_value(value: Any, kind: Type) -> Any:
    """Return a valid value in the form that Arrow takes; times are microseconds."""
    if value is None:
        return None
    match kind.kind:
        case "time":
            return timestamps.from_text(value) if isinstance(value, str) else None
        case "float":
            return float(value)
        case "struct":
            assert isinstance(kind, Struct)
            return {field.name: _arrow_value(value.get(field.name), field.type) for field in kind}
        case "array":
            return [_arrow_value(item, kind.item) for item in value]  # type: ignore[union-attr]
        case "enum":
            assert isinstance(kind, Enum)
            return value if isinstance(value, str) else kind.labels[value]
    return value
