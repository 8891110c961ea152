"""Reads and writes the streams of the embedded log in Python."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidegate.logs.segments import SEGMENT_BYTES
from tidegate.pipelines.plain.metrics import PlainMetrics
from tidegate.pipelines.plain.progress import BatchProgress
from tidegate.pipelines.plain.source import PlainSource
from tidegate.pipelines.plain.writer import BatchWriter, WriterOutputs
from tidegate.pipelines.plain.written import resume
from tidegate.pipelines.planner import Plan
from tidegate.pipelines.streams import source_name
from tidegate.services.definitions import Service

_POLLING, POLLING_DELAY = "spark.sql.streaming.pollingDelay", "100ms"
"""Interval between checks for new data. Each check is a request to a Python process per source and query."""


class PlainLog:
    """Reads and writes the streams below a folder, in micro-batches."""

    def __init__(self, spark: SparkSession, root: Path, obstacle: str, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        """`obstacle` is the reason why the connector is not used."""
        self._spark, self._root, self._segment_bytes = spark, root.resolve(), segment_bytes
        self.obstacle = obstacle
        self._metrics = defaultdict[str, PlainMetrics](PlainMetrics)
        self._starts = defaultdict[str, dict[str, Mapping[str, int]]](dict)
        self._writers: dict[str, BatchWriter] = {}
        spark.dataSource.register(PlainSource)
        # Otherwise py4j logs a stack trace when a query is stopped in a batch, or fails because of a constraint.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)

    def scan(
        self,
        stream: str,
        service: str,
        *,
        start: Mapping[str, int] | None = None,
        marks: str | None = None,  # noqa: ARG002 - of the protocol
        inputs: Sequence[str] = (),  # noqa: ARG002 - of the protocol
        ticks: int = 0,
        reading: int = 0,
    ) -> DataFrame:
        """Return a streaming frame of a stream that starts at the given offset of each partition.

        `marks` is not needed: progress is saved when a batch is written.
        """
        self._starts[service][stream] = dict(start or {})
        reader = (
            self._spark.readStream.name(source_name(stream, reading))
            .format(PlainSource.name())
            .option("path", str(self._root / stream))
        )
        return reader.option("start", json.dumps(dict(start or {}))).option("ticks", ticks).load()

    def retained(self, stream: str) -> DataFrame:
        """Return all records that a stream holds now as a batch frame; positions and times are not known."""
        folders = (folder for folder in sorted((self._root / stream).iterdir()) if folder.is_dir())
        files = [str(path) for folder in folders for path in sorted(folder.glob("*.log"))]
        lines = self._spark.read.text(files) if files else self._spark.createDataFrame([], "value string")
        zero = F.lit(0).cast("long")
        return lines.select(F.lit("0").alias("partition"), zero.alias("position"), zero.alias("arrived"), "value")

    def start(
        self,
        write: DataStreamWriter,
        checkpoint: str,
        service: Service,
        plan: Plan,
        *,
        since_micros: int,
        floor: Mapping[str, int],
    ) -> StreamingQuery:
        """Start a query that appends the events of a service, each once."""
        outputs = WriterOutputs(
            self._root / service.name, self._root / service.quarantine, plan.identity, since_micros, dict(floor)
        )
        return self._start(write, checkpoint, service.name, service, outputs)

    def _start(
        self, write: DataStreamWriter, checkpoint: str, name: str, service: Service, outputs: WriterOutputs
    ) -> StreamingQuery:
        marks = name if outputs.identity == "position" else None
        # Both queries of a service read its inputs: reads are counted per query, writes per service.
        progress = BatchProgress(self._root, Path(checkpoint), self._starts[name], self._metrics[name], marks)
        writer = BatchWriter(outputs, self._metrics[service.name], progress, self._segment_bytes)
        self._writers[name] = writer
        previous_delay = str(self._spark.conf.get(_POLLING))
        self._spark.conf.set(_POLLING, POLLING_DELAY)  # a query uses the value at its start
        try:
            return write.option("checkpointLocation", checkpoint).foreachBatch(writer).start()
        finally:
            self._spark.conf.set(_POLLING, previous_delay)

    def resume(self, output: str, stream: str, partitions: Sequence[str]) -> dict[str, int]:
        """Return the offset of each partition of a stream from which to resume, by the output and its marks."""
        offsets = {name: resume(self._root / output / f"{stream}.{name}") for name in partitions}
        return {name: position for name, position in offsets.items() if position is not None}

    def stored_offsets(self, service: Service) -> Mapping[str, int]:  # noqa: ARG002 - of the protocol
        """Return nothing: the metrics of this process say how far readers are."""
        return {}

    def metrics(self, service: str) -> dict[str, Any]:
        """Return the metrics of a service: counts since the start, latencies since the last call."""
        return self._metrics[service].snapshot()

    def forget(self, service: str) -> None:
        """Reset the metrics of a service."""
        self._metrics.pop(service, None)

    def release(self, service: Service) -> None:
        """Close the files of a service that was stopped."""
        for name in (service.name, service.quarantine):
            writer = self._writers.pop(name, None)
            if writer is not None:
                writer.close()
