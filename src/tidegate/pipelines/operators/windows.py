"""Shared by all operators over windows: the watermark, keys, and windows as arrays of events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as spark

from tidegate.model import Schema
from tidegate.model.types import Enum, Type
from tidegate.pipelines.records import TIME_FORMAT, col
from tidegate.pipelines.types import spark_type
from tidegate.services.operators import CountWindow, SessionWindow, TimeWindow, Window

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

_CARRIED = ("_id", "_time", "_themes", "_source", "_position", "_child", "_arrived")
_STATE = "rows string"


def watermark(frame: DataFrame, lateness_s: float) -> DataFrame:
    """Return the frame with a watermark on `_clock`, unless it has one: Spark accepts one per pipeline."""
    field = frame.schema["_clock"]
    if "spark.watermarkDelayMs" in (field.metadata or {}):
        return frame
    return frame.withWatermark("_clock", f"{round(lateness_s * 1_000_000)} microseconds")


def in_time(window: TimeWindow) -> Column:
    """Return a column with the windows that contain an event."""
    return F.window("_clock", _span(window.length_s), _span(window.slide_s))


def _span(seconds: float) -> str:
    return f"{round(seconds * 1_000_000)} microseconds"


def key_text(by: Sequence[str]) -> Column:
    """Return the values of the key attributes as one text, with separators of ids escaped."""
    parts = [F.coalesce(escaped(col(name).cast("string"), "%#@|"), F.lit("%00")) for name in by]
    return F.concat_ws("|", *parts) if parts else F.lit("*")


def key_value(key: Column, number: int, kind: Type) -> Column:
    """Return the value of one attribute in a text of `key_text`; null if it was missing."""
    text = F.get(F.split(key, r"\|"), F.lit(number))
    value = text
    for mark in reversed("%#@|"):
        value = F.replace(value, F.lit(f"%{ord(mark):02X}"), F.lit(mark))
    return F.when(text != F.lit("%00"), value.try_cast(spark_type(kind)))


def escaped(text: Column, marks: str) -> Column:
    """Percent-encode these characters of a text. `marks` begins with `%`, so that different texts stay different."""
    for mark in marks:
        text = F.replace(text, F.lit(mark), F.lit(f"%{ord(mark):02X}"))
    return text


def rank(value: Column, kind: Type) -> Column:
    """Return the sort key of a value: for enums the position of the label."""
    return F.array_position(F.array(*map(F.lit, kind.labels)), value) if isinstance(kind, Enum) else value


def time_text(moment: Column) -> Column:
    """Return a time in the form that ids contain."""
    return F.date_format(moment, TIME_FORMAT)


def as_arrays(frame: DataFrame, window: Window, by: Sequence[str], schema: Schema) -> DataFrame:
    """Return one row per key and window: the keys, `window_start`, `window_end`, `_key`, and `_events` in order."""
    match window:
        case TimeWindow():
            return _time_arrays(frame, window, by, schema)
        case CountWindow():
            return _count_arrays(frame, window, by, schema)
        case SessionWindow():
            raise AssertionError("only the state engine has sessions")


def _event(schema: Schema) -> Column:
    return F.struct(*(F.col(name) for name in _CARRIED), *(col(field.name) for field in schema.root))


def _time_arrays(frame: DataFrame, window: TimeWindow, by: Sequence[str], schema: Schema) -> DataFrame:
    order = F.struct(F.col("_time"), F.col("_source"), F.col("_position"), F.col("_child"), _event(schema).alias("e"))
    grouped = (
        watermark(frame, window.lateness_s)
        .groupBy(in_time(window).alias("window"), *(col(name) for name in by))
        .agg(F.collect_list(order).alias("_ordered"))
    )
    return grouped.select(
        *(col(name) for name in by),
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        F.window_time("window").alias("_clock"),
        F.concat(key_text(by), F.lit("@"), time_text(F.col("window.end"))).alias("_key"),
        F.transform(F.array_sort("_ordered"), lambda each: each["e"]).alias("_events"),
    )


def _count_arrays(frame: DataFrame, window: CountWindow, by: Sequence[str], schema: Schema) -> DataFrame:
    """Return the windows by count. The last events of each key are in Spark's state, as texts.

    The events of a batch are in the order of their source, so that a batch that Spark repeats after a failure has the
    same result.
    """
    options = {"ignoreNullFields": "false", "timestampFormat": TIME_FORMAT}
    rows = frame.select(
        key_text(by).alias("key"),
        F.col("_source").alias("source"),
        F.col("_position").alias("position"),
        F.col("_child").alias("child"),
        F.to_json(_event(schema), options).alias("row"),
    )
    length, slide = window.length, window.slide

    def windows(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        import pandas as pd

        count, events = 0, []
        if state.exists:
            count_text, *events = state.get[0].split("\n")
            count = int(count_text)
        arrived = pd.concat(list(frames)).sort_values(["source", "position", "child"])
        closed: list[tuple[str, int, list[str]]] = []
        for row in arrived["row"]:
            events.append(row)
            count += 1
            del events[:-length]
            if count >= length and (count - length) % slide == 0:
                closed.append((key[0], count, list(events)))
        state.update(("\n".join([str(count), *events]),))
        yield pd.DataFrame(closed, columns=["key", "count", "rows"])

    output = spark.StructType(
        [
            spark.StructField("key", spark.StringType()),
            spark.StructField("count", spark.LongType()),
            spark.StructField("rows", spark.ArrayType(spark.StringType())),
        ]
    )
    closed = rows.groupBy("key").applyInPandasWithState(windows, output, _STATE, "append", "NoTimeout")
    kind = frame.select(_event(schema).alias("e")).schema["e"].dataType
    events = F.transform("rows", lambda row: F.from_json(row, kind, {"timestampFormat": TIME_FORMAT}))  # type: ignore[arg-type]
    opened = closed.select("key", "count", events.alias("_events"))
    return opened.select(
        *(F.get("_events", F.lit(0)).getField(name).alias(name) for name in by),
        F.array_min(F.transform("_events", lambda e: e["_time"])).alias("window_start"),
        F.array_max(F.transform("_events", lambda e: e["_time"])).alias("window_end"),
        F.array_max(F.transform("_events", lambda e: e["_time"])).alias("_clock"),
        F.concat(F.col("key"), F.lit("@"), F.col("count").cast("string")).alias("_key"),
        F.col("_events"),
    )


def results(frame: DataFrame, columns: dict[str, Column], extra: dict[str, Any] | None = None) -> DataFrame:
    """Return rows of `as_arrays`, each the result of a window, with the columns that every frame of events has."""
    own: dict[str, Column] = {
        "_id": F.col("_key"),
        "_time": F.col("window_end"),
        "_themes": F.lit(None).cast("array<string>"),
        "_clock": F.col("_clock"),
        "_partition": F.lit(None).cast("string"),
        "_source": F.lit(None).cast("string"),
        "_position": F.lit(0).cast("long"),
        "_child": F.lit(0),
        "_arrived": F.array_max(F.transform("_events", lambda e: e["_arrived"])),
        "_problem": F.lit(None).cast("string"),
        "_raw": F.lit(None).cast("string"),
        "_key": F.col("_key"),
        "_revision": F.lit(0).cast("long"),
        **(extra or {}),
    }
    return frame.select(*(value.alias(name) for name, value in {**columns, **own}.items()))
