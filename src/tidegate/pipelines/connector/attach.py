"""The calls into PySpark that are not its public interface, all of them.

Python has no way to hand Spark a Java writer, or to see why a query ended but
for a stack trace. Tests hold these to the pinned version.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter


def java(spark: SparkSession) -> Any:
    """The connector's Java package in the driver's JVM."""
    return spark._jvm.tidegate  # type: ignore[union-attr]


def real_time(writer: DataStreamWriter, epoch: str) -> DataStreamWriter:
    """Let a query run in real-time mode, with a checkpoint every so often; PySpark's types do not know it yet."""
    return writer.trigger(realTime=epoch)  # type: ignore[call-overload, no-any-return]


def start(writer: DataStreamWriter, java_writer: Any) -> StreamingQuery:
    """Start a query that hands its rows to a Java `ForeachWriter`."""
    return StreamingQuery(writer._jwrite.foreach(java_writer).start())


def cause(query: StreamingQuery) -> str | None:
    """Why a query ended, in a line or two; None where it did not, or was stopped."""
    found = query._jsq.exception()
    if not found.isDefined():
        return None
    problem = found.get()
    while problem.getCause() is not None:
        problem = problem.getCause()
    name = problem.getClass().getSimpleName()
    lines = str(problem.getMessage() or "").strip().splitlines()
    said = [line for line in lines if line.strip() and not line.startswith(("\tat ", "=== ", "  File "))]
    return f"{name}: {' '.join(said[:1] + said[-1:] if len(said) > 1 else said)}"[:600]


def spark_plan(frame: DataFrame) -> str:
    """What Spark's optimizer makes of a frame that is no stream."""
    return str(frame._jdf.queryExecution().optimizedPlan().toString())
