"""Adds a stage of the state engine to a frame, and turns its rows back into a frame of events.

In a pipeline with state a frame has two more columns. `_tick` is the state partition that a tick is for, and null for
records. `_ticking` is what the engine's watermark needs: the clock of the source for a tick, null for a record of a
source, and an empty text for a result of an earlier stage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.pipelines.connector import attach
from tidegate.pipelines.operators import windows
from tidegate.pipelines.plain.state import processor
from tidegate.pipelines.records import TIME_FORMAT, col

TICK_KEY = "#@"
"""Prefix of the keys of ticks. No key of events has it, because # and @ are escaped in them."""
_POSITION_DIGITS = 20
_CHILD_DIGITS = 10


@dataclass(frozen=True)
class Timing:
    """The settings of a service about time, and its number of state partitions."""

    service: str
    partitions: int
    """Number of state partitions of each stage."""
    idle_s: float | None = 10.0
    on_late: str = "quarantine"
    has_connector: bool = True
    """False: Python runs the stages."""
    batches: bool = False
    """Whether the stages run in micro-batches."""

    @property
    def counts(self) -> str:
        """The service whose metrics count the removed events; empty without the connector, which counts them."""
        return self.service if self.has_connector else ""


@dataclass(frozen=True)
class Flow:
    """A frame between two operators of a pipeline with state."""

    frame: DataFrame
    schema: Schema
    sources: tuple[str, ...]
    """The sources of its ticks: partitions of streams, or of an earlier stage."""


@dataclass
class Stages:
    """Names the stages of a pipeline in order."""

    timing: Timing
    total: int
    added: int = field(default=0)

    def next(self) -> tuple[str, int]:
        """Return the name of the next stage, and the number of state partitions of the one after it; 0: none."""
        self.added += 1
        return f"stage{self.added}", self.timing.partitions if self.added < self.total else 0


@dataclass(frozen=True)
class Side:
    """One input of a stage, with the columns that the engine reads."""

    flow: Flow
    key: Column
    event: Column
    """The record as text: JSON if the engine returns it, else the original text."""
    arguments: tuple[Column, ...] = ()


def add(stages: Stages, sides: Sequence[Side], plan: Mapping[str, Any]) -> tuple[DataFrame, tuple[str, ...]]:
    """Add a stage. Returns the rows of the engine, and the names of the stage's partitions as sources of ticks."""
    name, following = stages.next()
    timing = stages.timing
    spark = sides[0].flow.frame.sparkSession
    keys = tick_keys(spark, timing.partitions)
    frame = _rows(sides[0], 0, keys, timing)
    for n, side in enumerate(sides[1:], start=1):
        frame = frame.union(_rows(side, n, keys, timing))
    whole = {
        "service": timing.service,
        "stage": name,
        "tick_keys": keys,
        "next_partitions": following,
        "sources": list(dict.fromkeys(source for side in sides for source in side.flow.sources)),
        "idle": -1 if timing.idle_s is None else micros(timing.idle_s),
        "on_late": timing.on_late,
        "sides": len(sides),
        "batches": timing.batches,
        **plan,
    }
    run = attach.with_state if timing.has_connector else processor.with_state
    return run(frame, json.dumps(whole)), tuple(f"{name}/{n}" for n in range(timing.partitions))


def micros(seconds: float) -> int:
    """Return seconds in microseconds."""
    return round(seconds * 1_000_000)


@lru_cache(maxsize=16)
def tick_keys(spark: SparkSession, partitions: int) -> list[str]:
    """Return one key for each state partition, which Spark's shuffle sends there. Runs a Spark job; cached."""
    if partitions == 1:
        return [TICK_KEY]
    keys = spark.range(partitions * 50).select(F.concat(F.lit(TICK_KEY), F.col("id").cast("string")).alias("key"))
    key_of: dict[int, str] = {}
    for row in keys.select("key", F.pmod(F.hash("key"), F.lit(partitions)).alias("partition")).collect():
        key_of.setdefault(row["partition"], row["key"])
    return [key_of[n] for n in range(partitions)]


def _rows(side: Side, number: int, keys: Sequence[str], timing: Timing) -> DataFrame:
    """Return records and ticks with the columns that `StateRecord` reads."""
    is_tick, is_problem = F.col("_tick").isNotNull(), F.col("_problem").isNotNull()
    tick_key = F.get(F.array(*map(F.lit, keys)), F.col("_tick"))
    arguments = [value.alias(f"a{n}") for n, value in enumerate(side.arguments)] or [F.lit(None).alias("a0")]
    is_record = ~is_tick & ~is_problem
    counted = F.call_function("tidegate_read_time", F.col("_position"))
    read_time = counted if timing.has_connector else F.lit(None).cast("long")
    return side.flow.frame.select(
        F.when(is_tick, tick_key).when(is_problem, F.lit(keys[0])).otherwise(side.key).alias("k"),
        F.when(is_tick, F.lit(2)).when(is_problem, F.lit(1)).otherwise(F.lit(0)).alias("kind"),
        F.col("_source").alias("source"),
        F.when(is_problem, F.col("_problem")).otherwise(F.col("_ticking")).alias("clock"),
        F.lit(number).alias("side"),
        F.unix_micros("_clock").alias("time"),
        F.col("_arrived").alias("arrived"),
        tie().alias("tie"),
        F.when(is_record, side.event).otherwise(F.col("_raw")).alias("event"),
        F.col("_id").alias("id"),
        F.when(is_record, F.struct(*arguments)).alias("arguments"),
        read_time.alias("read"),
    )


