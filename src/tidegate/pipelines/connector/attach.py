"""The calls into PySpark that are not its public interface, all of them.

Python has no way to hand Spark a Java writer, or to see why a query ended but
for a stack trace. Tests hold these to the pinned version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter


def java(spark: SparkSession, name: str) -> Any:
    """A class of the connector in the driver's JVM, or a static method: `ServiceWriter`, `Metrics.snapshot`.

    Each is looked up once: the JVM goes through hundreds of jars for a name in a package that is not Spark's.
    """
    return _looked_up(spark._jvm, name)


@cache
def _looked_up(jvm: Any, name: str) -> Any:
    return reduce(getattr, name.split("."), jvm.tidegate)


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the driver's JVM, unless there is one, with these settings on its command line and no others.

    A session that is built in it takes all of its settings from memory, where others can't read them.
    """
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))


def real_time(writer: DataStreamWriter, epoch: str) -> DataStreamWriter:
    """Let a query run in real-time mode, with a checkpoint every so often; PySpark's types do not know it yet."""
    return writer.trigger(realTime=epoch)  # type: ignore[call-overload, no-any-return]


def start(writer: DataStreamWriter, checkpoint: Path, java_writer: Any) -> StreamingQuery:
    """Start a query that hands its rows to a Java `ForeachWriter`."""
    checkpointed = writer.option("checkpointLocation", str(checkpoint))
    return StreamingQuery(checkpointed._jwrite.foreach(java_writer).start())


def cause(query: StreamingQuery) -> str | None:
    """Why a query ended, in a line or two; None where it did not, or was stopped."""
    exception = query._jsq.exception()
    if not exception.isDefined():
        return None
    problem = exception.get()
    while problem.getCause() is not None:
        problem = problem.getCause()
    name = problem.getClass().getSimpleName()
    lines = str(problem.getMessage() or "").strip().splitlines()
    if name == "Py4JException" and (raised := _raised(lines)):
        return raised[:600]
    text = [line for line in lines if line.strip() and not line.startswith(("\tat ", "=== ", "  File ", " SQLSTATE"))]
    return f"{name}: {' '.join(text[:1] + text[-1:] if len(text) > 1 else text)}"[:600]


def _raised(lines: Sequence[str]) -> str:
    """What Python raised in a call from the JVM, of a stack trace: its last line that is not indented.

    >>> _raised(["Return Message: Traceback (most recent call last):", "  File ...", "a.b.Full: no room"])
    'Full: no room'
    """
    ends = [line for line in lines if re.match(r"[\w.]+(: |$)", line)]
    name, *message = ends[-1].partition(": ") if ends else [""]
    return name.rpartition(".")[2] + "".join(message)


def spark_plan(frame: DataFrame) -> str:
    """What Spark's optimizer makes of a frame that is no stream."""
    return str(frame._jdf.queryExecution().optimizedPlan().toString())


def with_state(frame: DataFrame, plan: str) -> DataFrame:
    """Add a stage of the connector's state engine to a frame; PySpark can't hand Spark a Java processor."""
    return DataFrame(java(frame.sparkSession, "KeyedProcessor.apply")(frame._jdf, plan), frame.sparkSession)


def register_state_functions(spark: SparkSession) -> None:
    """Register the SQL functions of the connector that plans with state use."""
    java(spark, "StateFunctions.register")(spark._jsparkSession)
