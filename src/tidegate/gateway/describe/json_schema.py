"""The building blocks of the API's JSON schemas."""

from __future__ import annotations

from typing import Any

from tidegate.registry.links import MAX_BROKER_NAME
from tidegate.subscriptions.rules import MAX_INTERVAL_S, MIN_INTERVAL_S

Schema = dict[str, Any]
DURATION = r"^\s*[0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)\s*$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
BROKER = rf"^[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_BROKER_NAME - 1}}}$"
SERVICE = f"{NAME[:-1]}(@{BROKER[1:-1]})?$"
"""A service name, followed by `@` and the broker for a service of another broker."""


def ref(name: str) -> Schema:
    """Return a reference to a schema of the document by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(of: Schema, **more: Any) -> Schema:
    """Return an array schema."""
    return {"type": "array", "items": of, **more}


def record(properties: Schema, *, optional: tuple[str, ...] = (), closed: bool = False, **more: Any) -> Schema:
    """Return an object schema. All properties but the optional ones are required; `closed` allows no others."""
    schema: Schema = {"type": "object", "properties": properties, **more}
    required = [name for name in properties if name not in optional]
    if required:
        schema["required"] = required
    return schema | ({"additionalProperties": False} if closed else {})


TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
MOMENT: Schema = {"type": "string", "format": "date-time"}
ANY_OBJECT: Schema = {"type": "object"}
CURSOR: Schema = {"type": "string", "description": "An opaque position in a stream."}


def or_null(schema: Schema) -> Schema:
    """Return a schema that also allows null."""
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


LENGTH: Schema = {
    "anyOf": [
        {"type": "string", "pattern": DURATION},
        {"type": "number", "minimum": MIN_INTERVAL_S, "maximum": MAX_INTERVAL_S},
        {"type": "null"},
    ],
    "description": "A length of time such as 500ms or 30s, or a number of seconds; from 10ms to a day.",
}


def optional_record(properties: Schema, **more: Any) -> Schema:
    """Return an object schema in which every property is optional and no other is allowed."""
    return record(properties, optional=tuple(properties), closed=True, **more)


COUNTS: Schema = {"type": "object", "additionalProperties": WHOLE}
NUMBER: Schema = {"type": "number"}
FIGURE: Schema = {"type": "number", "minimum": 0}
ERRORS: Schema = array({"type": "object", "properties": {"pointer": TEXT, "detail": TEXT}})
"""The problems of a request, each with its place."""
