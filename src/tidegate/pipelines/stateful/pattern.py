"""`pattern` on the state engine."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as spark

from tidegate.model import Schema
from tidegate.model.types import Array
from tidegate.pipelines.operators import filter as filtering
from tidegate.pipelines.operators import windows
from tidegate.pipelines.records import col
from tidegate.pipelines.stateful import stage
from tidegate.pipelines.stateful.stage import Flow, Side, Stages
from tidegate.pipelines.types import spark_type
from tidegate.services.operators import FilterOperator, PatternOperator, PatternStep


def apply(flow: Flow, operator: PatternOperator, after: Schema, stages: Stages) -> Flow:
    """Give one event for each match, with the events that each step took."""
    arguments = [F.coalesce(_condition(flow, each), F.lit(False)) for each in operator.steps]
    settings = {
        "shape": "pattern",
        "lateness": stage.micros(operator.lateness_s),
        "within": -1 if operator.within_s is None else stage.micros(operator.within_s),
        "steps": [
            {
                "least": step.least,
                "most": step.most,
                "for": -1 if step.for_s is None else stage.micros(step.for_s),
                "absent": step.absent,
            }
            for step in operator.steps
        ],
    }
    if operator.span is not None:
        attribute, limit = operator.span
        settings |= {"span": len(arguments), "span_limit": limit}
        arguments.append(col(attribute).cast("double"))
    side = Side(flow, windows.key_text(operator.by), stage.as_json(flow.schema), tuple(arguments))
    rows, sources = stage.add(stages, [side], settings)
    end = F.timestamp_micros("end")
    key = F.concat("k", F.lit("@"), windows.time_text(F.timestamp_micros("start")), F.lit("+"), windows.time_text(end))
    own = {
        "_id": key,
        "_key": key,
        "_time": end,
        "_clock": end,
        "_position": F.lit(0),
        "_child": F.lit(0),
        "_revision": F.lit(0),
    }
    return stage.results(rows, _attributes(flow, operator, after), own, after, sources)


def _condition(flow: Flow, step: PatternStep) -> Column:
    return F.lit(True) if step.where is None else filtering.matches(flow.frame, FilterOperator(step.where), flow.schema)


def _attributes(flow: Flow, operator: PatternOperator, after: Schema) -> dict[str, Column]:
    columns = {
        "match_start": F.timestamp_micros("start"),
        "match_end": F.timestamp_micros("end"),
    }
    for n, name in enumerate(operator.by):
        field = flow.schema.root.get(name)
        assert field is not None
        columns[name] = windows.key_value(F.col("k"), n, field.type)
    kind = spark.ArrayType(stage.event_type(flow))
    for n, step in enumerate(operator.steps):
        field = after.root.get(step.name)
        if field is None:
            continue
        events = F.transform(stage.from_json(F.get("events", F.lit(n)), kind), lambda each: _plain(each, flow.schema))
        columns[step.name] = events if isinstance(field.type, Array) else F.get(events, F.lit(0))
    steps = {step.name for step in operator.steps}
    # Events have the types of the schema already, and Spark refuses a cast to attributes that are never null.
    return {
        field.name: columns[field.name] if field.name in steps else columns[field.name].cast(spark_type(field.type))
        for field in after.root
    }


def _plain(event: Column, schema: Schema) -> Column:
    """Return the attributes of an event, without our own columns."""
    return F.struct(*(event.getField(field.name).alias(field.name) for field in schema.root))
