"""Counts the past events of a stream that a filter matches."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.errors import FilterNotNative
from tidegate.filters import Filter
from tidegate.model import timestamps
from tidegate.pipelines import records
from tidegate.pipelines.filters import truth, truth_by_arrow
from tidegate.pipelines.streams import Streams


@dataclass(frozen=True)
class Backtest:
    """The past events of a stream that a filter matches."""

    events: int
    """Number of events in the requested time that the stream still holds."""
    matched: int
    first: str | None
    """The event time of the first match."""
    last: str | None
    sample: list[dict[str, Any]]
    """The newest matches."""


def backtest(
    streams: Streams,
    stream: str,
    filter_: Filter,
    since_micros: int | None = None,
    sample: int = 5,
) -> Backtest:
    """Count the retained events of a stream that a filter matches, with an event time of at least `since_micros`."""
    schema = filter_.schema
    assert schema is not None, "a filter of a service has its schema"
    # Of records that do not fit the schema nothing is known.
    events = records.parser(schema)(streams.retained(stream), stream).where(F.col("_problem").isNull())
    if since_micros is not None:
        events = events.where(F.col("_time") >= F.timestamp_micros(F.lit(since_micros)))
    try:
        matches = truth(filter_)
    except FilterNotNative:
        matches = truth_by_arrow(events, filter_)
    judged = events.withColumn("_matches", F.coalesce(matches, F.lit(False))).cache()
    try:
        counts = judged.agg(
            F.count(F.lit(1)).alias("events"),
            F.count_if("_matches").alias("matched"),
            F.unix_micros(F.min(F.when(F.col("_matches"), F.col("_time")))).alias("first"),
            F.unix_micros(F.max(F.when(F.col("_matches"), F.col("_time")))).alias("last"),
        ).collect()[0]
        newest = judged.where("_matches").orderBy(F.col("_time").desc(), "_id").limit(sample).select("_raw").collect()
    finally:
        judged.unpersist()
    return Backtest(
        counts["events"],
        counts["matched"],
        None if counts["first"] is None else timestamps.to_text(counts["first"]),
        None if counts["last"] is None else timestamps.to_text(counts["last"]),
        [json.loads(row["_raw"]) for row in newest],
    )
