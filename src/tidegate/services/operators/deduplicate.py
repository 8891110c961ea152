"""`deduplicate`: drops events that were seen before."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.model import Schema
from tidegate.model.units import duration_text
from tidegate.services.findings import Spot
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.inference import need_event_time, single_valued
from tidegate.services.operators.settings import Settings, read_names, without_empty
from tidegate.services.operators.state_layout import StateLayout, keys_text


@dataclass(frozen=True)
class Deduplicate:
    """Keep the first of several events that agree on attributes, or on `_id` if no attributes are named."""

    by: tuple[str, ...] = ()
    within_s: float = 600.0
    """The largest distance in event time of two events that count as the same."""


def _read(spot: Spot) -> Deduplicate:
    if spot.value is None:
        return Deduplicate()
    settings = spot.entries(("by", "within"), "settings, such as {by: [vid], within: 10m}")
    by = read_names(settings.get("by"))
    return Deduplicate(by, settings["within"].seconds()) if "within" in settings else Deduplicate(by)


def _write(operator: Deduplicate) -> Settings | None:
    within = duration_text(operator.within_s) if operator.within_s != Deduplicate().within_s else None
    return without_empty(by=list(operator.by), within=within) or None


def _infer(operator: Deduplicate, inputs: OperatorInputs, spot: Spot) -> Schema:
    single_valued(operator.by, inputs.schema, spot, "by")
    need_event_time(inputs.schema, spot, "to tell how far apart two events are")
    return inputs.schema


def _state(operator: Deduplicate, inputs: OperatorInputs) -> StateLayout:
    return StateLayout("deduplicate", {"by": keys_text(operator.by, inputs.schema) or "id"})


DECLARATION = Declaration(
    "deduplicate", Deduplicate, "deduplicate: {by: [vid]}", _read, _write, _infer, state=_state, has_bare_form=True
)
