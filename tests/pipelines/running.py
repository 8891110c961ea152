"""Services that run on real Spark in a test: started, fed, awaited."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.polling import TIMEOUT_S
from tests.polling import until as until
from tidegate.logs import EventLog, KafkaLog, SegmentLog, ends_of
from tidegate.model import Schema
from tidegate.registry import Beginning
from tidegate.services import loads, stream_schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.pipelines.engine import Engine, Job
    from tidegate.pipelines.streams import Streams

PATIENCE_S = TIMEOUT_S
LATE, TRIES = "waiting for the Python worker to connect back", 5
"""Spark gives a process of Python ten seconds to start; where a machine is busier, a service is started again, as the
runner does."""
KEY = b"a secret of the tests"
WHY_PLAIN = "the test wants no connector"


def _embedded(spark: SparkSession, folder: Path) -> tuple[EventLog, Streams]:
    from tidegate.pipelines.embedded import EmbeddedLog

    return SegmentLog(folder), EmbeddedLog(spark, folder)


def _plain(spark: SparkSession, folder: Path) -> tuple[EventLog, Streams]:
    from tidegate.pipelines.plain.log import PlainLog

    return SegmentLog(folder), PlainLog(spark, folder, WHY_PLAIN)


def _kafka(spark: SparkSession, brokers: str, prefix: str) -> tuple[EventLog, Streams]:
    from tidegate.pipelines.kafka import KafkaStreams

    log = KafkaLog(brokers, prefix=prefix, check_s=0.1)
    return log, KafkaStreams(spark, log, brokers)


def _is_late(job: Job) -> bool:
    return LATE in (job.failure() or "")


class World:
    """A log, an engine, and the services of a file."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        text: str,
        kafka: str | None = None,
        prefix: str = "",
        *,
        plain: bool = False,
    ) -> None:
        """Over files in a folder, `plain` without the connector, or over a Kafka, in topics with a prefix."""
        from tidegate.pipelines.engine import Engine

        self.definitions = loads(text)
        self.schemas: Mapping[str, Schema] = stream_schemas(self.definitions)
        self.best_mode = "micro-batch" if plain else "real-time"
        self._reopened: Callable[[], EventLog] = partial(SegmentLog, folder / "log")
        if kafka is not None:
            self.log, self.streams = _kafka(spark, kafka, prefix)
            self._reopened = partial(KafkaLog, kafka, prefix=prefix)
        else:
            self.log, self.streams = (_plain if plain else _embedded)(spark, folder / "log")
        for stream in self.definitions.streams.values():
            self.log.create(stream.name, [str(n) for n in range(stream.partitions)])
        self.engine: Engine = Engine(spark, self.log, self.streams, folder / "checkpoints", key=KEY)
        self.jobs: dict[str, Job] = {}

    def ends(self, name: str) -> dict[str, Beginning]:
        """Where a service begins that is applied now, as a registry keeps it."""
        found = ends_of(self._reopened, self.definitions.services[name].inputs)
        return {stream: Beginning(found.get(stream, ""), 1) for stream in self.definitions.services[name].inputs}

    def start(
        self,
        name: str,
        version: int = 1,
        *,
        backfill: bool = False,
        begins: Mapping[str, Beginning] | None = None,
    ) -> Job:
        """Start a service and wait until it reads."""
        for _ in range(TRIES):
            job = self.begin(name, version, backfill=backfill, begins=begins)
            until(lambda job=job: self._ready(job) or _is_late(job), f"{name} to start")  # type: ignore[misc]
            if not _is_late(job):
                return job
            self.stop(name)
        raise AssertionError(f"{name} did not start: {LATE}")

    def begin(
        self,
        name: str,
        version: int = 1,
        *,
        backfill: bool = False,
        begins: Mapping[str, Beginning] | None = None,
    ) -> Job:
        """Start a service, and do not wait."""
        service = self.definitions.services[name]
        inputs = {each: self.schemas[each] for each in service.inputs}
        job = self.jobs[name] = self.engine.start(service, version, inputs, backfill=backfill, begins=begins or {})
        return job

    def await_ready(self, name: str) -> None:
        """Wait until a service reads."""
        until(lambda: self._ready(self.jobs[name]), f"{name} to start")

    def _ready(self, job: Job) -> bool:
        assert job.failure() is None or _is_late(job), job.failure()
        return self.engine.is_ready(job)

    def stop(self, name: str) -> None:
        self.engine.stop(self.jobs.pop(name))

    def close(self) -> None:
        for name in list(self.jobs):
            self.stop(name)
        for name in self.definitions.services:
            self.engine.forget(name)
        self.log.close()

    def append(self, stream: str, events: Iterable[Mapping[str, Any] | bytes], partition: str = "0") -> None:
        self.log.append(stream, partition, [e if isinstance(e, bytes) else json.dumps(e).encode() for e in events])

    def events(self, stream: str) -> list[dict[str, Any]]:
        """All that a stream holds now, by its source's partitions."""
        found, cursor = [], self.log.begin(stream)
        while (read := self.log.read(stream, cursor, 10_000)).records:
            found += [json.loads(record) for record in read.records]
            cursor = read.cursor
        return sorted(found, key=lambda event: str(event.get("_src", "")).rpartition(":")[0])

    def await_events(self, stream: str, count: int) -> list[dict[str, Any]]:
        """Wait until a service has at least `count` events."""
        until(lambda: self._count(stream) >= count, f"{count} events of {stream}")
        return self.events(stream)

    def _count(self, stream: str) -> int:
        for name, job in self.jobs.items():
            assert job.failure() is None, f"{name}: {job.failure()}"
        return len(self.events(stream))
