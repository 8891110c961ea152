"""`deduplicate`: keeps the first of several equal events."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.pipelines.operators import windows
from tidegate.services import operators


def by_time(operator: operators.Deduplicate, schema: Schema) -> bool:
    """Return True if duplicates always have the same event time."""
    return not operator.by or schema.event_time in operator.by


def apply(frame: DataFrame, operator: operators.Deduplicate, schema: Schema) -> DataFrame:
    """Drop events that equal an earlier one. Keys are kept for `within_s` of event time."""
    timed = windows.watermark(frame, operator.within_s)
    keys = list(operator.by) or ["_id"]
    if by_time(operator, schema):
        once = timed.dropDuplicates([*keys, "_clock"])
    else:
        once = timed.dropDuplicatesWithinWatermark(keys)
    return once.withColumn("_key", F.col("_id")).withColumn("_revision", F.lit(0).cast("long"))
