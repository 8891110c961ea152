"""`lookup`: adds the attributes of another stream's latest event with the same key."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.model import Field, Schema
from tidegate.services.findings import Spot
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.filter import FilterOperator, read_filter, write_filter
from tidegate.services.operators.inference import (
    add_field,
    attribute,
    comparable,
    derived_schema,
    joined_name,
    note_filter,
    single_valued,
)
from tidegate.services.operators.settings import (
    Settings,
    read_names,
    required_setting,
    without_empty,
    write_names,
)
from tidegate.services.operators.state_layout import StateLayout, event_parts, keys_text


@dataclass(frozen=True)
class Lookup:
    """Add the attributes of another stream's latest event that agrees on attributes.

    An attribute whose name is taken is called `<stream>_<attribute>`. The attributes of `on` occur once.
    """

    stream: str
    on: tuple[str, ...]
    required: bool = False
    """True: drop events for which there is no such event; False: their new attributes are null."""
    filter: FilterOperator | None = None
    """Which events of the other stream count; None: all."""


def _read(spot: Spot) -> Lookup:
    settings = spot.entries(("from", "on", "required", "filter"), "a lookup, such as {from: weather, on: cid}")
    return Lookup(
        required_setting(settings, "from", spot).text("the name of a stream or service"),
        read_names(required_setting(settings, "on", spot)),
        "required" in settings and settings["required"].truth(),
        read_filter(settings["filter"]) if "filter" in settings else None,
    )


def _write(operator: Lookup) -> Settings:
    return {
        "from": operator.stream,
        **without_empty(
            on=write_names(operator.on),
            required=operator.required or None,
            filter=None if operator.filter is None else write_filter(operator.filter),
        ),
    }


def _infer(operator: Lookup, inputs: OperatorInputs, spot: Spot) -> Schema | None:
    schema, table = inputs.schema, inputs.streams.get(operator.stream)
    if not operator.on:
        spot.at("on", None).report("expected at least one attribute that both streams have")
    keys = single_valued(operator.on, schema, spot, "on")
    if table is None:  # the check of the service reports it
        return None
    if operator.filter is not None:
        note_filter(operator.filter.text, operator.filter.params, table, spot.at("filter", None))
    for key in keys:
        theirs = attribute(key.name, table, spot.at("on", None))
        if theirs is not None and not comparable(key.type, theirs.type):
            kinds = f"{key.name} is {key.type} here and {theirs.type} in {operator.stream}"
            spot.at("on", None).report(f"expected attributes of the same type: {kinds}")
    fields = {field.name: field for field in schema.root}
    unchanged: set[str] = set()
    for field in table.root:
        if field.name in operator.on:
            continue
        is_taken = field.name in fields
        name = joined_name(operator.stream, field.name) if is_taken else field.name
        if operator.required and not is_taken:
            unchanged.add(name)
        add_field(Field(name, field.type, field.required and operator.required), fields, spot)
    sources = [(schema, {field.name for field in schema.root}), (table, unchanged)]
    return derived_schema(spot, fields.values(), schema.event_time, sources)


def _state(operator: Lookup, inputs: OperatorInputs) -> StateLayout:
    fixed = {"from": operator.stream, "on": keys_text(operator.on, inputs.schema)}
    return StateLayout("lookup", fixed, event_parts(inputs.streams[operator.stream]))


DECLARATION = Declaration("lookup", Lookup, "lookup: {from: weather, on: cid}", _read, _write, _infer, state=_state)
