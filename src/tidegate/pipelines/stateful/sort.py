"""`sort` and top-N on the state engine."""

from __future__ import annotations

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.pipelines.operators import windows
from tidegate.pipelines.operators.sort import compare
from tidegate.pipelines.stateful import aggregate, stage
from tidegate.pipelines.stateful.stage import Flow, Stages
from tidegate.services.operators import CountWindow, Sort, TimeWindow

MAX_EVENTS = 2**31 - 1
"""Events that a window without a limit may have."""


def apply(flow: Flow, operator: Sort, stages: Stages) -> Flow:
    """Return the events of a window in order when it closes; with a limit the first ones."""
    match operator.window:
        case TimeWindow() as window:
            rows, sources = aggregate.time_arrays(flow, window, operator.per, stages, _limit(operator))
            place = windows.time_text(F.timestamp_micros("end"))
            clock = F.timestamp_micros(F.col("end") - 1)
        case CountWindow() as window:
            rows, sources = aggregate.count_arrays(flow, window, operator.per, stages, _limit(operator))
            place = F.col("revision").cast("string")
            clock = F.col("_event._clock")
    ordered = F.array_sort("_events", lambda a, b: compare(operator.by, flow.schema, a, b))
    if operator.limit is not None:
        ordered = F.slice(ordered, 1, operator.limit)
    # Ticks and refused records have no events, and stay.
    ranked = rows.select("*", F.posexplode_outer(ordered).alias("_ordinal", "_event"))
    event = F.col("_event")
    attributes = {field.name: event.getField(field.name) for field in flow.schema.root}
    group = F.when(F.col("k") == "*", F.lit("")).otherwise(F.col("k"))
    own = stage.carried(event) | {
        "_id": F.concat(event.getField("_id"), F.lit("@"), place),
        "_key": F.concat(group, F.lit("@"), place, F.lit("/"), F.col("_ordinal").cast("string")),
        "_clock": clock,
        "_child": F.col("_ordinal"),
        "_position": F.lit(0),
    }
    named = ranked.withColumn("source", F.when(F.col("kind") != 0, F.col("source")))
    return stage.results(named, attributes, own, flow.schema, sources)


def _limit(operator: Sort) -> int:
    """Return how many events of a window are emitted at most."""
    return operator.limit or MAX_EVENTS
