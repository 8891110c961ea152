"""`custom` over windows: the state engine collects the events of each window for the function."""

from __future__ import annotations

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.pipelines.operators import custom, windows
from tidegate.pipelines.records import col
from tidegate.pipelines.stateful import aggregate, stage
from tidegate.pipelines.stateful.stage import Flow, Stages
from tidegate.services.operators import CountWindow, Custom, SessionWindow, TimeWindow


def apply(flow: Flow, operator: Custom, target: str, stages: Stages) -> Flow:
    """Give the rows that the function makes of each window when it closes; `target` is its import path."""
    match operator.window:
        case CountWindow() as window:
            rows, sources = aggregate.count_arrays(flow, window, operator.by, stages)
            end = clock = F.array_max(F.transform("_events", lambda event: event["_time"]))
            place = F.col("revision").cast("string")
        case TimeWindow() | SessionWindow() as window:
            rows, sources = aggregate.time_arrays(flow, window, operator.by, stages)
            end, clock = F.timestamp_micros("end"), F.timestamp_micros(F.col("end") - 1)
            place = windows.time_text(F.timestamp_micros("start" if isinstance(window, SessionWindow) else "end"))
        case None:
            raise AssertionError("without a window it has no state")
    named = rows.select("*", end.alias("window_end"), clock.alias("window_clock"), place.alias("place"))
    made = custom.over_windows(named, operator, flow.schema, target)
    attributes = {field.name: col(field.name) for field in operator.schema.root}
    key = F.concat(F.col("_k"), F.lit("@"), F.col("_place"), F.lit("/"), F.col("_ordinal").cast("string"))
    own = {
        "_id": key,
        "_key": key,
        "_time": F.col("_window_end"),
        "_clock": F.col("_window_clock"),
        "_child": F.col("_ordinal"),
        "_position": F.lit(0),
        "_revision": F.lit(0),
    }
    # Attributes may have the names of the engine's columns, so these have a prefix up to here.
    hidden = {name: f"_attribute{n}" for n, name in enumerate(attributes)}
    unprefixed = made.select(
        *(col(name).alias(hidden[name]) for name in attributes),
        *(col(name) for name in ("_k", "_place", "_ordinal", "_window_end", "_window_clock")),
        *(col(f"_{name}").alias(name) for name in stage.ROW),
    )
    columns = {name: F.col(hidden[name]) for name in attributes}
    return stage.results(unprefixed, columns, own, operator.schema, sources)
