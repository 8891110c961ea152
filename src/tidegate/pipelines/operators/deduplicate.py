"""`deduplicate`: let each event through once."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.pipelines.operators import windows
from tidegate.services import operators


def by_time(operator: operators.Deduplicate, schema: Schema) -> bool:
    """Whether two of a kind have the same event time: then real-time mode can do it."""
    return not operator.by or schema.event_time in operator.by


def apply(frame: DataFrame, operator: operators.Deduplicate, schema: Schema) -> DataFrame:
    """Drop what was there already; each state is kept for `within_s` of event time."""
    timed = windows.watermark(frame, operator.within_s)
    keys = list(operator.by) or ["_id"]
    if by_time(operator, schema):
        once = timed.dropDuplicates([*keys, "_clock"])
    else:
        once = timed.dropDuplicatesWithinWatermark(keys)
    return once.withColumn("_key", F.col("_id")).withColumn("_revision", F.lit(0).cast("long"))