def has_missing(on: Sequence[str]) -> Column:
    """Return whether an event lacks one of some attributes: then it matches no other, as in SQL."""
    return reduce(lambda found, name: found | col(name).isNull(), on, F.lit(False))


def is_no_event() -> Column:
    """Return whether a row is a tick or a refused record."""
    return F.col("_tick").isNotNull() | F.col("_problem").isNotNull()


def matching_key(on: Sequence[str]) -> Column:
    """Return the key under which events of several inputs match; of an event that matches none, a key of its own."""
    key = windows.key_text(on)
    return F.when(has_missing(on), F.concat(key, F.lit("#"), F.col("_id"))).otherwise(key)


def tie() -> Column:
    """Return source, position and child of a record as one text, which sorts records of one source by position.

    A result of an earlier stage has no source; its id makes the text unique.
    """
    position = F.lpad(F.col("_position").cast("string"), _POSITION_DIGITS, "0")
    return F.concat_ws(
        "/", F.coalesce("_source", "_id"), position, F.lpad(F.col("_child").cast("string"), _CHILD_DIGITS, "0")
    )


def _tied(part: int) -> Column:
    """Return a part of a text of `tie`, counted from the end."""
    return F.element_at(F.split("clock", "/"), part).cast("long")


def results(
    rows: DataFrame,
    attributes: Mapping[str, Column],
    own: Mapping[str, Column],
    schema: Schema,
    sources: tuple[str, ...],
) -> Flow:
    """Turn rows of the engine into a frame of events; `own` are the columns of results that are not attributes.

    Ticks, records that could not be read and late records have no attributes. The latter have a `_problem`.
    """
    kind = F.col("kind")
    is_result, is_refused = kind == 0, (kind == 1) | (kind == 3)
    null = F.lit(None)

    def of(name: str, refused: Column, kind: str) -> Column:
        value = own.get(name, null)
        return F.when(is_result, value.cast(kind)).when(is_refused, refused.cast(kind)).alias(name)

    time = F.timestamp_micros("start")
    frame = rows.select(
        *(F.when(is_result, value).alias(name) for name, value in attributes.items()),
        of("_id", F.col("k"), "string"),
        of("_time", time, "timestamp"),
        of("_themes", null, "array<string>"),
        of("_clock", time, "timestamp"),
        F.lit(None).cast("string").alias("_partition"),
        F.col("source").alias("_source"),
        of("_position", _tied(-2), "long"),
        of("_child", _tied(-1), "int"),
        F.col("arrived").alias("_arrived"),
        F.when(is_refused, F.col("reason")).alias("_problem"),
        F.when(is_refused, F.col("event")).alias("_raw"),
        of("_key", F.col("k"), "string"),
        of("_revision", F.lit(0), "long"),
        F.when(kind == 2, F.col("tick")).alias("_tick"),
        F.when(kind == 2, F.col("clock")).otherwise(F.lit("")).alias("_ticking"),
    )
    return Flow(frame, schema, sources)


ROW = ("kind", "tick", "source", "clock", "k", "start", "arrived", "event", "reason")
"""The columns of the engine's rows that `results` reads."""

CARRIED = ("_id", "_time", "_themes", "_clock", "_source", "_position", "_child", "_arrived")
"""Our own columns that are stored with an event in a state."""

_WRITING = {"ignoreNullFields": "true", "timestampFormat": TIME_FORMAT}


def event_struct(schema: Schema) -> Column:
    """Return an event with our own columns, as a state stores it."""
    return F.struct(*(F.col(name) for name in CARRIED), *(col(attribute.name) for attribute in schema.root))


def as_json(schema: Schema) -> Column:
    """Return an event as JSON, with our own columns."""
    return F.to_json(event_struct(schema), _WRITING)


def event_type(flow: Flow) -> Any:
    """Return the type of the JSON that `as_json` writes."""
    return flow.frame.select(event_struct(flow.schema).alias("e")).schema["e"].dataType


def from_json(text: Column, kind: Any) -> Column:
    """Parse the JSON of `as_json`. Attributes that are not in the text are null."""
    return F.from_json(text, kind, {"timestampFormat": TIME_FORMAT})


def carried(event: Column) -> dict[str, Column]:
    """Return our own columns of an event that was read from a state."""
    names = {name: event.getField(name) for name in CARRIED if name != "_arrived"}
    return names | {"_key": event.getField("_id"), "_revision": F.lit(0)}


def with_frame(flow: Flow, frame: DataFrame) -> Flow:
    """Return the flow with another frame."""
    return replace(flow, frame=frame)
