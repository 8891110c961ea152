"""`sort`: emits the events of each window in order."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.pipelines.operators import windows
from tidegate.services import operators


def apply(frame: DataFrame, operator: operators.Sort, schema: Schema) -> DataFrame:
    """Return the events of a window in order when it closes; missing values are last."""
    arrays = windows.as_arrays(frame, operator.window, (), schema)
    ordered = F.array_sort("_events", lambda a, b: compare(operator.by, schema, a, b))
    rows = arrays.select("*", F.posexplode(ordered).alias("_ordinal", "_event"))
    event = F.col("_event")
    attributes = {field.name: event.getField(field.name) for field in schema.root}
    # The number of the window, not its end: several windows by count may end at the same time.
    place = F.concat(F.col("_event._id"), F.expr("substring(_key, 2)"))
    own = {
        "_id": place,
        "_key": F.concat(F.col("_key"), F.lit("/"), F.col("_ordinal").cast("string")),
        "_time": F.col("_event._time"),
        "_themes": F.col("_event._themes"),
        "_child": F.col("_ordinal"),
        "_arrived": F.col("_event._arrived"),
    }
    return windows.results(rows, {name: value.alias(name) for name, value in attributes.items()}, own)


def compare(by: tuple[operators.SortKey, ...], schema: Schema, a: Column, b: Column) -> Column:
    """Return a negative number, zero or a positive number: compares attribute by attribute, then order of arrival."""
    outcome = F.lit(0)
    for key in reversed(by):
        field = schema.root.get(key.attribute)
        assert field is not None
        x, y = windows.rank(a[key.attribute], field.type), windows.rank(b[key.attribute], field.type)
        less, more = (1, -1) if key.descending else (-1, 1)
        outcome = (
            F.when(x.isNull() & y.isNull(), outcome)
            .when(x.isNull(), F.lit(1))
            .when(y.isNull(), F.lit(-1))
            .when(x < y, F.lit(less))
            .when(x > y, F.lit(more))
            .otherwise(outcome)
        )
    return outcome
