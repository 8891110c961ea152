"""The matcher inside Spark: many filters over history, or more than one gateway can match."""

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
    """One row for each event and filter that it matches: the event, `_subscription` and `_degree`.

    For batches and micro-batches. Every worker holds an index of all filters;
    the frame's partitions are what is matched at once. `schema` is that of the
    events where the frame's own types do not say it all (enums, unsigned).
    """
    kind = schema or from_spark(frame.schema)
    meaning = next((each.meaning for each in filters.values() if each.meaning is not None), None)
    given = [(name, each.text, tuple(each.params)) for name, each in filters.items()]

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from tidegate.matching import Matcher

        matcher = Matcher(kind, semantics=meaning)
        matcher.add_all({name: Filter(text, kind, list(params)) for name, text, params in given})
        for batch in batches:
            found = matcher.match(batch)
            events, names = found.pairs()
            rows = batch.take(pa.array(events, pa.int64()))
            columns = [*rows.columns, pa.array(names, pa.string()), pa.array(found.degrees(), pa.float64())]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, SUBSCRIPTION, DEGREE])

    added = [spark.StructField(SUBSCRIPTION, spark.StringType()), spark.StructField(DEGREE, spark.DoubleType())]
    return frame.mapInArrow(run, spark.StructType([*frame.schema.fields, *added]))
