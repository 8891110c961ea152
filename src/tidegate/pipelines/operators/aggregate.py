"""The aggregates of windows by count, over the events of each."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.model.types import Type
from tidegate.pipelines.operators import windows
from tidegate.pipelines.types import spark_type
from tidegate.services.operators import Aggregation


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


def _total(values: Column, kind: Type) -> Column:
    wide = "decimal(38,0)" if kind.kind == "int" else "double"
    return F.aggregate(values, F.lit(0).cast(wide), lambda total, value: (total + value.cast(wide)).cast(wide))
