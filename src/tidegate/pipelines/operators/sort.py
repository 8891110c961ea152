"""The order of the events of a window."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.pipelines.operators import windows
from tidegate.services import operators


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
