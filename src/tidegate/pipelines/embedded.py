"""The embedded log in Spark: segment files through the connector."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidegate.logs.segments import SEGMENT_BYTES
from tidegate.pipelines.connector import attach
from tidegate.pipelines.planner import Plan
from tidegate.pipelines.streams import source_name
from tidegate.services.definitions import Service

FORMAT = "tidegate.LogSource"


class EmbeddedLog:
    """Reads and writes the streams below a folder."""

    obstacle = ""

    def __init__(
        self, spark: SparkSession, root: Path, *, idle_ms: int = 5, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self._spark, self._root = spark, root.resolve()
        self._idle_ms, self._segment_bytes = idle_ms, segment_bytes
        attach.register_state_functions(spark)

    def scan(
        self,
        stream: str,
        service: str,
        *,
        start: Mapping[str, int] | None = None,
        marks: str | None = None,
        inputs: Sequence[str] = (),  # noqa: ARG002 - of the protocol
        ticks: int = 0,
        reading: int = 0,
    ) -> DataFrame:
        """Return a streaming frame of a stream that starts at the given offset of each partition.

        The reader stores its offsets next to the stream `marks`, if there is one.
        """
        reader = (
            self._spark.readStream.name(source_name(stream, reading))
            .format(FORMAT)
            .option("path", str(self._root / stream))
            .option("service", service)
            .option("idle_ms", self._idle_ms)
            .option("start", json.dumps(dict(start or {})))
            .option("ticks", ticks)
        )
        if marks is not None:
            reader = reader.option("marks", str(self._root / marks))
        return reader.load()

    def retained(self, stream: str) -> DataFrame:
        """Return all records that a stream holds now as a batch frame, with the columns of `scan`."""
        return self._spark.read.format(FORMAT).option("path", str(self._root / stream)).load()

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
        """Start a query that appends a service's events, each once."""
        if plan.stages:
            self._java("Metrics.start")(service.name)
        return attach.start(write, checkpoint, self._writer(service, plan.identity, since_micros, floor))

    def resume(self, output: str, stream: str, partitions: Sequence[str]) -> dict[str, int]:
        """Return where to resume each partition, by the last records of the output and the stored offsets."""
        places = {name: self._root / output / f"{stream}.{name}" for name in partitions}
        positions = {name: self._java("Marks.resume")(str(place)) for name, place in places.items()}
        return {name: position for name, position in positions.items() if position >= 0}

    def stored_offsets(self, service: Service) -> Mapping[str, int]:
        """Return the offsets that the readers of a service have stored beside its output, on a shared disk."""
        stored: dict[str, int] = {}
        for stream in service.inputs:
            names = [folder.name for folder in (self._root / stream).iterdir() if folder.is_dir()]
            offsets = self.resume(service.name, stream, names)
            stored |= {f"{stream}/{name}": offset for name, offset in offsets.items()}
        return stored

    def metrics(self, service: str) -> dict[str, Any]:
        """Return the metrics of a service's tasks: counts since the start, latencies since the last call."""
        return json.loads(self._java("Metrics.snapshot")(service))  # type: ignore[no-any-return]

    def forget(self, service: str) -> None:
        """Reset the counts of a service."""
        self._java("Metrics.forget")(service)

    def release(self, service: Service) -> None:
        """Close the files of a service that was stopped."""
        for stream in (service.name, service.quarantine):
            self._java("ServiceWriter.closeStream")(str(self._root / stream))

    def _writer(self, service: Service, identity: str, since_micros: int, floor: Mapping[str, int]) -> Any:
        output, quarantine = str(self._root / service.name), str(self._root / service.quarantine)
        floors = json.dumps(dict(floor))
        return self._java("ServiceWriter")(
            service.name, output, quarantine, self._segment_bytes, identity, since_micros, floors
        )

    def _java(self, name: str) -> Any:
        return attach.java(self._spark, name)
