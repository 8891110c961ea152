"""Converts records of the log to columns, and columns to records.

Inside a pipeline a frame has the attributes of events, and these columns:

- `_id`, `_time`, `_themes`: as in the record
- `_clock`: the event time that windows use; it has Spark's watermark
- `_partition`: the output partition, named after source stream and partition
- `_source`, `_position`, `_child`: source partition and position, and the number among the events of one record
- `_arrived`: the time at which its record was appended, in microseconds
- `_problem`, `_raw`: why the record is refused, and its text; null for valid records
- `_key`, `_revision`: after a stateful operator, the key of the event and its revision
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as spark

from tidegate.filters import Filter
from tidegate.filters.constraints import Constraints
from tidegate.filters.nodes import paths, predicates
from tidegate.model.schema import RESERVED, Schema
from tidegate.model.types import Field
from tidegate.pipelines import wire
from tidegate.pipelines.filters import truth
from tidegate.pipelines.wire import any_of, texts

OWN = ("_id", "_time", "_themes", "_clock", "_partition", "_source", "_position", "_child", "_arrived")
"""The columns that every frame has in addition to its attributes."""

PROBLEM = ("_problem", "_raw")

UNTIMELY = "^(late: its (time|window) |its time, )"
"""Matches the `_problem` of a late event, and of one from the future; none of a record that can't be read."""

TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
WRITING = {"ignoreNullFields": "false", "timestampFormat": TIME_FORMAT}
_READING = {"mode": "PERMISSIVE", "allowSingleQuotes": "false"}
_CORRUPT = "_corrupt"
_RESERVED = tuple(Field(name, RESERVED[name], required=False) for name in ("_id", "_time", "_themes"))


def col(name: str) -> Column:
    """Return the column with exactly this name, which may contain dots."""
    return F.col(f"`{name.replace('`', '``')}`")


SourceClock = Callable[[Column], Column]
"""Returns the clock of a source partition for a tick, and null for a record. Takes the column of the event time, and
reads `_source`, `_position`, `_arrived`, `tick` and `caught_up`."""


class Parser:
    """Parses scanned records of a schema to columns. Records that do not fit the schema have a `_problem`.

    Problems quote values only if `shows` is true. A parser may be used for any number of streams and services.
    """

    def __init__(self, schema: Schema, *, shows: bool = True) -> None:
        fields = (*schema.root, *_RESERVED)
        read = [
            *(spark.StructField(field.name, wire.wire_type(field.type)) for field in fields),
            spark.StructField(_CORRUPT, spark.StringType()),
        ]
        options = {**_READING, "columnNameOfCorruptRecord": _CORRUPT}
        self._event = F.from_json("value", spark.StructType(read), options).alias("event")
        attributes = {field.name: wire.typed(_read(field), field.type) for field in fields}
        time = attributes["_time"]
        if schema.event_time is not None:
            time = F.coalesce(attributes[schema.event_time], time)
        stream, partition = F.col("stream"), F.col("partition")
        place = F.concat_ws(":", stream, partition, F.col("position").cast("string"))
        self._columns = [
            *(attributes[field.name].alias(field.name) for field in schema.root),
            F.coalesce(attributes["_id"], place).alias("_id"),
            F.coalesce(time, F.timestamp_micros("arrived")).alias("_time"),
            attributes["_themes"].alias("_themes"),
            F.concat_ws(".", stream, partition).alias("_partition"),
            F.concat_ws("/", F.col("reading"), partition).alias("_source"),
            F.col("position").alias("_position"),
            F.lit(0).alias("_child"),
            F.col("arrived").alias("_arrived"),
            _problem(schema, shows).alias("_problem"),
            F.col("value").alias("_raw"),
        ]
        self._clock = F.col("_time").alias("_clock")

    def __call__(
        self,
        scanned: DataFrame,
        stream: str,
        *,
        reading: str | None = None,
        clock: SourceClock | None = None,
        max_ahead_s: float | None = None,
    ) -> DataFrame:
        """Parse the result of a scan of a stream; `reading` names the source if a query reads the stream several times.

        With a `clock` the frame is for the state engine: it has ticks too, and an event whose time is more than
        `max_ahead_s` after its arrival has a problem.
        """
        name = F.lit(stream).alias("stream")
        more = ["tick", "caught_up"] if clock is not None else []
        source = F.lit(reading or stream).alias("reading")
        opened = scanned.select(name, source, "partition", "position", "arrived", "value", *more, self._event)
        parsed = opened.select(*self._columns, *more).select("*", self._clock)
        return parsed if clock is None else _with_ticks(parsed, clock, max_ahead_s)


