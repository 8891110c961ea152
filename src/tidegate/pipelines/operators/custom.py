"""`custom`: a Python function over Arrow batches."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from tidegate.errors import ServiceError
from tidegate.model import Schema
from tidegate.model.types import Type
from tidegate.pipelines.records import OWN, PROBLEM, col
from tidegate.pipelines.resources import import_function
from tidegate.pipelines.types import spark_type
from tidegate.services import operators

Function = Callable[..., Iterable[pa.RecordBatch]]


_TICKS = ("_tick", "_ticking")


def over_batches(frame: DataFrame, operator: operators.Custom, before: Schema, target: str) -> DataFrame:
    """Give the events to the function, batch by batch; ticks and refused records pass. `target` is its import path.

    The driver imports it too, so that a function that can't be imported fails before a task starts: raises a
    `ServiceError`.
    """
    import_function(target, operator.function)
    own = [name for name in frame.columns if name in {*OWN, *PROBLEM, *_TICKS}]
    given = [field.name for field in before.root]
    source = frame.select(*(col(name) for name in given), *own)
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
            is_event = batch.column("_problem").is_null()
            if "_tick" in own:
                is_event = pc.and_(is_event, batch.column("_tick").is_null())
            events, others = batch.filter(is_event), batch.filter(pc.invert(is_event))
            if events.num_rows:
                yield _children(function, operator, events, given, own)
            if others.num_rows:
                yield _passed(operator, others, own)

    return source.mapInArrow(run, kind)


def _passed(operator: operators.Custom, batch: pa.RecordBatch, own: list[str]) -> pa.RecordBatch:
    """Return ticks and refused records, without attributes."""
    columns: dict[str, Any] = {
        field.name: pa.nulls(batch.num_rows, _carried_type(field.type)) for field in operator.schema.root
    }
    columns |= {name: batch.column(name) for name in own}
    columns["_key"] = batch.column("_id")
    columns["_revision"] = pa.array([0] * batch.num_rows, pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def _children(
    function: Function,
    operator: operators.Custom,
    batch: pa.RecordBatch,
    attributes: list[str],
    own: list[str],
) -> pa.RecordBatch:
    """Call the function with one batch, and give each row of its result the position and ids of its event."""
    results = _call(function, operator, batch.select([*attributes, "_id", "_time"]))
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


def _call(function: Function, operator: operators.Custom, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Call the function with one batch. Raises `ServiceError` if it raises, or gives anything but record batches."""
    try:
        results = list(function(iter([batch]), **operator.options))
    except Exception as exc:  # the function may raise anything
        frames = traceback.extract_tb(exc.__traceback__)
        place = f", at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if len(frames) > 1 else ""
        said = f": {exc}" if str(exc) else ""
        message = f"custom function {operator.function!r} raised {type(exc).__name__}{said}{place}"
        raise ServiceError(" ".join(message.split())) from exc
    for result in results:
        if not isinstance(result, pa.RecordBatch):
            raise ServiceError(
                f"custom function {operator.function!r} gave a {type(result).__name__}: expected pyarrow.RecordBatch"
            )
    return results


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
    kind, carried = operator.schema.to_arrow().field(name).type, _carried_type(field.type)
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


def _carried_type(kind: Type) -> pa.DataType:
    """Return the Arrow type in which Spark takes values of a type."""
    return to_arrow_type(spark_type(kind), timezone="UTC")


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def _column_of(result: pa.RecordBatch, name: str, operator: operators.Custom) -> pa.Array:
    if name not in result.schema.names:
        raise ServiceError(
            f"custom function {operator.function!r} gave a batch without {name!r}; it has "
            f"{', '.join(result.schema.names) or 'no columns'}, and its schema "
            f"{', '.join(field.name for field in operator.schema.root)}"
        )
    return result.column(name)


def over_windows(rows: DataFrame, operator: operators.Custom, before: Schema, target: str) -> DataFrame:
    """Give the events of each window to the function: the arrays `_events` of rows of the state engine.

    Each row that it returns has the columns of its window, named with `_`, and a number, `_ordinal`. Other rows pass.
    """
    import_function(target, operator.function)
    given = [field.name for field in before.root]
    made = [field.name for field in operator.schema.root]
    kept = [name for name in rows.columns if name not in ("_events", "events", "values")]
    source = rows.select(*kept, "_events")
    kind = spark.StructType(
        [
            *(spark.StructField(field.name, spark_type(field.type)) for field in operator.schema.root),
            spark.StructField("_ordinal", spark.IntegerType()),
            *(spark.StructField(f"_{name}", source.schema[name].dataType) for name in kept),
        ]
    )

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = import_function(target, operator.function)
        for batch in batches:
            for n in range(batch.num_rows):
                row = batch.slice(n, 1)
                events = row.column("_events")[0].values
                if events is None:
                    results, size = [], 1
                    columns: dict[str, Any] = {
                        field.name: pa.nulls(1, _carried_type(field.type)) for field in operator.schema.root
                    }
                else:
                    held = pa.RecordBatch.from_struct_array(events).select([*given, "_id", "_time"])
                    results = _call(function, operator, held)
                    size = sum(result.num_rows for result in results)
                    columns = {name: _column(results, name, operator) for name in made}
                columns["_ordinal"] = pa.array(range(size), pa.int32())
                same = row.take(pa.array([0] * size, pa.int64()))
                yield pa.RecordBatch.from_pydict(columns | {f"_{name}": same.column(name) for name in kept})

    return source.mapInArrow(run, kind)
