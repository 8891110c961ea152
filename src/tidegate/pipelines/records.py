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

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as spark

from tidegate.filters import Filter
from tidegate.filters.constraints import Constraints
from tidegate.filters.nodes import paths, predicates
from tidegate.model.schema import Schema
from tidegate.model.types import INTEGER_RANGES, Array, Enum, Field, Scalar, Struct, notation
from tidegate.pipelines.filters import truth
from tidegate.pipelines.types import to_spark

OWN = ("_id", "_time", "_themes", "_clock", "_partition", "_source", "_position", "_child", "_arrived")
"""The columns that every frame has beside its attributes."""

PROBLEM = ("_problem", "_raw")

TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
WRITING = {"ignoreNullFields": "false", "timestampFormat": TIME_FORMAT}
_CORRUPT = "_corrupt"
_SHOWN = 60


def col(name: str) -> Column:
    """A column by its exact name, dots and all."""
    return F.col(f"`{name.replace('`', '``')}`")


def parse(scanned: DataFrame, stream: str, schema: Schema) -> DataFrame:
    """Make columns of a scan's records; those that do not fit the schema have a `_problem`."""
    reserved = [
        spark.StructField("_id", spark.StringType()),
        spark.StructField("_time", spark.TimestampType()),
        spark.StructField("_themes", spark.ArrayType(spark.StringType())),
        spark.StructField(_CORRUPT, spark.StringType()),
    ]
    fields = _nullable(spark.StructType([*to_spark(schema).fields, *reserved]))
    event = F.from_json("value", fields, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})
    opened = scanned.select("partition", "position", "arrived", "value", event.alias("event"))
    time = F.col("event._time")
    if schema.event_time is not None:
        time = F.coalesce(F.col("event").getField(schema.event_time), time)
    place = F.concat(F.lit(f"{stream}:"), F.col("partition"), F.lit(":"), F.col("position").cast("string"))
    typed = opened.select(
        *(F.col("event").getField(field.name).alias(field.name) for field in schema.root),
        F.coalesce(F.col("event._id"), place).alias("_id"),
        F.coalesce(time, F.timestamp_micros("arrived")).alias("_time"),
        F.col("event._themes").alias("_themes"),
        F.concat(F.lit(f"{stream}."), F.col("partition")).alias("_partition"),
        F.concat(F.lit(f"{stream}/"), F.col("partition")).alias("_source"),
        F.col("position").alias("_position"),
        F.lit(0).alias("_child"),
        F.col("arrived").alias("_arrived"),
        _problem(schema).alias("_problem"),
        F.col("value").alias("_raw"),
    )
    return typed.withColumn("_clock", F.col("_time"))


def _nullable(struct: spark.StructType) -> spark.StructType:
    """Any attribute may be missing from a text; that it must not is said by `_problem`."""
    return spark.StructType([spark.StructField(f.name, f.dataType, True) for f in struct])


Check = tuple[Column, Column]
"""When something is wrong, and what."""


def _problem(schema: Schema) -> Column:
    """Say what is wrong with a record, or null. The texts are only made where something is."""
    checks = [check for field in schema.root for check in _checks(field, F.col("event").getField(field.name), "")]
    unread = [_unread(field) for field in schema.root]
    return (
        F.when(F.col("event").isNull(), F.lit("expected a JSON object, not an empty line"))
        .when(
            F.col(f"event.{_CORRUPT}").isNotNull(),
            F.coalesce(
                F.when(_any(unread), _texts(unread)),
                F.concat(F.lit("expected a JSON object, not "), F.substring("value", 1, _SHOWN)),
            ),
        )
        .when(_any(checks), _texts(checks))
    )


def _any(checks: Iterable[Check]) -> Column:
    return reduce(operator.or_, (F.coalesce(wrong, F.lit(False)) for wrong, _ in checks), F.lit(False))


def _texts(checks: Iterable[Check]) -> Column:
    return F.concat_ws("; ", *(F.when(wrong, text) for wrong, text in checks), F.lit(None).cast("string"))


def _unread(field: Field) -> Check:
    """An attribute that is in the text and could not be read."""
    text = F.get_json_object("value", f"$['{field.name}']")
    wrong = F.col("event").getField(field.name).isNull() & text.isNotNull()
    return wrong, F.concat(F.lit(f"{field.name}: expected {notation(field)}, not "), F.substring(text, 1, _SHOWN))


def _checks(field: Field, value: Column, prefix: str) -> Iterator[Check]:
    """What JSON's own types do not hold a value to."""
    path = f"{prefix}{field.name}"
    if field.required:
        yield value.isNull(), F.lit(f"{path}: expected {notation(field)}, but it is missing")
    shown = F.substring(value.cast("string"), 1, _SHOWN)
    match field.type:
        case Struct() as kind:
            for inner in kind:
                for wrong, text in _checks(inner, value.getField(inner.name), f"{path}."):
                    yield value.isNotNull() & wrong, text
        case Array(bound=int() as bound):
            found = F.size(value).cast("string")
            yield F.size(value) > bound, F.concat(F.lit(f"{path}: expected at most {bound} elements, not "), found)
        case Enum(labels=labels):
            expected = F.lit(f"{path}: expected one of {', '.join(labels)}, not ")
            yield ~value.isin(*labels), F.concat(expected, shown)
        case Scalar(name=name) if name.startswith("uint"):
            low, high = INTEGER_RANGES[name]
            expected = F.lit(f"{path}: expected {name}, {low} to {high}, not ")
            yield ~value.between(F.lit(low), F.lit(high).cast(_WIDE)), F.concat(expected, shown)
        case Scalar(name="char"):
            yield F.char_length(value) != 1, F.concat(F.lit(f"{path}: expected one character, not "), shown)


_WIDE = spark.DecimalType(20, 0)
"""Holds every whole number."""


def violations(schema: Schema, hidden: Collection[str] = ()) -> Column | None:
    """Say which constraints an event violates, or null; None where there are no constraints.

    Values of `hidden` attributes are not shown.
    """
    found = [
        (
            ~F.coalesce(truth(filter_), F.lit(False)),
            F.concat(F.lit(f"{name}: "), _shown(filter_, hidden), F.lit(f" violates {filter_.text}")),
        )
        for name, filter_ in Constraints(schema).filters.items()
    ]
    return F.when(_any(found), _texts(found)) if found else None


def _shown(filter_: Filter, hidden: Collection[str]) -> Column:
    (path,) = {path for node in predicates(filter_.tree.root) for path in paths(node)}
    first, *rest = path.parts
    if first in hidden:
        return F.lit("a hidden value")
    value = col(str(first))
    for part in rest:
        value = F.get(value, F.lit(part)) if isinstance(part, int) else value.getField(str(part))
    return F.coalesce(F.substring(value.cast("string"), 1, _SHOWN), F.lit("a missing value"))


def body(schema: Schema, extra: Mapping[str, Column] | None = None) -> Column:
    """An event's JSON object without id and source: time, attributes, and themes where it has any."""
    columns = [F.col("_time"), *(col(field.name) for field in schema.root)]
    columns += [value.alias(name) for name, value in (extra or {}).items()]
    plain = F.to_json(F.struct(*columns), WRITING)
    themed = F.to_json(F.struct(*columns, F.col("_themes")), WRITING)
    return F.when(F.col("_themes").isNull(), plain).otherwise(themed)
