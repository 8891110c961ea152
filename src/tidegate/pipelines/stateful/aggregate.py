"""`aggregate` and `incremental` on the state engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as spark

from tidegate.model import Schema
from tidegate.model.types import Enum, Type
from tidegate.pipelines.operators import filter as filtering
from tidegate.pipelines.operators import windows
from tidegate.pipelines.operators.aggregate import over_arrays
from tidegate.pipelines.records import TIME_FORMAT, col
from tidegate.pipelines.stateful import stage
from tidegate.pipelines.stateful.stage import Flow, Side, Stages
from tidegate.pipelines.types import spark_type
from tidegate.services.operators import (
    Aggregate,
    Aggregation,
    CountWindow,
    FilterOperator,
    Incremental,
    SessionWindow,
    TimeWindow,
    Window,
)

_NUMBERS = {"sum", "avg", "stddev", "percentile"}
_EXTREMES = {"min", "max", "first", "last"}


@dataclass(frozen=True)
class _Planned:
    """The aggregates in the form of the engine: argument columns, and a description of each aggregate."""

    arguments: tuple[Column, ...]
    aggregates: list[dict[str, Any]]


def apply(flow: Flow, operator: Aggregate | Incremental, after: Schema, stages: Stages) -> Flow:
    """Return one event per key and window when the window closes, or one at every change."""
    if isinstance(operator, Aggregate) and isinstance(operator.window, CountWindow):
        found = _by_count(flow, operator, operator.window, after, stages)
    else:
        found = _accumulated(flow, operator, after, stages)
    if operator.having is None:
        return found
    frame = filtering.apply(found.frame, FilterOperator(operator.having), after, stages.timing.counts)
    return stage.with_frame(found, frame)


def _accumulated(flow: Flow, operator: Aggregate | Incremental, after: Schema, stages: Stages) -> Flow:
    """Add a stage that keeps running aggregates in its state, not events."""
    planned = _planned(operator.aggregations, flow)
    side = Side(flow, windows.key_text(operator.by), F.col("_raw"), planned.arguments)
    running = isinstance(operator, Incremental)
    settings = {
        "aggregates": planned.aggregates,
        "updates": operator.emit == "updates",
        **_windows(operator.window, is_running=running),
    }
    rows, sources = stage.add(stages, [side], settings)
    revised = operator.emit == "updates" or (stages.timing.on_late == "update" and _has_late_updates(operator))
    start, end = F.timestamp_micros("start"), F.timestamp_micros("end")
    if isinstance(operator, Incremental) and isinstance(operator.window, TimeWindow):
        start = F.timestamp_micros(F.col("end") - stage.micros(operator.window.length_s))
    key = _window_key(operator.window, is_numbered=running)
    own = {
        "_key": key,
        "_revision": F.col("revision") if revised else F.lit(0),
        "_id": F.concat_ws("#", key, F.col("revision").cast("string")) if revised else key,
        "_time": end,
        "_clock": _clock(operator.window),
        "_position": F.lit(0),
        "_child": F.lit(0),
    }
    named = {"window_start": start, "window_end": end, **_keys(operator.by, flow.schema)}
    return stage.results(rows, _attributes(operator.aggregations, flow, after, named), own, after, sources)


def _has_late_updates(operator: Aggregate | Incremental) -> bool:
    """True if the engine emits the result of a closed window again: not for sessions and totals across windows."""
    return isinstance(operator, Aggregate) and isinstance(operator.window, TimeWindow)


def _windows(window: Window | None, *, is_running: bool) -> dict[str, Any]:
    """The windows as the engine takes them; `is_running`: a result is about all events so far."""
    match window:
        case None:
            return {"shape": "windows", "windows": "all", "updates": True}
        case TimeWindow():
            length = window.slide_s if is_running else window.length_s
            return {
                "shape": "windows",
                "windows": "running" if is_running else "time",
                "length": stage.micros(length),
                "slide": stage.micros(window.slide_s),
                "offset": stage.micros(window.offset_s),
                "zone": window.zone or "",
                "lateness": stage.micros(window.lateness_s),
            }
        case SessionWindow():
            gap, lateness = stage.micros(window.gap_s), stage.micros(window.lateness_s)
            return {"shape": "windows", "windows": "session", "length": gap, "lateness": lateness}
        case CountWindow():
            return {"shape": "count", "windows": "running", "length": window.length, "slide": window.slide}


def _window_key(window: Window | None, *, is_numbered: bool) -> Column:
    """Return a text that identifies a window of a key."""
    match window:
        case None:
            return F.col("k")
        case SessionWindow():
            return F.concat("k", F.lit("@"), windows.time_text(F.timestamp_micros("start")))
        case CountWindow() if is_numbered:
            return F.concat("k", F.lit("@"), F.col("revision").cast("string"))
    return F.concat("k", F.lit("@"), windows.time_text(F.timestamp_micros("end")))


def _clock(window: Window | None) -> Column:
    """Return the event time of a result for later operators: inside its window, which does not contain its end."""
    is_timed = isinstance(window, TimeWindow | SessionWindow)
    return F.timestamp_micros(F.col("end") - 1) if is_timed else F.timestamp_micros("end")


def _keys(by: Sequence[str], schema: Schema) -> dict[str, Column]:
    """Return the key attributes, from the text of the key."""
    return {name: windows.key_value(F.col("k"), n, _type(name, schema)) for n, name in enumerate(by)}


def _type(name: str, schema: Schema) -> Type:
    field = schema.root.get(name)
    assert field is not None
    return field.type


# Arguments ---------------------------------------------------------------------


def _planned(aggregations: Sequence[Aggregation], flow: Flow) -> _Planned:
    arguments: list[Column] = []
    aggregates: list[dict[str, Any]] = []
    for aggregation in aggregations:
        entry: dict[str, Any] = {
            "name": aggregation.stored_name,
            "function": aggregation.function,
            "share": aggregation.share or 0.5,
        }
        if aggregation.attribute is not None:
            kind, value = _type(aggregation.attribute, flow.schema), col(aggregation.attribute)
            entry["argument"] = len(arguments)
            arguments.append(_argument(aggregation, value, kind, flow))
            if aggregation.function in _EXTREMES:
                by_time = aggregation.function in ("first", "last")
                order = F.unix_micros("_clock") if by_time else _comparable(windows.rank(value, kind), kind)
                entry["order"] = len(arguments)
                arguments.append(F.when(value.isNotNull(), order))
        aggregates.append(entry)
    return _Planned(tuple(arguments), aggregates)


def _argument(aggregation: Aggregation, value: Column, kind: Type, flow: Flow) -> Column:
    """Return the value that the engine aggregates."""
    if aggregation.function in _NUMBERS:
        wide = aggregation.function in ("stddev", "percentile")
        return value.cast("double") if wide else _number(value, kind)
    if aggregation.function == "collect":
        return F.when(value.isNotNull(), F.to_json(F.struct(value.alias("v")), {"timestampFormat": TIME_FORMAT}))
    if aggregation.function in _EXTREMES and aggregation.name is None:
        return F.when(value.isNotNull(), stage.as_json(flow.schema))
    return value.cast("string")


def _number(value: Column, kind: Type) -> Column:
    if kind.kind == "float":
        return value.cast("double")
    return value.cast("decimal(20,0)") if str(kind) == "uint64" else value.cast("long")


def _comparable(value: Column, kind: Type) -> Column:
    """Return a value in a type that the engine can compare: a long, a double, a decimal or a text."""
    match kind.kind:
        case "float":
            return value.cast("double") + F.lit(0.0)  # -0.0 equals 0.0
        case "time":
            return F.unix_micros(value)
        case "bool":
            return value.cast("int").cast("long")
        case "int":
            return _number(value, kind)
    return value.cast("long") if isinstance(kind, Enum) else value.cast("string")


# Results -----------------------------------------------------------------------


def _attributes(
    aggregations: Sequence[Aggregation], flow: Flow, after: Schema, named: dict[str, Column]
) -> dict[str, Column]:
    """Return the output attributes, from the texts that the engine returns."""
    columns = dict(named)
    for n, aggregation in enumerate(aggregations):
        text = F.get("values", F.lit(n))
        if aggregation.name is None:
            event = stage.from_json(text, stage.event_type(flow))
            present = {field.name: event.getField(field.name) for field in flow.schema.root}
            columns = {**present, **columns}
        else:
            columns[aggregation.name] = _value(aggregation, text, after)
    return {field.name: columns[field.name].try_cast(spark_type(field.type)) for field in after.root}


def _value(aggregation: Aggregation, text: Column, after: Schema) -> Column:
    kind = spark_type(_type(str(aggregation.name), after))
    if aggregation.function != "collect":
        return text
    assert isinstance(kind, spark.ArrayType)
    entry = spark.StructType([spark.StructField("v", kind.elementType)])
    entries = F.from_json(text, spark.ArrayType(entry), {"timestampFormat": TIME_FORMAT})
    return F.transform(entries, lambda each: each["v"])


# Windows by count ----------------------------------------------------------------


def count_arrays(
    flow: Flow, window: CountWindow, by: Sequence[str], stages: Stages, limit: int = -1
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return windows by count as rows of the engine, with their events in order in `_events`, and the tick sources.

    If each event is emitted alone, `limit` is the largest number of events per window; -1: one result per window.
    """
    settings = {"shape": "count", "windows": "count", "length": window.length, "slide": window.slide, "limit": limit}
    rows, sources = stage.add(stages, [Side(flow, windows.key_text(by), stage.as_json(flow.schema))], settings)
    kind = stage.event_type(flow)
    return rows.withColumn("_events", F.transform("events", lambda each: stage.from_json(each, kind))), sources


