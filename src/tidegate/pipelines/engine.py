"""Runs single services on Spark: where they begin, go on after a failure, and end."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidegate.logs import Cursor, EventLog
from tidegate.model import Schema
from tidegate.pipelines.compiler import Compiled, Following, Tasks, compile_service, plan_service
from tidegate.pipelines.connector import attach
from tidegate.pipelines.planner import Mode, Plan
from tidegate.pipelines.resources import RunnerResources
from tidegate.pipelines.slots import Slots, real_time_tasks
from tidegate.pipelines.streams import Streams
from tidegate.registry import Beginning
from tidegate.services.definitions import Service

_logger = structlog.get_logger("tidegate.engine")

Positions = dict[str, dict[str, int]]
"""By stream, by partition: an offset. Of inputs where to begin, of the output where it ended then."""

NOWHERE: Mapping[str, Beginning] = {}

STATELESS_EPOCH = "1 hour"
"""Between two checkpoints of a service without state, which needs none: each would pause it for 0.2 s."""
STATEFUL_EPOCH = "1 minute"
"""Between two checkpoints of a real-time service with state: what comes again after a failure, at most."""
SLACK_US = 2_000_000
"""How far a checkpoint's file and the log's own times may be apart."""


@dataclass
class Job:
    """A service that runs."""

    service: Service
    version: int
    compiled: Compiled
    partitions: Mapping[str, list[str]]
    """Of its inputs, as they were when it started."""
    queries: list[StreamingQuery] = field(default_factory=list)
    started: float = field(default_factory=time.time)

    def failure(self) -> str | None:
        """Why it does not run any longer; None while it does."""
        for query in self.queries:
            if not query.isActive:
                return attach.cause(query) or "the query ended without a reason"
        return None

    def state_rows(self) -> int | None:
        """How many keys its state held at the last checkpoint; None before the first."""
        progress = self.queries[0].lastProgress if self.queries else None
        operators = progress.stateOperators if progress is not None else []
        return sum(each.numRowsTotal for each in operators) if operators else None

    def stop(self) -> None:
        """End its queries, and wait until they have."""
        for query in self.queries:
            query.stop()
        for query in self.queries:
            with suppress(StreamingQueryException):  # told by `failure` already
                query.awaitTermination(30)


def _has_begun(query: StreamingQuery) -> bool:
    said = query.status["message"]
    return query.isActive and not said.startswith(("Initializing", "Starting", "Getting offsets"))


class Engine:
    """Starts services on one Spark session, over one log."""

    def __init__(
        self,
        spark: SparkSession,
        log: EventLog,
        streams: Streams,
        checkpoints: Path,
        *,
        key: bytes,
        resources: RunnerResources | None = None,
    ) -> None:
        self._resources = resources
        self._slots = Slots(str(spark.sparkContext.master))
        self._spark, self._log, self._streams, self._checkpoints, self._key = spark, log, streams, checkpoints, key

    def start(
        self,
        service: Service,
        version: int,
        inputs: Mapping[str, Schema],
        *,
        backfill: bool = False,
        begins: Mapping[str, Beginning] = NOWHERE,
    ) -> Job:
        """Start a service where it left off.

        A new one begins where `begins` says, by input: the registry fixed that when the service was applied. An input
        that `begins` does not name begins at its end now. With `backfill` all begin at their beginning, and the output
        begins anew too. Raises a `ServiceError` if Spark has too few free slots.
        """
        try:
            return self._start(service, version, inputs, begins, backfill=backfill)
        except BaseException:
            self._slots.release(service.name)
            raise

    def _start(
        self,
        service: Service,
        version: int,
        inputs: Mapping[str, Schema],
        begins: Mapping[str, Beginning],
        *,
        backfill: bool,
    ) -> Job:
        folder = self._checkpoints / service.name / f"v{version}"
        partitions = {name: self._log.partitions(name) for name in service.inputs}
        plan = plan_service(service, inputs, obstacle=self._streams.obstacle)
        own = [f"{name}.{each}" for name, found in partitions.items() for each in found]
        # What has no source's partition goes by the number of Spark's, which a shuffle makes.
        shuffled = [str(n) for n in range(int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1))]
        self._slots.take(service.name, real_time_tasks(plan, len(own), len(shuffled)))
        positions = self._begin(service, folder, partitions, plan, begins, backfill=backfill)
        self._log.create(service.name, shuffled if plan.keyed else own)
        self._log.create(service.quarantine, shuffled if plan.keyed else own)
        compiled = self._compile(service, inputs, positions, Tasks(partitions, len(shuffled)))
        job = Job(service, version, compiled, partitions)
        try:
            self._start_queries(job, folder, positions.get(service.name, {}))
        except BaseException:
            job.stop()
            raise
        return job

    def stop(self, job: Job) -> None:
        """Stop a service and let go of its files."""
        try:
            self.note_reached(job, self.metrics(job.service.name)["reached"])
            job.stop()
            self._streams.release(job.service)
        finally:
            self._slots.release(job.service.name)

    def is_ready(self, job: Job) -> bool:
        """Whether a service has begun to read."""
        if not all(_has_begun(query) for query in job.queries):
            return False
        if job.compiled.plan.mode == "micro-batch" or not str(self._spark.sparkContext.master).startswith("local"):
            return True  # tasks come and go, or are elsewhere
        reached = self.metrics(job.service.name)["reached"]
        return all(f"{stream}/{each}" in reached for stream, found in job.partitions.items() for each in found)

    def metrics(self, service: str) -> dict[str, Any]:
        """What the tasks of a service have done."""
        return self._streams.metrics(service)

    def note_reached(self, job: Job, positions: Mapping[str, int]) -> None:
        """Write down how far a service with state has read, for its next version to begin there."""
        if not job.compiled.plan.keyed:
            return
        reached: Positions = {}
        for source, position in positions.items():
            stream, _, partition = source.rpartition("/")
            reached.setdefault(stream, {})[partition] = position
        if reached:
            _write_json(self._checkpoints / job.service.name / "reached.json", reached)

    def forget(self, service: str) -> None:
        """Remove what is kept of a service that was removed; its output stays until it expires."""
        self._streams.forget(service)
        shutil.rmtree(self._checkpoints / service, ignore_errors=True)

    # Where to begin --------------------------------------------------------------

    def _begin(
        self,
        service: Service,
        folder: Path,
        partitions: Mapping[str, list[str]],
        plan: Plan,
        fixed: Mapping[str, Beginning],
        *,
        backfill: bool,
    ) -> Positions:
        """Where this version of a service began; found out, and written down, at its first start.

        What Spark keeps of a state in one mode it refuses in the other: then the
        service begins anew, as another version would, where it was.
        """
        noted, mode = folder / "begin.json", folder / "mode"
        begun = noted.exists()
        if begun and (not plan.keyed or not mode.exists() or mode.read_text() == plan.state_mode):
            return json.loads(noted.read_text())  # type: ignore[no-any-return]
        if begun:
            _logger.warning("it ran in another mode: its state begins anew", service=service.name, mode=plan.mode)
            shutil.rmtree(folder / "main", ignore_errors=True)
        if backfill and not begun:
            for stream in (service.name, service.quarantine):
                if stream in self._log.streams():
                    self._log.delete(stream)
            begins: Positions = {}
        else:
            begins = {stream: self._fixed(stream, fixed.get(stream)) for stream in partitions}
            for stream, reached in self._earlier(service, partitions, fixed).items():
                begins[stream] |= reached
            if service.name in self._log.streams():
                begins[service.name] = dict(self._log.end(service.name).offsets)
        _write_json(noted, begins)
        mode.write_text(plan.state_mode)
        return begins

    def _fixed(self, stream: str, beginning: Beginning | None) -> dict[str, int]:
        """Where a service begins in a stream that no version of it has read; a partition not named: at its start."""
        if beginning is None:
            return dict(self._log.end(stream).offsets)
        if not beginning.cursor:
            return {}
        cursor = Cursor.from_text(beginning.cursor)
        if cursor.generation != self._log.begin(stream).generation:
            return {}  # deleted and made again since: all that it holds is newer
        return dict(cursor.offsets)

    def _earlier(self, service: Service, streams: Iterable[str], fixed: Mapping[str, Beginning]) -> Positions:
        """How far the version before has come, whether it kept a state or not; nothing where there was none.

        Nor where the service of that version was removed, and another of its name was applied since.
        """
        folder = self._checkpoints / service.name
        versions = sorted(folder.glob("v*/begin.json"), key=lambda path: int(path.parent.name[1:]))
        if not versions:
            return {}
        newest = int(versions[-1].parent.name[1:])
        begun: Positions = json.loads(versions[-1].read_text())
        noted = folder / "reached.json"
        reached: Positions = json.loads(noted.read_text()) if noted.exists() else {}
        return {
            stream: {**self._resume(stream, begun, service.name), **reached.get(stream, {})}
            for stream in streams
            if stream in begun and (stream not in fixed or newest >= fixed[stream].since)
        }

    def _resume(self, stream: str, begins: Positions, output: str) -> dict[str, int]:
        """Where to read on in a stream: behind what an output has of it already."""
        found = dict(begins.get(stream, {}))
        for partition, reached in self._streams.resume(output, stream, self._log.partitions(stream)).items():
            found[partition] = max(reached, found.get(partition, 0))
        return found

    # Queries -----------------------------------------------------------------------

    def _compile(self, service: Service, inputs: Mapping[str, Schema], begins: Positions, tasks: Tasks) -> Compiled:
        def scan(stream: str, following: Following | None, ticks: int) -> DataFrame:
            if following is None:
                return self._streams.scan(stream, service.name, start=begins.get(stream), ticks=ticks)
            start = self._resume(stream, begins, following.output)
            noted = following.output if following.notes else None
            return self._streams.scan(stream, following.output, start=start, marks=noted)

        return compile_service(
            service,
            inputs,
            scan,
            key=self._key,
            obstacle=self._streams.obstacle,
            resources=self._resources,
            tasks=tasks,
        )

    def _start_queries(self, job: Job, folder: Path, floor: Mapping[str, int]) -> None:
        plan, service = job.compiled.plan, job.service
        checkpoint = folder / "main"
        if not plan.keyed:
            shutil.rmtree(checkpoint, ignore_errors=True)  # its own output says where to go on
        since = _last_commit_us(checkpoint) - SLACK_US if plan.keyed else 0
        write = job.compiled.frame.writeStream.queryName(service.name).outputMode(plan.output)
        write = _triggered(write, plan.mode, STATEFUL_EPOCH if plan.stateful else STATELESS_EPOCH)
        query = self._streams.start(write, checkpoint, service, plan, since_micros=since, floor=floor)
        job.queries.append(query)


def _triggered(write: DataStreamWriter, mode: Mode, epoch: str) -> DataStreamWriter:
    """Let a query run in a mode; `epoch` is between two checkpoints of real-time."""
    return attach.real_time(write, epoch) if mode == "real-time" else write.trigger(processingTime="0 seconds")


def _last_commit_us(checkpoint: Path) -> int:
    """When a checkpoint was last committed, in microseconds; when it was begun, or now, where it never was."""
    commits = [each.stat().st_mtime_ns for each in (checkpoint / "commits").glob("[0-9]*")]
    if commits:
        return max(commits) // 1_000
    begun = checkpoint / "metadata"
    return (begun.stat().st_mtime_ns if begun.exists() else time.time_ns()) // 1_000


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value))
    new.replace(path)
