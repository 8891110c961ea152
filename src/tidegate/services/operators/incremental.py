"""`incremental`: aggregates of all events so far, at the end of each window or at every change."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.model import Schema
from tidegate.services.findings import Spot
from tidegate.services.operators.aggregate import (
    AGGREGATE_KEYS,
    Emit,
    aggregations_layout,
    infer_aggregate,
    note_count_emission,
    read_emit,
    read_having,
    write_aggregate,
)
from tidegate.services.operators.aggregations import Aggregation, read_aggregations
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.inference import need_event_time
from tidegate.services.operators.settings import Settings, read_names
from tidegate.services.operators.state_layout import StateLayout, keys_text
from tidegate.services.operators.windows import CountWindow, TimeWindow, read_fixed_window, window_text


@dataclass(frozen=True)
class Incremental:
    """Aggregate across windows: at the end of each window the value over all events so far.

    With a window by count there is one event every `slide` events of a key; without a window one event per change
    (`emit: updates`). `window_start` and `window_end` are then the times of the first and the last event so far.
    """

    aggregations: tuple[Aggregation, ...]
    window: TimeWindow | CountWindow | None = None
    by: tuple[str, ...] = ()
    emit: Emit = "final"
    having: str | None = None
    """A filter over the output of this operator."""


def _default_emit(window: TimeWindow | CountWindow | None) -> Emit:
    return "updates" if window is None else "final"


def _read(spot: Spot) -> Incremental:
    settings = spot.entries(AGGREGATE_KEYS, "what to aggregate, by what")
    window = read_fixed_window(settings["window"]) if "window" in settings else None
    return Incremental(
        read_aggregations(settings, spot),
        window,
        read_names(settings.get("by")),
        read_emit(settings, _default_emit(window)),
        read_having(settings),
    )


def _write(operator: Incremental) -> Settings:
    emit = operator.emit if operator.emit != _default_emit(operator.window) else None
    return write_aggregate(operator.aggregations, operator.window, operator.by, emit, operator.having)


def _infer(operator: Incremental, inputs: OperatorInputs, spot: Spot) -> Schema | None:
    match operator.window:
        case CountWindow():
            note_count_emission(operator.emit, inputs.schema, spot)
        case None:
            need_event_time(inputs.schema, spot, "for window_start and window_end")
            if operator.emit == "final":
                spot.at("emit", None).report("without a window there is no end to wait for: expected emit: updates")
        case TimeWindow():
            pass
    return infer_aggregate(operator.aggregations, operator.window, operator.by, operator.having, inputs.schema, spot)


def _state(operator: Incremental, inputs: OperatorInputs) -> StateLayout:
    by, window = keys_text(operator.by, inputs.schema), window_text(operator.window)
    kind, emit = "incremental", operator.emit
    return aggregations_layout(operator.aggregations, inputs.schema, kind, by=by, window=window, emit=emit)


DECLARATION = Declaration(
    "incremental", Incremental, "incremental: {count: total, by: [cid]}", _read, _write, _infer, state=_state
)
