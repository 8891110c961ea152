"""`lookup`, `previous` and `deduplicate` on the state engine: each keeps the latest events of a key."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.pipelines.operators import windows
from tidegate.pipelines.stateful import stage
from tidegate.pipelines.stateful.stage import Flow, Side, Stages
from tidegate.pipelines.types import spark_type
from tidegate.services.operators import Deduplicate, Lookup, Previous
from tidegate.services.schema_inference import joined_name


def look_up(flow: Flow, table: Flow, operator: Lookup, after: Schema, stages: Stages) -> Flow:
    """Give each event with the latest event of another stream that agrees on attributes."""
    key = stage.matching_key(operator.on)
    is_complete = ~stage.has_missing(operator.on)
    if stages.timing.counts:
        is_complete = F.call_function("tidegate_passes", F.lit(stages.timing.counts), is_complete)
    rows_of_table = table.frame.where(stage.is_no_event() | is_complete)
    sides = [Side(each, key, stage.as_json(each.schema)) for each in (flow, stage.with_frame(table, rows_of_table))]
    rows, sources = stage.add(stages, sides, {"shape": "latest", "required": operator.required})
    rows = _parsed(rows, "_event", F.col("event"), flow)
    rows = _parsed(rows, "_latest", F.get("events", F.lit(0)), table)
    columns = {field.name: F.col("_event").getField(field.name) for field in flow.schema.root}
    for field in table.schema.root:
        if field.name not in operator.on:
            name = field.name if field.name not in columns else joined_name(operator.stream, field.name)
            columns[name] = F.col("_latest").getField(field.name)
    return stage.results(rows, _typed(columns, after), stage.carried(F.col("_event")), after, sources)


def previous(flow: Flow, operator: Previous, after: Schema, stages: Stages) -> Flow:
    """Return each event with attributes of an earlier event of its key."""
    side = Side(flow, windows.key_text(operator.by), stage.as_json(flow.schema))
    rows, sources = stage.add(stages, [side], {"shape": "previous", "back": operator.back})
    rows = _parsed(rows, "_event", F.col("event"), flow)
    rows = _parsed(rows, "_earlier", F.get("events", F.lit(0)), flow)
    columns = {field.name: F.col("_event").getField(field.name) for field in flow.schema.root}
    columns |= {name: F.col("_earlier").getField(source) for name, source in operator.attributes.items()}
    return stage.results(rows, _typed(columns, after), stage.carried(F.col("_event")), after, sources)


def deduplicate(flow: Flow, operator: Deduplicate, stages: Stages) -> Flow:
    """Return the first of several equal events."""
    key = windows.key_text(operator.by) if operator.by else windows.escaped(F.col("_id"), "%#@|")
    side = Side(flow, key, stage.as_json(flow.schema))
    rows, sources = stage.add(stages, [side], {"shape": "distinct", "within": stage.micros(operator.within_s)})
    rows = _parsed(rows, "_event", F.col("event"), flow)
    columns = {field.name: F.col("_event").getField(field.name) for field in flow.schema.root}
    return stage.results(rows, columns, stage.carried(F.col("_event")), flow.schema, sources)


def _parsed(rows: DataFrame, name: str, text: Column, flow: Flow) -> DataFrame:
    """Add a column with an event, from the JSON text that the engine returned."""
    return rows.withColumn(name, F.when(F.col("kind") == 0, stage.from_json(text, stage.event_type(flow))))


def _typed(columns: dict[str, Column], after: Schema) -> dict[str, Column]:
    return {field.name: columns[field.name].cast(spark_type(field.type)) for field in after.root}
