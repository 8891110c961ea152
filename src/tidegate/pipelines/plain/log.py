"""The streams of the embedded log, read and written by Python alone."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidegate.logs.segments import SEGMENT_BYTES
from tidegate.pipelines.plain.metrics import Metrics
from tidegate.pipelines.plain.progress import Progress
from tidegate.pipelines.plain.source import PlainSource
from tidegate.pipelines.plain.writer import BatchWriter, Outputs
from tidegate.pipelines.plain.written import resume
from tidegate.pipelines.planner import Plan
from tidegate.services.definitions import Service

_POLLING, POLLING_DELAY = "spark.sql.streaming.pollingDelay", "100ms"
"""Between two looks for something new: each is a question to a process of Python, of each source of each query."""


class PlainLog:
    """Reads and writes the streams below a folder, in micro-batches."""

    def __init__(self, spark: SparkSession, root: Path, obstacle: str, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        """`obstacle` says why it is not the connector that does it."""
        self._spark, self._root, self._segment_bytes = spark, root.resolve(), segment_bytes
        self.obstacle = obstacle
        self._metrics = defaultdict[str, Metrics](Metrics)
        self._starts = defaultdict[str, dict[str, Mapping[str, int]]](dict)
        self._writers: dict[str, BatchWriter] = {}
        spark.dataSource.register(PlainSource)
        # A query that is stopped in a batch, or told to fail, would show a stack trace for what is told already.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)

    def scan(
        self,
        stream: str,
        service: str,
        *,
        start: Mapping[str, int] | None = None,
        marks: str | None = None,  # noqa: ARG002 - of the protocol
    ) -> DataFrame:
        """A stream as a streaming frame, from an offset for each partition on.

        `marks` is not needed: how far a service has come is noted when a batch is written.
        """
        self._starts[service][stream] = dict(start or {})
        reader = self._spark.readStream.format(PlainSource.name()).option("path", str(self._root / stream))
        return reader.option("start", json.dumps(dict(start or {}))).load()

    def start(
        self,
        write: DataStreamWriter,
        checkpoint: Path,
        service: Service,
        plan: Plan,
        *,
        since_micros: int,
        floor: Mapping[str, int],
    ) -> StreamingQuery:
        """Start a query that appends a service's events, each once."""
        outputs = Outputs(
            self._root / service.name, self._root / service.quarantine, plan.identity, since_micros, dict(floor)
        )
        return self._start(write, checkpoint, service.name, service, outputs)

    def start_refusing(self, write: DataStreamWriter, checkpoint: Path, service: Service) -> StreamingQuery:
        """Start a query that appends what can't be read to the quarantine."""
        outputs = Outputs(self._root / service.name, self._root / service.quarantine, "position")
        return self._start(write, checkpoint, service.quarantine, service, outputs)

    def _start(
        self, write: DataStreamWriter, checkpoint: Path, name: str, service: Service, outputs: Outputs
    ) -> StreamingQuery:
        marks = name if outputs.identity == "position" else None
        # What is read twice is counted once: under the name of the scan; what is written under the service's.
        progress = Progress(self._root, checkpoint, self._starts[name], self._metrics[name], marks)
        writer = BatchWriter(outputs, self._metrics[service.name], progress, self._segment_bytes)
        self._writers[name] = writer
        usual = str(self._spark.conf.get(_POLLING))
        self._spark.conf.set(_POLLING, POLLING_DELAY)  # a query takes what is set when it is started
        try:
            return write.option("checkpointLocation", str(checkpoint)).foreachBatch(writer).start()
        finally:
            self._spark.conf.set(_POLLING, usual)

    def resume(self, output: str, stream: str, partitions: Sequence[str]) -> dict[str, int]:
        """Where to go on reading a stream: as the last records of the output tell, and what was noted."""
        found = {name: resume(self._root / output / f"{stream}.{name}") for name in partitions}
        return {name: position for name, position in found.items() if position is not None}

    def metrics(self, service: str) -> dict[str, Any]:
        """What was done for a service: counts since the start, latencies since the last call."""
        return self._metrics[service].snapshot()

    def forget(self, service: str) -> None:
        """Begin to count anew for a service of this name."""
        self._metrics.pop(service, None)

    def release(self, service: Service) -> None:
        """Close the files of a service that was stopped."""
        for name in (service.name, service.quarantine):
            writer = self._writers.pop(name, None)
            if writer is not None:
                writer.close()
