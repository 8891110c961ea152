"""Conversion of schemas from and to JSON Schema 2020-12.

What JSON Schema can't express (int32 and int64, char) is in `x-tidegate`, a keyword that other readers ignore. For a
foreign document the widest type that fits is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.errors import SchemaError
from tidegate.model.types import INTEGER_RANGES, Array, Enum, Field, Scalar, Struct, Type, parse_type

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MAX_DEPTH = 64


def write(root: Struct) -> dict[str, Any]:
    """Return the JSON Schema of an event's attributes; reserved keys are allowed in addition."""
    return {"$schema": _DIALECT, **_write(root)}


def _write(kind: Type) -> dict[str, Any]:
    match kind:
        case Struct():
            return {
                "type": "object",
                "properties": {f.name: _write_field(f) for f in kind},
                "required": [f.name for f in kind if f.required],
            }
        case Array():
            bound = {} if kind.bound is None else {"maxItems": kind.bound}
            return {"type": "array", "items": _write(kind.item), **bound}
        case Enum():
            return {"enum": list(kind.labels)}
        case Scalar():
            return {**_SCALARS[kind.kind], **_range(kind), "x-tidegate": kind.name}


_SCALARS: dict[str, dict[str, Any]] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "char": {"type": "string", "minLength": 1, "maxLength": 1},
    "string": {"type": "string"},
    "time": {"type": "string", "format": "date-time"},
}


def _range(kind: Scalar) -> dict[str, int]:
    if kind.name not in INTEGER_RANGES:
        return {}
    low, high = INTEGER_RANGES[kind.name]
    return {"minimum": low, "maximum": high}


def _write_field(field: Field) -> dict[str, Any]:
    written = _write(field.type)
    if field.required:
        return written
    if "enum" in written:
        return {"enum": [*written["enum"], None]}
    return {**written, "type": [written["type"], "null"]}


def read(document: Mapping[str, Any]) -> Struct:
    """Return the attributes of an object's JSON Schema; unknown keywords are ignored. Raises `SchemaError`."""
    kind, _ = _read(document, "", 0)
    if not isinstance(kind, Struct):
        raise SchemaError(f"expected a JSON Schema of an object, not of type {document.get('type')!r}")
    return Struct(tuple(f for f in kind if not f.name.startswith("_")))


def _read(document: Any, path: str, depth: int) -> tuple[Type, bool]:
    """Return the type, and whether null is allowed."""
    if not isinstance(document, Mapping):
        raise SchemaError(f"expected a JSON Schema (an object), not {document!r}", path)
    if depth > _MAX_DEPTH:
        raise SchemaError(f"a schema may nest {_MAX_DEPTH} levels deep at most", path)
    if "enum" in document:
        return _read_enum(document["enum"], path)
    names, nullable = _type_names(document, path)
    if isinstance(document.get("x-tidegate"), str):
        return parse_type(document["x-tidegate"], path), nullable
    match names:
        case ["object"]:
            return _read_struct(document, path, depth), nullable
        case ["array"]:
            item, _ = _read(document.get("items", {}), f"{path}[]", depth + 1)
            return Array(item, document.get("maxItems")), nullable
        case ["boolean"]:
            return Scalar("bool"), nullable
        case ["integer"]:
            return _integer(document), nullable
        case ["number"] | ["integer", "number"] | ["number", "integer"]:
            return Scalar("float64"), nullable
        case ["string"]:
            timed = document.get("format") in ("date-time", "date")
            single = document.get("minLength") == document.get("maxLength") == 1
            return Scalar("timestamp" if timed else "char" if single else "string"), nullable
    raise SchemaError(f"expected one type that a stream can carry, not {document.get('type')!r}", path)


def _type_names(document: Mapping[str, Any], path: str) -> tuple[list[str], bool]:
    declared = document.get("type", "object" if "properties" in document else None)
    names = [declared] if isinstance(declared, str) else list(declared) if isinstance(declared, Sequence) else []
    if not names:
        raise SchemaError("expected a JSON Schema with a type", path)
    return [name for name in names if name != "null"], "null" in names


def _read_enum(values: Any, path: str) -> tuple[Type, bool]:
    labels = [v for v in values if v is not None] if isinstance(values, list) else []
    if not labels or not all(isinstance(v, str) for v in labels):
        raise SchemaError(f"expected an enum of strings, not {values!r}", path)
    return Enum(*labels), None in values


def _read_struct(document: Mapping[str, Any], path: str, depth: int) -> Struct:
    required, properties = document.get("required", []), document.get("properties", {})
    if not isinstance(required, list) or not isinstance(properties, Mapping):
        raise SchemaError("expected properties as an object and required as a list of names", path)
    fields = []
    for name, property_ in properties.items():
        kind, nullable = _read(property_, f"{path}.{name}" if path else name, depth + 1)
        fields.append(Field(name, kind, required=name in required and not nullable))
    return Struct(tuple(fields))


def _integer(document: Mapping[str, Any]) -> Scalar:
    """Return the integer type with exactly this range, else the widest one that fits."""
    low, high = document.get("minimum"), document.get("maximum")
    for name, limits in INTEGER_RANGES.items():
        if (low, high) == limits:
            return Scalar(name)
    unsigned = isinstance(low, int) and low >= 0
    return Scalar("uint64" if unsigned and isinstance(high, int) and high >= 2**63 else "int64")
