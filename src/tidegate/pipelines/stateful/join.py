"""`join` on the state engine: by time or by tuple windows, of two or more inputs, inner or outer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.pipelines.operators import windows
from tidegate.pipelines.stateful import stage
from tidegate.pipelines.stateful.stage import Flow, Side, Stages
from tidegate.pipelines.types import spark_type
from tidegate.services.operators import Join
from tidegate.services.schema_inference import joined_name


def apply(flows: Sequence[Flow], names: Sequence[str], operator: Join, after: Schema, stages: Stages) -> Flow:
    """Give every combination of events of all inputs once; `names` are those of the inputs."""
    given = [_without_missing(flow, operator.on) for flow in flows] if operator.window is not None else flows
    rows, sources = stage.add(
        stages,
        [Side(flow, stage.matching_key(operator.on), stage.as_json(flow.schema)) for flow in given],
        _settings(operator),
    )
    events = [stage.from_json(F.get("events", F.lit(n)), stage.event_type(flow)) for n, flow in enumerate(flows)]
    for n, event in enumerate(events):
        rows = rows.withColumn(f"_event{n}", event)
    sides = [F.col(f"_event{n}") for n in range(len(flows))]
    place = _place(sides)
    themes = reduce(_both_themes, (side.getField("_themes") for side in sides))
    own = {
        "_id": place,
        "_key": place,
        "_time": F.coalesce(*(side.getField("_time") for side in sides)),
        "_themes": themes,
        "_clock": F.coalesce(*(side.getField("_clock") for side in sides)),
        "_position": F.lit(0),
        "_child": F.lit(0),
        "_revision": F.lit(0),
    }
    return stage.results(rows, _attributes(flows, names, sides, operator, after), own, after, sources)


def _without_missing(flow: Flow, on: Sequence[str]) -> Flow:
    """Remove the events that can match none. Tuple windows would count them, by time an outer join gives them."""
    return stage.with_frame(flow, flow.frame.where(stage.is_no_event() | ~stage.has_missing(on)))


def _settings(operator: Join) -> dict[str, Any]:
    if operator.window is not None:
        return {"shape": "tuple_join", "length": operator.window.length, "slide": operator.window.slide}
    return {
        "shape": "join",
        "within": stage.micros(operator.within_s or 0.0),
        "lateness": stage.micros(operator.lateness_s),
        "how": operator.how,
    }


def _place(sides: Sequence[Column]) -> Column:
    """Return the ids of all events as one text, which no other combination has. A missing event is empty."""
    first, *others = (F.coalesce(windows.escaped(side.getField("_id"), "%+"), F.lit("")) for side in sides)
    *middle, last = others
    return F.concat_ws("+", first, *middle, last)


def _both_themes(a: Column, b: Column) -> Column:
    return F.coalesce(F.array_union(a, b), a, b)


def _attributes(
    flows: Sequence[Flow], names: Sequence[str], sides: Sequence[Column], operator: Join, after: Schema
) -> Mapping[str, Column]:
    """Return the attributes of all inputs. Those in `on` occur once, from the first input that has an event."""
    columns: dict[str, Column] = {name: F.coalesce(*(side.getField(name) for side in sides)) for name in operator.on}
    for n, (flow, side) in enumerate(zip(flows, sides, strict=True)):
        for field in flow.schema.root:
            if field.name in operator.on:
                continue
            name = field.name if field.name not in columns else joined_name(names[n], field.name)
            columns[name] = side.getField(field.name)
    time = flows[0].schema.event_time
    if operator.how == "full" and time is not None and time not in operator.on:
        # A result without a left event has the time of the first input that has an event.
        columns[time] = F.coalesce(*(side.getField("_time") for side in sides))
    return {field.name: columns[field.name].cast(spark_type(field.type)) for field in after.root}
