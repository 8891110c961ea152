"""`join`: pairs events of two streams that are close in time."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.pipelines.operators import windows
from tidegate.services import operators
from tidegate.services import schema_inference as shapes


def apply(
    left: DataFrame, right: DataFrame, operator: operators.Join, schemas: tuple[Schema, Schema], right_name: str
) -> DataFrame:
    """Return pairs of events that agree on the attributes and are at most `within_s` apart, each pair once."""
    ours, theirs = schemas
    a = windows.watermark(left, operator.lateness_s).alias("a")
    b = windows.watermark(right, operator.lateness_s).alias("b")
    apart = F.expr(f"INTERVAL '{operator.within_s:.6f}' SECOND")
    near = (F.col("b._clock") >= F.col("a._clock") - apart) & (F.col("b._clock") <= F.col("a._clock") + apart)
    for name in operator.on:
        near = near & (_of("a", name) == _of("b", name))
    pairs = a.join(b, near, "inner")
    attributes = [_of("a", field.name).alias(field.name) for field in ours.root]
    for field in theirs.root:
        if field.name in operator.on:
            continue
        name = shapes.joined_name(right_name, field.name) if ours.root.get(field.name) is not None else field.name
        attributes.append(_of("b", field.name).alias(name))
    place = F.concat(windows.escaped(F.col("a._id"), "%+"), F.lit("+"), F.col("b._id"))
    own: dict[str, Column] = {
        "_id": place,
        "_time": F.greatest("a._time", "b._time"),
        "_themes": F.coalesce(F.array_union("a._themes", "b._themes"), F.col("a._themes"), F.col("b._themes")),
        "_clock": F.col("a._clock"),
        "_partition": F.lit(None).cast("string"),
        "_source": F.lit(None).cast("string"),
        "_position": F.lit(0).cast("long"),
        "_child": F.lit(0),
        "_arrived": F.greatest("a._arrived", "b._arrived"),
        "_problem": F.lit(None).cast("string"),
        "_raw": F.lit(None).cast("string"),
        "_key": place,
        "_revision": F.lit(0).cast("long"),
    }
    return pairs.select(*attributes, *(value.alias(name) for name, value in own.items()))


def _of(side: str, name: str) -> Column:
    return F.col(f"{side}.`{name.replace('`', '``')}`")