def _with_ticks(frame: DataFrame, clock: SourceClock, max_ahead_s: float | None) -> DataFrame:
    """Add the columns of `stateful.stage`; a tick has no problem."""
    problem = F.col("_problem")
    if max_ahead_s is not None:
        limit = F.timestamp_micros(F.col("_arrived") + round(max_ahead_s * 1_000_000))
        text = F.concat(
            F.lit("its time, "),
            F.date_format("_time", TIME_FORMAT),
            F.lit(f", is more than {max_ahead_s:g} s ahead of the clock"),
        )
        problem = F.coalesce(problem, F.when(F.col("_time") > limit, text))
    refused = frame.withColumn("_problem", F.when(F.col("tick").isNull(), problem))
    time = F.when(F.col("_problem").isNull(), F.unix_micros("_time"))
    ticked = refused.withColumn("_ticking", clock(time)).withColumnRenamed("tick", "_tick").drop("caught_up")
    # Do not use the time of a record that was refused just now.
    return ticked.withColumn("_clock", F.when(F.col("_problem").isNull(), F.col("_clock")).otherwise(_arrival()))


def _arrival() -> Column:
    return F.timestamp_micros("_arrived")


@lru_cache(maxsize=256)
def parser(schema: Schema, *, shows: bool = True) -> Parser:
    """Return the parser of a schema. Cached, since building its columns takes a thousand calls into the JVM."""
    return Parser(schema, shows=shows)


def _read(field: Field) -> Column:
    """Return the column of an attribute before it is converted."""
    return F.col("event").getField(field.name)


def _problem(schema: Schema, shows: bool) -> Column:
    """Return a column with the problems of a record, or null. Texts are only built for records with problems."""
    fields = (*schema.root, *_RESERVED)
    checks = [check for field in fields for check in wire.checks(field, _read(field), field.name, shows)]
    written = wire.members(F.col("value"))
    unread = [
        check
        for field in fields
        for check in wire.unread(field, _read(field), wire.member(written, field.name), field.name, shows)
    ]
    return (
        F.when(F.col("event").isNull(), F.lit("expected a JSON object, not an empty line"))
        .when(
            F.col(f"event.{_CORRUPT}").isNotNull(),
            F.coalesce(
                F.when(any_of(unread), texts(unread)),
                F.concat(F.lit("expected a JSON object, not "), wire.shown(F.col("value"), shows)),
            ),
        )
        .when(any_of(checks), texts(checks))
    )


def violations(schema: Schema, hidden: Collection[str] = ()) -> Column | None:
    """Return a column with the constraints that an event violates, or null; None if there are no constraints.

    The values of `hidden` attributes are not quoted.
    """
    checks = [
        (~F.coalesce(truth(filter_), F.lit(False)), _violation(name, filter_, hidden))
        for name, filter_ in Constraints(schema).filters.items()
    ]
    return F.when(any_of(checks), texts(checks)) if checks else None


def _violation(name: str, filter_: Filter, hidden: Collection[str]) -> Column:
    (path,) = {path for node in predicates(filter_.tree.root) for path in paths(node)}
    first, *rest = path.parts
    if first in hidden:  # the text of the constraint would reveal something about the value, too
        return F.lit(f"{name}: a hidden value violates its constraint")
    value = col(str(first))
    for part in rest:
        value = F.get(value, F.lit(part)) if isinstance(part, int) else value.getField(str(part))
    shown = F.coalesce(F.substring(value.cast("string"), 1, wire.SHOWN), F.lit("a missing value"))
    return F.concat(F.lit(f"{name}: "), shown, F.lit(f" violates {filter_.text}"))


def body(schema: Schema, extra: Mapping[str, Column] | None = None) -> Column:
    """Return the JSON object of an event without id and source: time, attributes, and themes if there are any."""
    columns = [F.col("_time"), *(wire.written(col(field.name), field.type).alias(field.name) for field in schema.root)]
    columns += [value.alias(name) for name, value in (extra or {}).items()]
    plain = F.to_json(F.struct(*columns), WRITING)
    themed = F.to_json(F.struct(*columns, F.col("_themes")), WRITING)
    return F.when(F.col("_themes").isNull(), plain).otherwise(themed)
