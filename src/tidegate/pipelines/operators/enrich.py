"""`enrich`: add the columns of a static table."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.model import Schema
from tidegate.pipelines.records import col
from tidegate.pipelines.types import spark_type
from tidegate.services import operators


def apply(frame: DataFrame, operator: operators.Enrich, before: Schema, after: Schema) -> DataFrame:
    """Join with the table, which every task holds; of several rows with one key the first is taken."""
    table = _read(frame, operator.table)
    added = [field for field in after.root if before.root.get(field.name) is None]
    keys = [
        col(name).cast(spark_type(field.type)).alias(f"_on_{name}")
        for name in operator.on
        if (field := before.root.get(name)) is not None
    ]
    columns = [col(field.name).cast(spark_type(field.type)).alias(field.name) for field in added]
    joined = [f"_on_{name}" for name in operator.on]
    rows = table.select(*keys, *columns, F.lit(True).alias("_found")).dropDuplicates(joined)
    on = F.lit(True)
    for name, key in zip(operator.on, joined, strict=True):
        on = on & (col(name) == col(key))
    found = frame.join(F.broadcast(rows), on, "left").drop(*joined)
    if operator.required:
        found = found.where(F.col("_problem").isNotNull() | F.col("_found"))
    return found.drop("_found")


def _read(frame: DataFrame, table: operators.Table) -> DataFrame:
    spark = frame.sparkSession
    if table.url is not None:
        return spark.read.format("jdbc").option("url", table.url).option("dbtable", str(table.table)).load()
    path = str(table.path)
    kind = table.format or Path(path).suffix.lstrip(".")
    if kind == "parquet":
        return spark.read.parquet(path)
    return spark.read.option("header", True).csv(path)
