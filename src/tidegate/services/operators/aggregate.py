"""`aggregate`: aggregates of each window, by keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from tidegate.model import Field, Schema
from tidegate.services.findings import Spot
from tidegate.services.operators.aggregations import (
    AGGREGATES,
    Aggregation,
    add_whole_event,
    read_aggregations,
    result_field,
    write_aggregations,
)
from tidegate.services.operators.declaration import Declaration, OperatorInputs
from tidegate.services.operators.inference import (
    TIMESTAMP,
    add_field,
    derived_schema,
    need_event_time,
    note_filter,
    single_valued,
)
from tidegate.services.operators.settings import Settings, read_names, required_setting, without_empty
from tidegate.services.operators.state_layout import StateLayout, event_parts, keys_text, type_text
from tidegate.services.operators.windows import (
    CountWindow,
    Window,
    note_window,
    read_window,
    window_text,
    write_window,
)

Emit = Literal["final", "updates"]
"""One event per key when a window closes, or one per change."""
AGGREGATE_KEYS = (*AGGREGATES, "of", "by", "window", "emit", "having")
WINDOW_BOUNDS = (Field("window_start", TIMESTAMP), Field("window_end", TIMESTAMP))


@dataclass(frozen=True)
class Aggregate:
    """Aggregate each window, by keys.

    The output has the keys, the aggregates, `window_start` and `window_end`. Its event time is `window_end`. With a
    whole event (`min` or `max` without a name) it has all attributes of that event too.
    """

    aggregations: tuple[Aggregation, ...]
    window: Window
    by: tuple[str, ...] = ()
    emit: Emit = "final"
    having: str | None = None
    """A filter over the output of this operator."""


def read_emit(settings: Mapping[str, Spot], default: Emit) -> Emit:
    """Read `emit`."""
    return cast("Emit", settings["emit"].choice(("final", "updates"))) if "emit" in settings else default


def read_having(settings: Mapping[str, Spot]) -> str | None:
    """Read `having`."""
    return settings["having"].text("the text of a filter, such as 'n > 10'") if "having" in settings else None


def write_aggregate(
    aggregations: tuple[Aggregation, ...],
    window: Window | None,
    by: tuple[str, ...],
    emit: Emit | None,
    having: str | None,
) -> Settings:
    """Return the settings of `aggregate` or `incremental`; `emit` is None if it is the default."""
    return {
        **write_aggregations(aggregations),
        **without_empty(by=list(by), window=None if window is None else write_window(window), emit=emit, having=having),
    }


def _read(spot: Spot) -> Aggregate:
    settings = spot.entries(AGGREGATE_KEYS, "what to aggregate, by what, in which window")
    return Aggregate(
        read_aggregations(settings, spot),
        read_window(required_setting(settings, "window", spot)),
        read_names(settings.get("by")),
        read_emit(settings, "final"),
        read_having(settings),
    )


def _write(operator: Aggregate) -> Settings:
    emit = operator.emit if operator.emit != "final" else None
    return write_aggregate(operator.aggregations, operator.window, operator.by, emit, operator.having)


def _infer(operator: Aggregate, inputs: OperatorInputs, spot: Spot) -> Schema | None:
    if isinstance(operator.window, CountWindow):
        note_count_emission(operator.emit, inputs.schema, spot)
    return infer_aggregate(operator.aggregations, operator.window, operator.by, operator.having, inputs.schema, spot)


def note_count_emission(emit: Emit, schema: Schema, spot: Spot) -> None:
    """Report what a window by count needs and can't emit."""
    need_event_time(schema, spot.at("window", None), "for window_start and window_end")
    if emit == "updates":
        spot.at("emit", None).report("a window by count closes with its last event: expected emit: final")


def infer_aggregate(
    aggregations: tuple[Aggregation, ...],
    window: Window | None,
    by: tuple[str, ...],
    having: str | None,
    schema: Schema,
    spot: Spot,
) -> Schema | None:
    """Return the output schema of `aggregate` or `incremental`."""
    before = len(spot.findings.problems)
    note_window(window, schema, spot)
    fields = {field.name: field for field in single_valued(by, schema, spot, "by")}
    has_whole_event = add_whole_event(aggregations, schema, fields, spot)
    if not aggregations:
        spot.report(f"expected at least one of {', '.join(AGGREGATES)}")
    for aggregation in aggregations:
        at = spot.at(aggregation.function, None)
        field = result_field(aggregation, schema, at)
        if field is not None:
            add_field(field, fields, at)
    for bound in WINDOW_BOUNDS:
        add_field(bound, fields, spot)
    unchanged = {*by, *((field.name for field in schema.root) if has_whole_event else ())}
    output = derived_schema(spot, fields.values(), WINDOW_BOUNDS[1].name, [(schema, unchanged)])
    if having is not None and output is not None and len(spot.findings.problems) == before:
        note_filter(having, (), output, spot.at("having", None))
    return output


def aggregations_layout(aggregations: tuple[Aggregation, ...], schema: Schema, kind: str, **fixed: str) -> StateLayout:
    """Return the layout of running aggregates, each under its stored name."""
    return StateLayout(
        kind, fixed, {aggregation.stored_name: type_text(aggregation.attribute, schema) for aggregation in aggregations}
    )


def _state(operator: Aggregate, inputs: OperatorInputs) -> StateLayout:
    schema = inputs.schema
    by, window = keys_text(operator.by, schema), window_text(operator.window)
    if isinstance(operator.window, CountWindow):
        return StateLayout("aggregate by count", {"by": by, "window": window}, event_parts(schema))
    return aggregations_layout(operator.aggregations, schema, "aggregate", by=by, window=window, emit=operator.emit)


DECLARATION = Declaration(
    "aggregate",
    Aggregate,
    "aggregate: {count: flow, by: [cid], window: {length: 60s}}",
    _read,
    _write,
    _infer,
    state=_state,
)
