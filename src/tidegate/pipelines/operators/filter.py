"""`filter`: keep the events that match."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.errors import FilterNotNative
from tidegate.filters import Filter
from tidegate.model import Schema
from tidegate.pipelines.filters import truth, truth_by_arrow
from tidegate.services import operators


def is_native(operator: operators.Filter, schema: Schema) -> bool:
    """Whether Spark evaluates it by itself, without Python."""
    try:
        truth(_filter(operator, schema))
    except FilterNotNative:
        return False
    return True


def apply(frame: DataFrame, operator: operators.Filter, schema: Schema) -> DataFrame:
    """Keep what matches, and what has a problem: that is for the quarantine."""
    filter_ = _filter(operator, schema)
    try:
        matches = truth(filter_)
    except FilterNotNative:
        matches = truth_by_arrow(frame, filter_)
    return frame.where(F.col("_problem").isNotNull() | matches)


def _filter(operator: operators.Filter, schema: Schema) -> Filter:
    return Filter(operator.text, schema, list(operator.params))
