"""Starts and stops the query of one service on Spark, and decides at which offsets it begins or resumes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidegate.errors import ServiceError
from tidegate.logs import Cursor, EventLog
from tidegate.model import Schema
from tidegate.pipelines.checkpoint_files import CheckpointFiles
from tidegate.pipelines.checkpoints import Checkpoints, Positions, StateForm
from tidegate.pipelines.compiler import Compiled, Following, Tasks, compile_service, plan_service
from tidegate.pipelines.connector import attach
from tidegate.pipelines.planner import Mode, Plan
from tidegate.pipelines.resources import RunnerResources
from tidegate.pipelines.slots import real_time_tasks, slots_of
from tidegate.pipelines.streams import Streams
from tidegate.registry import Beginning, ServiceRun
from tidegate.services.definitions import Service
from tidegate.services.schema_inference import shape

_logger = structlog.get_logger("tidegate.engine")

NOWHERE: Mapping[str, Beginning] = {}

STATELESS_EPOCH = "1 hour"
"""Time between two checkpoints of a service without state. It needs none, and each pauses it for 0.2 s."""
STATEFUL_EPOCH = "1 minute"
"""Time between two checkpoints of a real-time service with state: the input that it reads again after a failure."""
SLACK_US = 2_000_000
"""The largest difference between the clock of checkpoint files and that of the log."""


@dataclass
class Job:
    """A running service: its queries, and what they were started with."""

    service: Service
    version: int
    compiled: Compiled
    partitions: Mapping[str, list[str]]
    """The partitions of each input when the service started."""
    queries: list[StreamingQuery] = field(default_factory=list)
    started: float = field(default_factory=time.time)
    tasks: int = 0
    """Number of tasks that run as long as the service does."""
    first_offsets: tuple[Mapping[str, int], int] | None = None
    """How far the inputs were read and how long the output was when it was first measured on a cluster."""

    def failure(self) -> str | None:
        """Return why the service has stopped; None while it runs."""
        for query in self.queries:
            if not query.isActive:
                return attach.cause(query) or "the query ended without a reason"
        return None

    def state_rows(self) -> int | None:
        """Return the number of keys in the state at the last checkpoint; None before the first one."""
        progress = self.queries[0].lastProgress if self.queries else None
        operators = progress.stateOperators if progress is not None else []
        return sum(operator.numRowsTotal for operator in operators) if operators else None

    def stop(self) -> None:
        """Stop the queries, and wait until they have ended."""
        for query in self.queries:
            query.stop()
        for query in self.queries:
            with suppress(StreamingQueryException):  # told by `failure` already
                query.awaitTermination(30)


def _has_begun(query: StreamingQuery) -> bool:
    message = query.status["message"]
    return query.isActive and not message.startswith(("Initializing", "Starting", "Getting offsets"))


class Engine:
    """Starts services on one Spark session, over one log."""

    def __init__(
        self,
        spark: SparkSession,
        log: EventLog,
        streams: Streams,
        checkpoints: Path | CheckpointFiles,
        *,
        key: bytes,
        resources: RunnerResources | None = None,
    ) -> None:
        self._resources = resources
        self._slots = slots_of(spark)
        self._is_local = str(spark.sparkContext.master).startswith("local")
        self._spark, self._log, self._streams, self._key = spark, log, streams, key
        self.checkpoints = Checkpoints(checkpoints)

    def start(
        self,
        service: Service,
        version: int,
        inputs: Mapping[str, Schema],
        *,
        backfill: bool = False,
        begins: Mapping[str, Beginning] = NOWHERE,
        run: ServiceRun | None = None,
    ) -> Job:
        """Start a service at the position where it stopped. Returns when its queries are started.

        `begins` has the start of each input of a service that never ran; the registry fixed it when the service was
        applied. Inputs that are not in `begins` start at their current end, or where their readers were. With
        `backfill` the output is deleted and all inputs start at their oldest record, unless this version ran before,
        as `run` says. Raises a `ServiceError` if Spark has too few free slots, the service can't be compiled, or `run`
        names a state that is not here.
        """
        try:
            return self._start(service, version, inputs, begins, run, backfill=backfill)
        except BaseException:
            self._slots.release(service.name)
            raise

    def _start(
        self,
        service: Service,
        version: int,
        inputs: Mapping[str, Schema],
        begins: Mapping[str, Beginning],
        run: ServiceRun | None,
        *,
        backfill: bool,
    ) -> Job:
        partitions = {name: self._log.partitions(name) for name in service.inputs}
        plan = plan_service(service, inputs, obstacle=self._streams.obstacle)
        own = [f"{name}.{partition}" for name, names in partitions.items() for partition in names]
        # Results without a partition of a source are written to partitions named by the number of Spark's shuffle.
        shuffled = [str(n) for n in range(int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1))]
        read = sum(len(partitions[name]) for name in service.reads)
        tasks = real_time_tasks(plan, read, len(shuffled))
        self._slots.take(service.name, tasks)
        if self.checkpoints.positions(service.name, version) is None and run is not None:
            backfill = backfill and run.version != version  # another process has done it
            if plan.keyed and not backfill and run.checkpoints != self.checkpoints.place:
                raise ServiceError(
                    f"its state is in {run.checkpoints}, and this process keeps states in {self.checkpoints.place}: "
                    "run it there, let both use the same place (checkpoints in the profile), or apply it --backfill"
                )
        positions = self._begin(service, version, inputs, partitions, plan, begins, backfill=backfill)
        self._log.create(service.name, shuffled if plan.keyed else own)
        self._log.create(service.quarantine, shuffled if plan.keyed else own)
        compiled = self._compile(service, inputs, positions, Tasks(partitions, len(shuffled)))
        job = Job(service, version, compiled, partitions, tasks=tasks)
        try:
            self._start_queries(job, positions.get(service.name, {}))
        except BaseException:
            job.stop()
            raise
        return job

    def stop(self, job: Job) -> None:
        """Stop a service and close its files."""
        try:
            self.note_reached(job, self.reached(job))
            job.stop()
            self._streams.release(job.service)
        finally:
            self._slots.release(job.service.name)

    def is_ready(self, job: Job) -> bool:
        """Return True if all queries of a service run, and each real-time task has started to read."""
        if not all(_has_begun(query) for query in job.queries):
            return False
        if not self._is_local:
            return self.missing_tasks(job) == 0
        if job.compiled.plan.mode == "micro-batch":
            return True  # tasks come and go
        reached = self.metrics(job.service.name)["reached"]
        return all(f"{stream}/{each}" in reached for stream, found in job.partitions.items() for each in found)

    def missing_tasks(self, job: Job) -> int:
        """Return how many real-time tasks of a service do not run on the cluster: no executor has a slot for them."""
        if self._is_local or job.tasks == 0:
            return 0
        return max(0, job.tasks - sum(attach.live_tasks(self._spark, query) for query in job.queries))

    def metrics(self, service: str) -> dict[str, Any]:
        """Return the metrics of a service's tasks."""
        return self._streams.metrics(service)

    def reached(self, job: Job) -> Mapping[str, int]:
        """Return how far each partition of the inputs is read, by `stream/partition`.

        On a cluster the readers run in other processes: it is what they stored in the log a second ago, or what Spark's
        last checkpoint says.
        """
        if self._is_local:
            reached: Mapping[str, int] = self.metrics(job.service.name)["reached"]
            return reached
        return self._streams.stored_offsets(job.service) or checkpointed_offsets(job.queries[0].lastProgress)

    def log_counts(self, job: Job, reached: Mapping[str, int]) -> dict[str, int]:
        """Return how many records a service on a cluster has read and written since it started, by the log's offsets.

        Empty for a local Spark, whose metrics know it.
        """
        if self._is_local:
            return {}
        written = sum(self._log.end(job.service.name).offsets.values())
        job.first_offsets = job.first_offsets or (dict(reached), written)
        first, first_written = job.first_offsets
        read = sum(max(0, offset - first.get(source, offset)) for source, offset in reached.items())
        return {"read": read, "written": written - first_written}

    def note_reached(self, job: Job, positions: Mapping[str, int]) -> None:
        """Store the offsets that a service with state has read to. A version that can't use its state starts there."""
        if not job.compiled.plan.keyed:
            return
        reached: Positions = {}
        for source, position in positions.items():
            stream, _, partition = source.rpartition("/")
            reached.setdefault(stream, {})[partition] = position
        if reached:
            self.checkpoints.save_reached(job.service.name, reached)

    def forget(self, service: str) -> None:
        """Delete checkpoints and counts of a removed service. Its output stays until it expires."""
        self._streams.forget(service)
        self.checkpoints.forget(service)

    # Start offsets ---------------------------------------------------------------

    def _begin(
        self,
        service: Service,
        version: int,
        inputs: Mapping[str, Schema],
        partitions: Mapping[str, list[str]],
        plan: Plan,
        fixed: Mapping[str, Beginning],
        *,
        backfill: bool,
    ) -> Positions:
        """Return the offsets at which this version of a service began. Its first start determines and stores them.

        A service with state continues with the state of the previous version if it can use it. Otherwise it has an
        empty state, and starts where the previous version has read to.
        """
        checkpoints, name = self.checkpoints, service.name
        form = StateForm(plan.state_engine, shape(service, inputs).layouts)
        begun = checkpoints.positions(name, version)
        if begun is not None and (not plan.keyed or self._can_continue(name, version, form)):
            checkpoints.save_form(name, version, form)
            return begun
        source: int | None = None
        if begun is None and backfill:
            for stream in (name, service.quarantine):
                if stream in self._log.streams():
                    self._log.delete(stream)
            positions: Positions = {}
        else:
            source = self._adoptable(name, form, fixed) if begun is None and form.layouts else None
            begins = {stream: self._fixed(name, stream, fixed.get(stream)) for stream in partitions}
            for stream, reached in self._earlier(service, partitions, fixed).items():
                begins[stream] |= reached
            if source is not None:
                # Results since the last checkpoint are computed again; the writer must find them in the output.
                adopted = checkpoints.positions(name, source) or {}
                begins |= {output: adopted[output] for output in adopted if output in partitions or output == name}
            elif name in self._log.streams():
                begins[name] = dict(self._log.end(name).offsets)
            positions = begins
        checkpoints.save_form(name, version, form, adopts=source)
        checkpoints.save_positions(name, version, positions)
        return positions

    def _can_continue(self, service: str, version: int, form: StateForm) -> bool:
        """Return True if Spark can continue with the state of this version. Deletes the state otherwise.

        The mode and the schemas of inputs may have changed since it was written.
        """
        change = form.change_from(self.checkpoints.form(service, version))
        if change.effect != "starts anew":
            return True
        _logger.warning("the state starts anew", service=service, version=version, reasons=change.reasons)
        self.checkpoints.drop_state(service, version)
        return False

    def _adoptable(self, service: str, form: StateForm, fixed: Mapping[str, Beginning]) -> int | None:
        """Return the previous version if a new version can continue with its state, else None."""
        newest = self.checkpoints.newest_version(service)
        read = self.checkpoints.positions(service, newest) if newest is not None else None
        if newest is None or read is None or any(source in read and newest < fixed[source].since for source in fixed):
            return None  # no version ran, or that service was removed and another one with its name was applied
        change = form.change_from(self.checkpoints.form(service, newest))
        if change.effect == "starts anew" or not self.checkpoints.has_state(service, newest):
            _logger.warning("the state starts anew", service=service, reasons=change.reasons)
            return None
        _logger.info("the new version continues with the state", service=service, change=str(change))
        return newest

    def _fixed(self, service: str, stream: str, beginning: Beginning | None) -> dict[str, int]:
        """Return the start offsets in a stream that no version has read here. Absent partitions start at the oldest.

        An earlier release stored no beginnings. What it has read elsewhere is known from the output.
        """
        if beginning is None:
            ends = dict(self._log.end(stream).offsets)
            return ends | self._streams.resume(service, stream, list(ends))
        if not beginning.cursor:
            return {}
        cursor = Cursor.from_text(beginning.cursor)
        if cursor.generation != self._log.begin(stream).generation:
            return {}  # the stream was deleted and created again: all of its records are newer
        return dict(cursor.offsets)

    def _earlier(self, service: Service, streams: Iterable[str], fixed: Mapping[str, Beginning]) -> Positions:
        """Return the offsets that the previous version has read to, with or without state; empty if there was none.

        Streams are left out if that service was removed, and another one with its name was applied since.
        """
        newest = self.checkpoints.newest_version(service.name)
        if newest is None:
            return {}
        begun = self.checkpoints.positions(service.name, newest) or {}
        reached = self.checkpoints.reached(service.name)
        return {
            stream: {**self._resume(stream, begun, service.name), **reached.get(stream, {})}
            for stream in streams
            if stream in begun and (stream not in fixed or newest >= fixed[stream].since)
        }

    def _resume(self, stream: str, begins: Positions, output: str) -> dict[str, int]:
        """Return the offsets at which to resume a stream: after the records that an output has already."""
        start = dict(begins.get(stream, {}))
        for partition, reached in self._streams.resume(output, stream, self._log.partitions(stream)).items():
            start[partition] = max(reached, start.get(partition, 0))
        return start

    # Queries -----------------------------------------------------------------------

    def _compile(self, service: Service, inputs: Mapping[str, Schema], begins: Positions, tasks: Tasks) -> Compiled:
        def scan(stream: str, following: Following | None, ticks: int, reading: int) -> DataFrame:
            if following is None:
                start = begins.get(stream)
                return self._streams.scan(stream, service.name, start=start, ticks=ticks, reading=reading)
            start = self._resume(stream, begins, following.output)
            noted = following.output if following.notes else None
            return self._streams.scan(stream, following.output, start=start, marks=noted, inputs=service.inputs)

        return compile_service(
            service,
            inputs,
            scan,
            key=self._key,
            obstacle=self._streams.obstacle,
            resources=self._resources,
            tasks=tasks,
        )

    def _start_queries(self, job: Job, floor: Mapping[str, int]) -> None:
        plan, service = job.compiled.plan, job.service
        checkpoint = self.checkpoints.main(service.name, job.version)
        if not plan.keyed:
            self.checkpoints.drop_state(service.name, job.version)  # such a service resumes from its output
        self.checkpoints.adapt_paths(service.name, job.version)
        since = self.checkpoints.last_commit_us(service.name, job.version) - SLACK_US if plan.keyed else 0
        write = job.compiled.frame.writeStream.queryName(service.name).outputMode(plan.output)
        write = _triggered(write, plan.mode, STATEFUL_EPOCH if plan.stateful else STATELESS_EPOCH)
        query = self._streams.start(write, checkpoint, service, plan, since_micros=since, floor=floor)
        job.queries.append(query)


def _triggered(write: DataStreamWriter, mode: Mode, epoch: str) -> DataStreamWriter:
    """Return a writer with the trigger of a mode; `epoch` is the time between two checkpoints in real-time mode."""
    return attach.real_time(write, epoch) if mode == "real-time" else write.trigger(processingTime="0 seconds")


def checkpointed_offsets(progress: StreamingQueryProgress | None) -> dict[str, int]:
    """Return how far each source was read at the last checkpoint of a query, by `stream/partition`."""
    offsets = {}
    for source in progress.sources if progress is not None else []:
        stream = source.description.removeprefix("stream:")
        for partition, offset in json.loads(source.endOffset or "{}").items():
            offsets[f"{stream}/{partition}"] = int(offset)
    return offsets
