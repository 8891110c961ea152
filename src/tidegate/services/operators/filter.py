"""`filter`: keeps the events that match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.model import Schema
from tidegate.services.findings import Spot
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.inference import note_filter
from tidegate.services.operators.settings import required_setting


@dataclass(frozen=True)
class FilterOperator:
    """Keep the events that match a text of the filter language."""

    text: str
    params: tuple[str, ...] = ()
    """Values of `%0`, `%1`, ..."""


def read_filter(spot: Spot) -> FilterOperator:
    """Read a filter: its text, or `{where: text, params: [...]}`."""
    if not isinstance(spot.value, Mapping):
        return FilterOperator(spot.text("the text of a filter, such as 'speed > 60'"))
    settings = spot.entries(("where", "params"), "a filter")
    params = settings["params"].items("a list of values") if "params" in settings else []
    text = required_setting(settings, "where", spot).text("the text of a filter")
    return FilterOperator(text, tuple(map(_read_param, params)))


def _read_param(spot: Spot) -> str:
    if not isinstance(spot.value, str | int | float):
        spot.refuse("text, a number or a truth value")
    return str(spot.value).lower() if isinstance(spot.value, bool) else str(spot.value)


def write_filter(operator: FilterOperator) -> Any:
    """Return a filter in the form that `read_filter` takes."""
    return {"where": operator.text, "params": list(operator.params)} if operator.params else operator.text


def _infer(operator: FilterOperator, inputs: OperatorInputs, spot: Spot) -> Schema:
    note_filter(operator.text, operator.params, inputs.schema, spot)
    return inputs.schema


DECLARATION = Declaration("filter", FilterOperator, "filter: 'speed > 60'", read_filter, write_filter, _infer)
