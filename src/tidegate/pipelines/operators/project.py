"""`project`: selects, renames and computes attributes, with defaults."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.pipelines.records import col
from tidegate.pipelines.types import spark_type
from tidegate.services import expressions, operators


def apply(frame: DataFrame, operator: operators.Project, before: Schema, after: Schema) -> DataFrame:
    """Return events with the attributes of the projection, the kept ones first."""
    attributes = {field.name for field in before.root}
    own = [name for name in frame.columns if name not in attributes]
    columns = [
        (_computed(operator.attributes[field.name], before) if field.name in operator.attributes else col(field.name))
        .cast(spark_type(field.type))
        .alias(field.name)
        for field in after.root
    ]
    return frame.select(*columns, *own)


def _computed(computed: operators.Computed, schema: Schema) -> Column:
    expression = expressions.resolve(computed.expression, schema, type=computed.type, default=computed.default)
    return F.expr(expressions.to_sql(expression))
