"""`aggregate`: sum, count, min, max, avg of each window, by keys."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.model.types import Enum, Type
from tidegate.pipelines.operators import windows
from tidegate.pipelines.records import col
from tidegate.pipelines.types import spark_type
from tidegate.services.operators import Aggregate, Aggregation, Incremental, TimeWindow


def apply(frame: DataFrame, operator: Aggregate, before: Schema, after: Schema) -> DataFrame:
    """Return one event per key and window when the window closes, or one at every change."""
    if isinstance(operator.window, TimeWindow):
        return _in_time(frame, operator, operator.window, before, after)
    arrays = windows.as_arrays(frame, operator.window, operator.by, before)
    values = {f"_value{n}": _over_array(aggregation, before) for n, aggregation in enumerate(operator.aggregations)}
    valued = arrays.select("*", *(value.alias(name) for name, value in values.items()))
    return windows.results(valued, _attributes(operator.aggregations, before, after))


def _in_time(frame: DataFrame, operator: Aggregate, window: TimeWindow, before: Schema, after: Schema) -> DataFrame:
    grouped = (
        windows.watermark(frame, window.lateness_s)
        .groupBy(windows.in_time(window).alias("window"), *(col(name) for name in operator.by))
        .agg(*_grouped(operator.aggregations, before))
    )
    opened = grouped.select(
        "*", F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")
    ).withColumn("_clock", F.window_time("window"))
    place = F.concat(windows.key_text(operator.by), F.lit("@"), windows.time_text(F.col("window_end")))
    return _events(opened, place, operator.emit == "updates", _attributes(operator.aggregations, before, after))


def apply_running(frame: DataFrame, operator: Incremental, before: Schema, after: Schema) -> DataFrame:
    """Aggregate all events so far. Returns one event per key at every change."""
    grouped = frame.groupBy(*(col(name) for name in operator.by)).agg(
        *_grouped(operator.aggregations, before),
        F.min("_time").alias("window_start"),
        F.max("_time").alias("window_end"),
    )
    # Without keys, an empty micro-batch, such as the first one, has a group too.
    opened = grouped.where(F.col("_count") > 0).select("*", F.col("window_end").alias("_clock"))
    return _events(opened, windows.key_text(operator.by), True, _attributes(operator.aggregations, before, after))


def _grouped(aggregations: Sequence[Aggregation], before: Schema) -> list[Column]:
    values = [_over_group(aggregation, before).alias(f"_value{n}") for n, aggregation in enumerate(aggregations)]
    return [*values, F.count(F.lit(1)).alias("_count"), F.max("_arrived").alias("_arrived")]


def _events(frame: DataFrame, place: Column, updates: bool, attributes: dict[str, Column]) -> DataFrame:
    """Return groups with the columns that every frame of events has."""
    own: dict[str, Column] = {
        "_key": place,
        "_revision": F.col("_count") if updates else F.lit(0).cast("long"),
        "_id": F.concat(place, F.lit("#"), F.col("_count").cast("string")) if updates else place,
        "_arrived": F.col("_arrived"),
    }
    return windows.results(frame, attributes, own)


def over_arrays(
    aggregations: Sequence[Aggregation], before: Schema, after: Schema, named: dict[str, Column]
) -> dict[str, Column]:
    """Return the output attributes of a window, from the array `_events`; `named` are those that are not aggregated."""
    columns = dict(named)
    for aggregation in aggregations:
        value = _over_array(aggregation, before)
        if aggregation.name is not None:
            columns[aggregation.name] = value
        else:
            columns = {**{field.name: value.getField(field.name) for field in before.root}, **columns}
    return {field.name: columns[field.name].try_cast(spark_type(field.type)) for field in after.root}


def _attributes(aggregations: Sequence[Aggregation], before: Schema, after: Schema) -> dict[str, Column]:
    """Return the output attributes: the keys, the window, and the aggregated values."""
    columns: dict[str, Column] = {}
    for n, aggregation in enumerate(aggregations):
        if aggregation.name is not None:
            columns[aggregation.name] = F.col(f"_value{n}")
        else:
            whole = F.col(f"_value{n}")
            columns |= {field.name: whole.getField(field.name) for field in before.root if field.name not in columns}
    return {
        field.name: columns.get(field.name, col(field.name)).try_cast(spark_type(field.type)).alias(field.name)
        for field in after.root
    }


def _over_group(aggregation: Aggregation, before: Schema) -> Column:
    if aggregation.attribute is None:
        return F.count(F.lit(1))
    value = col(aggregation.attribute)
    match aggregation.function:
        case "count":
            return F.count(value)
        case "sum":
            return F.try_sum(_summand(value, _type(aggregation, before)))
        case "avg":
            total = F.try_sum(_summand(value, _type(aggregation, before)))
            return F.try_divide(total.cast("double"), F.count(value).cast("double"))
    is_min, kind = aggregation.function == "min", _type(aggregation, before)
    extreme, rank = F.min_by if is_min else F.max_by, windows.rank(value, kind)
    if aggregation.name is not None:
        return extreme(value, rank) if isinstance(kind, Enum) else F.min(value) if is_min else F.max(value)
    event = F.struct(*(col(field.name) for field in before.root))
    return extreme(event, F.when(value.isNotNull(), F.struct(rank, F.col("_id"))))


def _over_array(aggregation: Aggregation, before: Schema) -> Column:
    if aggregation.attribute is None:
        return F.size("_events").cast("long")
    name, kind = aggregation.attribute, _type(aggregation, before)
    values = F.filter(F.transform("_events", lambda e: e[name]), lambda v: v.isNotNull())
    match aggregation.function:
        case "count":
            return F.size(values).cast("long")
        case "sum":
            return F.when(F.size(values) > 0, _total(values, kind))
        case "avg":
            return F.try_divide(_total(values, kind).cast("double"), F.size(values).cast("double"))
        case "collect":
            return values
        case "distinct" | "approx_distinct":
            return F.size(F.array_distinct(values)).cast("long")
        case "stddev":
            return _deviation(F.transform(values, lambda v: v.cast("double")))
        case "percentile":
            return _percentile(F.transform(values, lambda v: v.cast("double")), aggregation.share or 0.5)
    present = F.filter("_events", lambda e: e[name].isNotNull())
    if aggregation.function in ("first", "last"):
        ordered = F.transform(
            present, lambda e: F.struct(e["_time"].alias("t"), _place(e).alias("p"), e[name].alias("v"))
        )
        return (F.array_min if aggregation.function == "first" else F.array_max)(ordered)["v"]
    extreme = F.array_min if aggregation.function == "min" else F.array_max
    entries = F.transform(
        present, lambda e: F.struct(windows.rank(e[name], kind).alias("r"), e["_id"].alias("i"), e.alias("e"))
    )
    event = extreme(entries)["e"]
    return event if aggregation.name is None else event[name]


def _place(event: Column) -> Column:
    """Return the position of an event in its source, which orders events of the same time."""
    return F.struct(event["_source"], event["_position"], event["_child"])


def _deviation(values: Column) -> Column:
    """Return the sample standard deviation; null for fewer than two values."""
    count = F.size(values).cast("double")
    mean = F.aggregate(values, F.lit(0.0), lambda total, value: total + value) / count
    squares = F.aggregate(values, F.lit(0.0), lambda total, value: total + (value - mean) * (value - mean))
    return F.when(F.size(values) > 1, F.sqrt(squares / (count - 1)))


def _percentile(values: Column, share: float) -> Column:
    """Return the smallest value that at least this share of the values does not exceed."""
    rank = F.greatest(F.ceil(F.size(values) * F.lit(share)).cast("int"), F.lit(1))
    return F.when(F.size(values) > 0, F.get(F.array_sort(values), rank - 1))


def _type(aggregation: Aggregation, before: Schema) -> Type:
    field = before.root.get(str(aggregation.attribute))
    assert field is not None
    return field.type


def _summand(value: Column, kind: Type) -> Column:
    """Return a value in a type so wide that a sum does not depend on the order of the values."""
    return value.cast("decimal(20,0)") if str(kind) in ("int64", "uint64") else value


def _total(values: Column, kind: Type) -> Column:
    wide = "decimal(38,0)" if kind.kind == "int" else "double"
    return F.aggregate(values, F.lit(0).cast(wide), lambda total, value: (total + value.cast(wide)).cast(wide))
