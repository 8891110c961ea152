"""All calls of PySpark's private interface.

PySpark has no public way to pass a Java writer to Spark, or to get the cause of a failed query other than as a stack
trace. Tests run every call against the pinned version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter


def java(spark: SparkSession, name: str) -> Any:
    """Return a class or a static method of the connector in the driver's JVM: `ServiceWriter`, `Metrics.snapshot`.

    Results are cached, because a lookup searches hundreds of jars.
    """
    return _looked_up(spark._jvm, name)


@cache
def _looked_up(jvm: Any, name: str) -> Any:
    return reduce(getattr, name.split("."), jvm.tidegate)


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the driver's JVM with only these settings on its command line, which all users of the machine can read.

    Does nothing if it runs already. Other settings are passed to the session in memory.
    """
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))


def real_time(writer: DataStreamWriter, epoch: str) -> DataStreamWriter:
    """Return a writer with the real-time trigger, which PySpark's stubs lack. `epoch` is the checkpoint interval."""
    return writer.trigger(realTime=epoch)  # type: ignore[call-overload, no-any-return]


def start(writer: DataStreamWriter, checkpoint: str, java_writer: Any) -> StreamingQuery:
    """Start a query that passes its rows to a Java `ForeachWriter`."""
    checkpointed = writer.option("checkpointLocation", checkpoint)
    return StreamingQuery(checkpointed._jwrite.foreach(java_writer).start())


def cause(query: StreamingQuery) -> str | None:
    """Return why a query failed, in a line or two; None if it runs or was stopped."""
    exception = query._jsq.exception()
    if not exception.isDefined():
        return None
    problem = exception.get()
    while problem.getCause() is not None:
        problem = problem.getCause()
    name = problem.getClass().getSimpleName()
    lines = str(problem.getMessage() or "").strip().splitlines()
    if name in ("Py4JException", "PythonException") and (raised := _raised(lines)):
        return raised[:600]
    text = [line for line in lines if line.strip() and not line.startswith(("\tat ", "=== ", "  File ", " SQLSTATE"))]
    return f"{name}: {' '.join(text[:1] + text[-1:] if len(text) > 1 else text)}"[:600]


def _raised(lines: Sequence[str]) -> str:
    """Return the Python exception in a stack trace of a call from the JVM: the last line that is not indented.

    >>> _raised(["Return Message: Traceback (most recent call last):", "  File ...", "a.b.Full: no room"])
    'Full: no room'
    """
    ends = [line for line in lines if re.match(r"[\w.]+(: |$)", line)]
    name, *message = ends[-1].partition(": ") if ends else [""]
    return name.rpartition(".")[2] + "".join(message)


def executor_slots(spark: SparkSession) -> int:
    """Return how many tasks the executors of a cluster can run at once, all that live together."""
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    found = [executors.apply(n) for n in range(executors.size())]
    return sum(int(executor.totalCores()) for executor in found if executor.id() != "driver")


def live_tasks(spark: SparkSession, query: StreamingQuery) -> int:
    """Return how many tasks of a query run now; Spark's tracker knows them by the group of the query's jobs."""
    tracker = spark.sparkContext.statusTracker()
    jobs = {*tracker.getJobIdsForGroup(str(query.runId))} & {*tracker.getActiveJobsIds()}
    stages = {stage for job in jobs if (info := tracker.getJobInfo(job)) is not None for stage in info.stageIds}
    return sum(found.numActiveTasks for stage in stages if (found := tracker.getStageInfo(stage)) is not None)


def spark_plan(frame: DataFrame) -> str:
    """Return the optimized plan of a batch frame as text."""
    return str(frame._jdf.queryExecution().optimizedPlan().toString())


def with_state(frame: DataFrame, plan: str) -> DataFrame:
    """Add a stage of the connector's state engine to a frame; PySpark can't hand Spark a Java processor."""
    return DataFrame(java(frame.sparkSession, "KeyedProcessor.apply")(frame._jdf, plan), frame.sparkSession)


def source_clock(service: str, time: Column) -> Column:
    """Return the clock of a source partition for ticks, and null for records, as a `SourceClock` of the connector.

    `service` is empty in micro-batches, where tasks share no values. `time` is null if a record can't be read. The
    other columns are those of `records.SourceClock`.
    """
    place = (F.lit(service), F.col("_source"), F.col("_position"))
    return F.call_function("tidegate_clock", *place, F.col("tick"), F.col("caught_up"), time)


def register_state_functions(spark: SparkSession) -> None:
    """Register the SQL functions of the connector that plans with state use."""
    java(spark, "StateFunctions.register")(spark._jsparkSession)
