"""`enrich`: adds the columns of a static table."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.errors import ServiceError
from tidegate.model import Schema
from tidegate.pipelines import static_tables
from tidegate.pipelines.records import col
from tidegate.pipelines.resources import OR_STATE_AGAIN, RunnerResources
from tidegate.pipelines.types import spark_type
from tidegate.services import operators, tables
from tidegate.services.definitions import Origin

_DRIVERS = {"jdbc:postgresql:": "org.postgresql.Driver"}
"""JDBC driver by the beginning of a URL. Others must be on the class path."""


def apply(
    frame: DataFrame,
    operator: operators.Enrich,
    before: Schema,
    after: Schema,
    resources: RunnerResources,
    origin: Origin,
) -> DataFrame:
    """Join with the table, which is broadcast to every task. Of several rows with one key the first is used."""
    table = _read(frame, operator.table, resources, origin)
    added = [field for field in after.root if before.root.get(field.name) is None]
    on_fields = [field for field in before.root if field.name in operator.on]
    _need([field.name for field in (*on_fields, *added)], table, operator.table)
    keys = [col(field.name).try_cast(spark_type(field.type)).alias(f"_on_{field.name}") for field in on_fields]
    columns = [col(field.name).try_cast(spark_type(field.type)).alias(field.name) for field in added]
    joined = [f"_on_{name}" for name in operator.on]
    rows = table.select(*keys, *columns, F.lit(True).alias("_found")).dropDuplicates(joined)
    on = F.lit(True)
    for name, key in zip(operator.on, joined, strict=True):
        on = on & (col(name) == col(key))
    enriched = frame.join(F.broadcast(rows), on, "left").drop(*joined)
    if operator.required:
        rest = F.col("_problem").isNotNull()
        if "_tick" in enriched.columns:
            rest = rest | F.col("_tick").isNotNull()
        enriched = enriched.where(rest | F.col("_found"))
    return enriched.drop("_found")


def _confined(spark: SparkSession, table: operators.Table, resources: RunnerResources) -> DataFrame:
    """Read the file of a definition that came over the network.

    Here and not in Spark, which would follow a symbolic link that is planted after the check, and knows URLs.
    """
    if table.path is None:
        raise ServiceError(
            "a definition that came over the network names no database of its own: expected a connection of the "
            f"profile, {OR_STATE_AGAIN}"
        )
    rows = static_tables.read(table, resources.opener(table.path, "remote"))
    return spark.createDataFrame(rows)


def _need(names: list[str], rows: DataFrame, table: operators.Table) -> None:
    missing = [name for name in names if name not in rows.columns]
    if missing:
        raise ServiceError(
            f"expected columns {', '.join(missing)} in table {table.path or table.table!r}; "
            f"it has {', '.join(rows.columns)}"
        )


def _read(frame: DataFrame, table: operators.Table, resources: RunnerResources, origin: Origin) -> DataFrame:
    spark = frame.sparkSession
    if table.connection is not None:
        options = resources.jdbc(table.connection).options()
        return spark.read.format("jdbc").options(**options).option("dbtable", str(table.table)).load()
    if origin != "operator":
        return _confined(spark, table, resources)
    if table.url is not None:
        reader = spark.read.format("jdbc").option("url", table.url).option("dbtable", str(table.table))
        # Java searches the class path of the JVM for drivers, not the jars of a session, so the driver is named.
        driver = next((name for start, name in _DRIVERS.items() if table.url.startswith(start)), None)
        return (reader.option("driver", driver) if driver else reader).load()
    if tables.table_format(table) == "parquet":
        return spark.read.parquet(str(table.path))
    # RFC 4180: a quote inside quotes is doubled, and a value may contain line breaks.
    rows = spark.read.csv(str(table.path), header=True, escape='"', multiLine=True)
    return rows.toDF(*(name.strip() for name in rows.columns))
