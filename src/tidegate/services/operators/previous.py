"""`previous`: adds attributes of an earlier event of the same key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidegate.model import Field, Schema
from tidegate.services.findings import Spot
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.inference import add_field, attribute, derived_schema, single_valued
from tidegate.services.operators.settings import Settings, read_names, required_setting, without_empty
from tidegate.services.operators.state_layout import StateLayout, event_parts, keys_text

_MAX_BACK = 10_000
"""The largest `back`: the state of each key holds that number of events."""


@dataclass(frozen=True)
class Previous:
    """Add attributes of an earlier event of the same key. They are null for the first events of a key."""

    by: tuple[str, ...]
    attributes: Mapping[str, str]
    """The new attributes, each with the attribute of the earlier event whose value it has."""
    back: int = 1
    """How many events earlier."""


def _read(spot: Spot) -> Previous:
    settings = spot.entries(("by", "of", "back"), "attributes, such as {by: [vid], of: {last_speed: speed}}")
    expected = "new attributes with those of the earlier event, such as {last_speed: speed}"
    pairs = required_setting(settings, "of", spot).pairs(expected)
    return Previous(
        read_names(settings.get("by")),
        MappingProxyType({name: source_spot.text("the name of an attribute") for name, source_spot in pairs.items()}),
        settings["back"].whole(f"a number of events from 1 to {_MAX_BACK}", 1, _MAX_BACK) if "back" in settings else 1,
    )


def _write(operator: Previous) -> Settings:
    return {
        **without_empty(by=list(operator.by)),
        "of": dict(operator.attributes),
        **without_empty(back=operator.back if operator.back != 1 else None),
    }


def _infer(operator: Previous, inputs: OperatorInputs, spot: Spot) -> Schema | None:
    schema = inputs.schema
    single_valued(operator.by, schema, spot, "by")
    if not operator.attributes:
        spot.at("of", None).report("expected at least one attribute")
    if not 1 <= operator.back <= _MAX_BACK:
        spot.at("back", None).report(f"expected a number of events from 1 to {_MAX_BACK}, not {operator.back}")
    fields = {field.name: field for field in schema.root}
    for name, source in operator.attributes.items():
        at = spot.at("of", None).at(name, None)
        field = attribute(source, schema, at)
        if field is not None:
            add_field(Field(name, field.type, required=False), fields, at)
    return derived_schema(spot, fields.values(), schema.event_time, [(schema, {field.name for field in schema.root})])


def _state(operator: Previous, inputs: OperatorInputs) -> StateLayout:
    return StateLayout("previous", {"by": keys_text(operator.by, inputs.schema)}, event_parts(inputs.schema))


DECLARATION = Declaration(
    "previous", Previous, "previous: {by: [vid], of: {last_speed: speed}}", _read, _write, _infer, state=_state
)
