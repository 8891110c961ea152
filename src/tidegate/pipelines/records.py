"""Records of the log as columns, and columns as records.

Inside a pipeline a frame has the attributes and these columns of our own:

- `_id`, `_time`, `_themes`: as in the record
- `_clock`: the event time that windows go by; it carries Spark's watermark
- `_partition`: of the output, named by source stream and partition
- `_source`, `_position`, `_child`: where the event comes from; which one of it, where it became several
- `_arrived`: when its record was read, in microseconds
- `_problem`, `_raw`: why the record can't be used, and its text; null for all others
- `_key`, `_revision`: behind an operator with state, which event this is and which version of it
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
"""The columns that every frame has beside its attributes."""

PROBLEM = ("_problem", "_raw")

TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
WRITING = {"ignoreNullFields": "false", "timestampFormat": TIME_FORMAT}
_READING = {"mode": "PERMISSIVE", "allowSingleQuotes": "false"}
_CORRUPT = "_corrupt"
_RESERVED = tuple(Field(name, RESERVED[name], required=False) for name in ("_id", "_time", "_themes"))


def col(name: str) -> Column:
    """A column by its exact name, dots and all."""
    return F.col(f"`{name.replace('`', '``')}`")


class Parser:
    """Makes columns of scanned records of a schema; those that do not fit it have a `_problem`.

    It tells what was found in the place of a value only where that `shows`. One
    serves any number of streams, of any number of services.
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
            F.concat_ws("/", stream, partition).alias("_source"),
            F.col("position").alias("_position"),
            F.lit(0).alias("_child"),
            F.col("arrived").alias("_arrived"),
            _problem(schema, shows).alias("_problem"),
            F.col("value").alias("_raw"),
        ]
        self._clock = F.col("_time").alias("_clock")

    def __call__(self, scanned: DataFrame, stream: str) -> DataFrame:
        """Parse what a scan of a stream gives."""
        name = F.lit(stream).alias("stream")
        opened = scanned.select(name, "partition", "position", "arrived", "value", self._event)
        return opened.select(*self._columns).select("*", self._clock)


@lru_cache(maxsize=256)
def parser(schema: Schema, *, shows: bool = True) -> Parser:
    """The parser of a schema. Its columns are made once in a process: they take a thousand calls into the JVM."""
    return Parser(schema, shows=shows)


def _read(field: Field) -> Column:
    """An attribute as it was read."""
    return F.col("event").getField(field.name)


def _problem(schema: Schema, shows: bool) -> Column:
    """Say what is wrong with a record, or null. The texts are only made where something is."""
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
    """Say which constraints an event violates, or null; None where there are no constraints.

    Of `hidden` attributes it says no more than that.
    """
    found = [
        (~F.coalesce(truth(filter_), F.lit(False)), _violation(name, filter_, hidden))
        for name, filter_ in Constraints(schema).filters.items()
    ]
    return F.when(any_of(found), texts(found)) if found else None


def _violation(name: str, filter_: Filter, hidden: Collection[str]) -> Column:
    (path,) = {path for node in predicates(filter_.tree.root) for path in paths(node)}
    first, *rest = path.parts
    if first in hidden:  # that it is not what the constraint says tells of it too
        return F.lit(f"{name}: a hidden value violates its constraint")
    value = col(str(first))
    for part in rest:
        value = F.get(value, F.lit(part)) if isinstance(part, int) else value.getField(str(part))
    shown = F.coalesce(F.substring(value.cast("string"), 1, wire.SHOWN), F.lit("a missing value"))
    return F.concat(F.lit(f"{name}: "), shown, F.lit(f" violates {filter_.text}"))


def body(schema: Schema, extra: Mapping[str, Column] | None = None) -> Column:
    """An event's JSON object without id and source: time, attributes, and themes where it has any."""
    columns = [F.col("_time"), *(wire.written(col(field.name), field.type).alias(field.name) for field in schema.root)]
    columns += [value.alias(name) for name, value in (extra or {}).items()]
    plain = F.to_json(F.struct(*columns), WRITING)
    themed = F.to_json(F.struct(*columns, F.col("_themes")), WRITING)
    return F.when(F.col("_themes").isNull(), plain).otherwise(themed)
