"""`filter`: keeps the events that match."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.errors import FilterNotNative
from tidegate.filters import Filter
from tidegate.model import Schema
from tidegate.pipelines import nativeness
from tidegate.pipelines.filters import truth, truth_by_arrow
from tidegate.services import operators


def is_native(operator: operators.FilterOperator, schema: Schema) -> bool:
    """Return True if Spark evaluates the filter natively, without Python. Needs no JVM."""
    return nativeness.is_native(_filter(operator, schema))


def apply(frame: DataFrame, operator: operators.FilterOperator, schema: Schema, counts: str = "") -> DataFrame:
    """Keep the events that match, ticks, and records with a problem, which are for the quarantine.

    `counts` names the service whose metrics count the removed events; empty: none, as there is no connector.
    """
    passes = matches(frame, operator, schema)
    if counts:
        passes = counted(passes, counts)
    rest = F.col("_problem").isNotNull()
    if "_tick" in frame.columns:
        rest = rest | F.col("_tick").isNotNull()
    return frame.where(rest | passes)


def counted(passes: Column, service: str) -> Column:
    """Return a condition whose failures the metrics of a service count as filtered. It needs the connector."""
    return F.call_function("tidegate_passes", F.lit(service), passes)


def matches(frame: DataFrame, operator: operators.FilterOperator, schema: Schema) -> Column:
    """Return whether the events of a frame match; Python evaluates what has no exact native form."""
    filter_ = _filter(operator, schema)
    try:
        return truth(filter_)
    except FilterNotNative:
        return truth_by_arrow(frame, filter_)


def _filter(operator: operators.FilterOperator, schema: Schema) -> Filter:
    return Filter(operator.text, schema, list(operator.params))
