"""Schemas from their form in a document, every bad type noted."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.errors import SchemaError, did_you_mean
from tidegate.model import Schema
from tidegate.model.types import Scalar, parse_field_type
from tidegate.services.findings import Spot

EMPTY = Schema({})


def read_schema(found: Mapping[str, Spot], spot: Spot) -> Schema:
    """Read what the keys schema, event_time, constraints and terms hold; `spot` is blamed where a schema misses."""
    before = len(spot.findings.problems)
    attributes = found.get("schema", spot)
    _note_types(attributes, "a map of attributes, such as {speed: float64}")
    constraints = read_texts(found.get("constraints"), "the rest of a filter, such as '> 0'")
    terms = {
        name: read_texts(each, "a shape, such as 'TRAPEZOID(0, 0, 20, 35)'")
        for name, each in (found["terms"].pairs("terms by attribute") if "terms" in found else {}).items()
    }
    time = found["event_time"].text("the name of a timestamp attribute") if "event_time" in found else None
    if len(spot.findings.problems) > before:
        return EMPTY
    try:
        schema = Schema(attributes.value, constraints=constraints, terms=terms)
    except SchemaError as error:
        attributes.blame(str(error))
        return EMPTY
    return schema if time is None else _timed(schema, time, found["event_time"])


def read_texts(spot: Spot | None, expected: str) -> dict[str, str]:
    """Read texts by attribute."""
    if spot is None:
        return {}
    return {name: each.text(expected) for name, each in spot.pairs("texts by attribute").items()}


def _note_types(spot: Spot, expected: str) -> None:
    """Note every type that can't be understood, one by one."""
    for each in spot.pairs(expected).values():
        if isinstance(each.value, Mapping):
            _note_types(each, "a map of attributes")
            continue
        try:
            parse_field_type(each.value)
        except SchemaError as error:
            each.blame(str(error))


def _timed(schema: Schema, time: str, spot: Spot) -> Schema:
    found = schema.root.get(time)
    moments = [field.name for field in schema.root if field.type == Scalar("timestamp")]
    if found is None or time not in moments:
        known = f"; expected one of {', '.join(moments)}" if moments else "; the schema has none"
        spot.refuse("the name of a timestamp attribute", did_you_mean(time, moments) or known)
        return schema
    return Schema(schema.root, constraints=schema.constraints, terms=schema.terms, event_time=time)
