"""Reads schemas from documents, and reports every bad type."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.errors import SchemaError, did_you_mean
from tidegate.model import Schema
from tidegate.model.types import Scalar, parse_field_type
from tidegate.services.findings import Spot

EMPTY = Schema({})


def read_schema(entries: Mapping[str, Spot], spot: Spot) -> Schema:
    """Read a schema from the keys schema, event_time, constraints and terms. A missing schema is reported at `spot`.

    Returns an empty schema if there are problems.
    """
    before = len(spot.findings.problems)
    attributes = entries.get("schema", spot)
    _note_types(attributes, "a map of attributes, such as {speed: float64}")
    constraints = read_texts(entries.get("constraints"), "the rest of a filter, such as '> 0'")
    terms = {
        name: read_texts(terms_spot, "a shape, such as 'TRAPEZOID(0, 0, 20, 35)'")
        for name, terms_spot in (entries["terms"].pairs("terms by attribute") if "terms" in entries else {}).items()
    }
    time = entries["event_time"].text("the name of a timestamp attribute") if "event_time" in entries else None
    if len(spot.findings.problems) > before:
        return EMPTY
    try:
        schema = Schema(attributes.value, constraints=constraints, terms=terms)
    except SchemaError as error:
        attributes.report(str(error))
        return EMPTY
    return schema if time is None else _with_event_time(schema, time, entries["event_time"])


def read_texts(spot: Spot | None, expected: str) -> dict[str, str]:
    """Return texts by attribute; empty without a spot."""
    if spot is None:
        return {}
    return {name: text_spot.text(expected) for name, text_spot in spot.pairs("texts by attribute").items()}


def _note_types(spot: Spot, expected: str) -> None:
    """Report every type that can't be parsed."""
    for type_spot in spot.pairs(expected).values():
        if isinstance(type_spot.value, Mapping):
            _note_types(type_spot, "a map of attributes")
            continue
        try:
            parse_field_type(type_spot.value)
        except SchemaError as error:
            type_spot.report(str(error))


def _with_event_time(schema: Schema, time: str, spot: Spot) -> Schema:
    timestamps = [field.name for field in schema.root if field.type == Scalar("timestamp")]
    if time not in timestamps:
        options = f"; expected one of {', '.join(timestamps)}" if timestamps else "; the schema has none"
        spot.refuse("the name of a timestamp attribute", did_you_mean(time, timestamps) or options)
        return schema
    return Schema(schema.root, constraints=schema.constraints, terms=schema.terms, event_time=time)
