"""`sort`: orders the events of each window, or keeps the first of them (top-N)."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.model import Schema
from tidegate.services.findings import Spot
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.inference import single_valued
from tidegate.services.operators.settings import Settings, read_names, required_setting, without_empty
from tidegate.services.operators.state_layout import StateLayout, event_parts, keys_text
from tidegate.services.operators.windows import (
    CountWindow,
    TimeWindow,
    note_window,
    read_fixed_window,
    window_text,
    write_window,
)


@dataclass(frozen=True)
class SortKey:
    """One attribute to sort by."""

    attribute: str
    descending: bool = False


@dataclass(frozen=True)
class Sort:
    """Emit the events of each window in order, when the window closes."""

    by: tuple[SortKey, ...]
    window: TimeWindow | CountWindow
    limit: int | None = None
    """Keep only the first `limit` events of each window; None: all."""
    per: tuple[str, ...] = ()
    """Apply `limit` to each group of events that agree on these attributes."""


def _read(spot: Spot) -> Sort:
    settings = spot.entries(("by", "window", "limit", "per"), "what to sort by, and in which window")
    keys = required_setting(settings, "by", spot).texts("attributes, such as [time, -speed]")
    limit = settings["limit"].whole("a number of events, 1 or more", 1) if "limit" in settings else None
    window = read_fixed_window(required_setting(settings, "window", spot))
    if limit is None and "per" in settings:
        settings["per"].report("per groups the events that limit counts: expected a limit with it, such as limit: 5")
    return Sort(tuple(map(_read_key, keys)), window, limit, read_names(settings.get("per")))


def _read_key(text: str) -> SortKey:
    return SortKey(text[1:], text[0] == "-") if text[:1] in ("-", "+") else SortKey(text)


def _write(operator: Sort) -> Settings:
    return {
        "by": [_write_key(key) for key in operator.by],
        "window": write_window(operator.window),
        **without_empty(limit=operator.limit, per=list(operator.per)),
    }


def _write_key(key: SortKey) -> str:
    if key.descending:
        return f"-{key.attribute}"
    return f"+{key.attribute}" if key.attribute[:1] in ("-", "+") else key.attribute


def _infer(operator: Sort, inputs: OperatorInputs, spot: Spot) -> Schema:
    if not operator.by:
        spot.report("expected at least one attribute to sort by")
    single_valued([key.attribute for key in operator.by], inputs.schema, spot, "by")
    single_valued(operator.per, inputs.schema, spot, "per")
    if operator.limit is not None and operator.limit < 1:
        spot.at("limit", None).report(f"expected a number of events, 1 or more, not {operator.limit}")
    note_window(operator.window, inputs.schema, spot)
    return inputs.schema


def _state(operator: Sort, inputs: OperatorInputs) -> StateLayout:
    fixed = {"per": keys_text(operator.per, inputs.schema), "window": window_text(operator.window)}
    return StateLayout("sort", fixed, event_parts(inputs.schema))


DECLARATION = Declaration(
    "sort", Sort, "sort: {by: [time], window: {length: 10s}}", _read, _write, _infer, state=_state
)
