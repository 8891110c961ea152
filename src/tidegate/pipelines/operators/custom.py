"""`custom`: a Python function over Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from tidegate.errors import ServiceError
from tidegate.model import Schema
from tidegate.pipelines.operators import windows
from tidegate.pipelines.records import OWN, PROBLEM, col
from tidegate.pipelines.resources import import_function
from tidegate.pipelines.types import spark_type
from tidegate.services import operators

Function = Callable[..., Iterable[pa.RecordBatch]]


def apply(frame: DataFrame, operator: operators.Custom, before: Schema, target: str) -> DataFrame:
    """Call the function with batches of events, or with the events of each window. `target` is its import path.

    The driver imports it too, so that a function that can't be imported fails before a task starts: raises a
    `ServiceError`.
    """
    import_function(target, operator.function)
    if operator.window is None:
        return _by_batch(frame, operator, before, target)
    return _by_window(frame, operator, operator.window, before, target)


def _by_batch(frame: DataFrame, operator: operators.Custom, before: Schema, target: str) -> DataFrame:
    own = [name for name in frame.columns if name in {*OWN, *PROBLEM}]
    attributes = [field.name for field in before.root]
    source = frame.select(*(col(name) for name in attributes), *own)
    kind = spark.StructType(
        [
            *(spark.StructField(field.name, spark_type(field.type)) for field in operator.schema.root),
            *(source.schema[name] for name in own),
            spark.StructField("_key", spark.StringType()),
            spark.StructField("_revision", spark.LongType()),
        ]
    )

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = import_function(target, operator.function)
        for batch in batches:
            if batch.num_rows:
                yield _children(function, operator, batch, attributes, own)

    return source.mapInArrow(run, kind)


def _children(
    function: Function,
    operator: operators.Custom,
    batch: pa.RecordBatch,
    attributes: list[str],
    own: list[str],
) -> pa.RecordBatch:
    """Call the function with one batch, and give each row of its result the position and ids of its event."""
    results = list(function(iter([batch.select([*attributes, "_id", "_time"])]), **operator.options))
    ids = batch.column("_id").to_pylist()
    parents = _parents(results, ids, operator)
    count: dict[int, int] = {}
    children = []
    for parent in parents:
        children.append(count.get(parent, 0))
        count[parent] = children[-1] + 1
    columns: dict[str, Any] = {field.name: _column(results, field.name, operator) for field in operator.schema.root}
    parent_rows = batch.take(pa.array(parents, pa.int64()))
    columns |= {name: parent_rows.column(name) for name in own}
    columns["_child"] = pa.array(children, pa.int32())
    keys = [ids[p] if c == 0 else f"{ids[p]}/{c}" for p, c in zip(parents, children, strict=True)]
    columns["_id"] = columns["_key"] = pa.array(keys, pa.string())
    columns["_revision"] = pa.array([0] * len(keys), pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def _parents(results: list[pa.RecordBatch], ids: list[str], operator: operators.Custom) -> list[int]:
    """Return the event of each row, as an index: by `_id`, or without ids by position if there are as many rows."""
    if not any("_id" in result.schema.names for result in results):
        size = sum(result.num_rows for result in results)
        if size not in (0, len(ids)):
            raise ServiceError(
                f"custom function {operator.function!r} gave {size} rows for {len(ids)} events, without _id: "
                "expected the _id of the event that each comes from"
            )
        return list(range(size))
    place = {name: n for n, name in enumerate(ids)}
    named = [id_ for result in results for id_ in _column_of(result, "_id", operator).to_pylist()]
    for name in named:
        if name not in place:
            raise ServiceError(
                f"custom function {operator.function!r} gave a row with _id {name!r}, which no event of its batch has"
            )
    return [place[name] for name in named]


def _column(results: list[pa.RecordBatch], name: str, operator: operators.Custom) -> pa.Array:
    field = operator.schema.root.get(name)
    assert field is not None
    kind, carried = operator.schema.to_arrow().field(name).type, to_arrow_type(spark_type(field.type), timezone="UTC")
    pieces = []
    for result in results:
        column = _column_of(result, name, operator)
        try:
            pieces.append(_cast(_cast(column, kind), carried))
        except pa.ArrowException as exc:
            raise ServiceError(
                f"custom function {operator.function!r} gave {name!r} as {column.type}, which does not fit "
                f"{field.type}: {exc}"
            ) from exc
    return pa.concat_arrays(pieces) if pieces else pa.array([], carried)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def _column_of(result: pa.RecordBatch, name: str, operator: operators.Custom) -> pa.Array:
    if name not in result.schema.names:
        raise ServiceError(
            f"custom function {operator.function!r} gave a batch without {name!r}; it has "
            f"{', '.join(result.schema.names)}"
        )
    return result.column(name)


def _by_window(
    frame: DataFrame, operator: operators.Custom, window: operators.Window, before: Schema, target: str
) -> DataFrame:
    arrays = windows.as_arrays(frame, window, operator.by, before)
    attributes = [field.name for field in before.root]
    declared = [field.name for field in operator.schema.root]
    source = arrays.select("_key", "window_end", "_clock", "_events")
    kind = spark.StructType(
        [
            *(spark.StructField(field.name, spark_type(field.type)) for field in operator.schema.root),
            spark.StructField("_ordinal", spark.IntegerType()),
            spark.StructField("_arrived", spark.LongType()),
            *(source.schema[name] for name in ("_key", "window_end", "_clock")),
        ]
    )

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = import_function(target, operator.function)
        for batch in batches:
            for n in range(batch.num_rows):
                rows = pa.RecordBatch.from_struct_array(batch.column("_events")[n].values)
                results = list(function(iter([rows.select([*attributes, "_id", "_time"])]), **operator.options))
                size = sum(result.num_rows for result in results)
                columns: dict[str, Any] = {name: _column(results, name, operator) for name in declared}
                columns["_ordinal"] = pa.array(range(size), pa.int32())
                columns["_arrived"] = pa.array([max(rows.column("_arrived").to_pylist())] * size, pa.int64())
                same = batch.take(pa.array([n] * size, pa.int64()))
                columns |= {name: same.column(name) for name in ("_key", "window_end", "_clock")}
                yield pa.RecordBatch.from_pydict(columns)

    mapped = source.mapInArrow(run, kind)
    place = F.concat("_key", F.lit("/"), F.col("_ordinal").cast("string"))
    own = {"_id": place, "_key": place, "_child": F.col("_ordinal"), "_arrived": F.col("_arrived")}
    return windows.results(mapped, {name: col(name).alias(name) for name in declared}, own)
