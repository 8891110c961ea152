"""Runs the matcher in Spark: for many filters over past events, or for more than one gateway can match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from tidegate.filters import Filter
from tidegate.model import Schema
from tidegate.pipelines.types import from_spark

SUBSCRIPTION = "_subscription"
DEGREE = "_degree"


def match(frame: DataFrame, filters: Mapping[str, Filter], schema: Schema | None = None) -> DataFrame:
    """Return one row for each pair of an event and a filter that matches it: the event, `_subscription` and `_degree`.

    For batch and micro-batch frames. Every worker has an index of all filters, and matches one partition of the frame
    at a time. Pass `schema` if the types of the frame do not state all of it (enums, unsigned integers).
    """
    kind = schema or from_spark(frame.schema)
    meaning = next((filter_.meaning for filter_ in filters.values() if filter_.meaning is not None), None)
    texts = [(name, filter_.text, tuple(filter_.params)) for name, filter_ in filters.items()]

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from tidegate.matching import Matcher

        matcher = Matcher(kind, semantics=meaning)
        matcher.add_all({name: Filter(text, kind, list(params)) for name, text, params in texts})
        for batch in batches:
            result = matcher.match(batch)
            events, names = result.pairs()
            rows = batch.take(pa.array(events, pa.int64()))
            columns = [*rows.columns, pa.array(names, pa.string()), pa.array(result.degrees(), pa.float64())]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, SUBSCRIPTION, DEGREE])

    added = [spark.StructField(SUBSCRIPTION, spark.StringType()), spark.StructField(DEGREE, spark.DoubleType())]
    return frame.mapInArrow(run, spark.StructType([*frame.schema.fields, *added]))
