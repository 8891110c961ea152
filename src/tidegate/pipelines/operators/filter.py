"""`filter`: keeps the events that match."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.errors import FilterNotNative
from tidegate.filters import Filter
from tidegate.model import Schema
from tidegate.pipelines.filters import truth, truth_by_arrow
from tidegate.services import operators


def is_native(operator: operators.FilterOperator, schema: Schema) -> bool:
    """Return True if Spark evaluates the filter natively, without Python."""
    try:
        truth(_filter(operator, schema))
    except FilterNotNative:
        return False
    return True


def apply(frame: DataFrame, operator: operators.FilterOperator, schema: Schema, counts: str = "") -> DataFrame:
    """Keep the events that match, ticks, and records with a problem, which are for the quarantine.

    `counts` names the service whose metrics count the removed events; empty: none, as there is no connector.
    """
    filter_ = _filter(operator, schema)
    try:
        matches = truth(filter_)
    except FilterNotNative:
        matches = truth_by_arrow(frame, filter_)
    if counts:
        matches = F.call_function("tidegate_passes", F.lit(counts), matches)
    rest = F.col("_problem").isNotNull()
    if "_tick" in frame.columns:
        rest = rest | F.col("_tick").isNotNull()
    return frame.where(rest | matches)


def _filter(operator: operators.FilterOperator, schema: Schema) -> Filter:
    return Filter(operator.text, schema, list(operator.params))