def time_arrays(
    flow: Flow, window: TimeWindow | SessionWindow, by: Sequence[str], stages: Stages, limit: int = -1
) -> tuple[DataFrame, tuple[str, ...]]:
    """Windows by time, or sessions, as rows of the engine, with `_events`: the events of each, by time.

    `limit` says how many of them are emitted one by one at most; -1: the window has one result.
    """
    settings = {
        **_windows(window, is_running=False),
        "aggregates": [{"name": "collect(event)", "function": "collect", "argument": 0}],
        "limit": limit,
        # A window whose events were given one by one can't be given again: they have other places then.
        "on_late": "drop" if stages.timing.on_late == "drop" else "quarantine",
    }
    side = Side(flow, windows.key_text(by), F.col("_raw"), (stage.as_json(flow.schema),))
    rows, sources = stage.add(stages, [side], settings)
    kind = spark.ArrayType(stage.event_type(flow))
    return rows.withColumn("_events", stage.from_json(F.get("values", F.lit(0)), kind)), sources


def _by_count(flow: Flow, operator: Aggregate, window: CountWindow, after: Schema, stages: Stages) -> Flow:
    rows, sources = count_arrays(flow, window, operator.by, stages)
    times = F.transform("_events", lambda e: e["_time"])
    end = F.array_max(times)
    key = F.concat("k", F.lit("@"), F.col("revision").cast("string"))
    named = {"window_start": F.array_min(times), "window_end": end, **_keys(operator.by, flow.schema)}
    attributes = over_arrays(operator.aggregations, flow.schema, after, named)
    own = {"_key": key, "_id": key, "_time": end, "_clock": end, "_position": F.lit(0), "_child": F.lit(0)}
    return stage.results(rows, attributes, {**own, "_revision": F.lit(0)}, after, sources)
