"""Keeps running what the registry says: starts, updates, stops, restarts, and tells of it."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

import structlog

from tidegate.errors import TidegateError
from tidegate.logs import EventLog, Retention
from tidegate.model import Schema
from tidegate.pipelines import status as statuses
from tidegate.pipelines.catalog import Catalog
from tidegate.pipelines.engine import Engine, Job
from tidegate.pipelines.status import Status
from tidegate.registry import RegisteredService, Registry
from tidegate.services import catalog, stream_schemas
from tidegate.services.definitions import Definitions
from tidegate.services.redaction import redact

LOOK_S = 0.25
"""Between two looks at the registry and the queries."""
TELL_S = 1.0
"""Between two events of `_status`."""
EXPIRE_S = 60.0
BACKOFF_S = 1.0, 60.0
"""The first pause before a service is started again, and the longest."""
STEADY_S = 60.0
"""How long a service must run before its failures are forgiven."""

_log = structlog.get_logger("tidegate.runner")


@dataclass
class _Kept:
    """A service that should run, and what is known of it."""

    registered: RegisteredService
    status: Status
    inputs: Mapping[str, Schema] = field(default_factory=dict)
    """The schemas of what it reads, as it was started with."""
    job: Job | None = None
    failures: int = 0
    retry_at: float = 0.0


class Runner:
    """Reconciles what runs with the registry, tells of both in `_status` and `_services`. Nobody calls it."""

    def __init__(self, registry: Registry, log: EventLog, engine: Engine) -> None:
        self._registry, self._log, self._engine = registry, log, engine
        self._kept: dict[str, _Kept] = {}
        self._revision = -1
        self._told_at = self._expired_at = time.monotonic()
        self._definitions = Definitions()
        self._schemas: dict[str, Schema] = {}
        log.create(statuses.STREAM)
        self._catalog = Catalog(log)

    def step(self) -> None:
        """Look once: at the registry, at every query, and at what is due."""
        self._reconcile()
        for kept in self._kept.values():
            self._watch(kept)
        now = time.monotonic()
        if now - self._told_at >= TELL_S:
            self._tell(now - self._told_at)
            self._told_at = now
        if now - self._expired_at >= EXPIRE_S:
            self._expire()
            self._expired_at = now

    def statuses(self) -> list[Status]:
        """What is seen of each service now."""
        return [kept.status for kept in self._kept.values()]

    @property
    def is_ready(self) -> bool:
        """Whether every service runs, as soon as it is known which there are."""
        return self._revision >= 0 and all(kept.status.state == "running" for kept in self._kept.values())

    def close(self) -> None:
        """Stop all services, those that others read last."""
        for name in reversed(self._order()):
            self._stop(self._kept[name])
        self._tell(max(1e-3, time.monotonic() - self._told_at))

    # Reconciling -------------------------------------------------------------------

    def _reconcile(self) -> None:
        revision = self._registry.revision()
        if revision == self._revision:
            return
        wanted = self._registry.services()
        self._definitions = self._registry.definitions()
        self._schemas = stream_schemas(self._definitions)
        for stream in self._definitions.streams.values():
            self._log.create(stream.name, [str(n) for n in range(stream.partitions)])
        for name in [name for name in self._kept if name not in wanted]:
            self._stop(self._kept.pop(name))
            self._engine.forget(name)
            _log.info("service removed", service=name)
        for name, registered in wanted.items():
            kept = self._kept.get(name)
            if kept is None:
                self._kept[name] = _Kept(registered, Status(name, registered.version, "starting"))
            elif kept.registered.version != registered.version or kept.inputs not in ({}, self._inputs(registered)):
                self._stop(kept)
                kept.registered, kept.failures, kept.retry_at = registered, 0, 0.0
                kept.status.version, kept.status.state, kept.status.error = registered.version, "starting", None
        self._kept = {name: self._kept[name] for name in self._order()}
        self._catalog.tell(wanted, self._schemas)
        self._revision = revision

    def _order(self) -> list[str]:
        """Services, each behind those that it reads."""
        graph = {
            name: {i for i in kept.registered.service.inputs if i in self._kept} for name, kept in self._kept.items()
        }
        return list(TopologicalSorter(graph).static_order())

    def _inputs(self, registered: RegisteredService) -> dict[str, Schema]:
        return {name: self._schemas[name] for name in registered.service.inputs}

    # One service -------------------------------------------------------------------

    def _watch(self, kept: _Kept) -> None:
        job = kept.job
        if job is None:
            if time.monotonic() >= kept.retry_at:
                self._start(kept)
            return
        failure = job.failure()
        if failure is not None:
            self._failed(kept, failure)
        elif kept.status.state != "running" and self._engine.is_ready(job):
            kept.status.state = "running"
            _log.info("service runs", service=job.service.name, mode=job.compiled.plan.mode)
        elif kept.failures and time.time() - job.started > STEADY_S:
            kept.failures = 0
            kept.status.error = None
        elif any(self._log.partitions(name) != found for name, found in job.partitions.items()):
            _log.info("an input has other partitions now: starting again", service=job.service.name)
            self._stop(kept)

    def _start(self, kept: _Kept) -> None:
        registered = kept.registered
        service = registered.service
        missing = [name for name in service.inputs if name not in self._log.streams()]
        if missing:
            return  # what makes them has not started yet
        kept.inputs = self._inputs(registered)
        try:
            kept.job = self._engine.start(
                service,
                registered.version,
                kept.inputs,
                backfill=registered.backfill,
            )
        except (TidegateError, OSError) as problem:
            self._failed(kept, str(problem))
        except Exception as problem:  # Spark's own: a plan that it refuses must not end the others
            self._failed(kept, f"{type(problem).__name__}: {str(problem).strip().splitlines()[0]}")
        else:
            plan = kept.job.compiled.plan
            kept.status.mode, kept.status.reason, kept.status.state = plan.mode, plan.reason, "starting"

    def _failed(self, kept: _Kept, cause: str) -> None:
        """Note why, and when to try again: soon, then ever less often, never at the same moment as others."""
        service = kept.registered.service.name
        self._stop(kept)
        first, longest = BACKOFF_S
        pause = min(longest, first * 2**kept.failures) * random.uniform(0.75, 1.25)
        kept.failures += 1
        kept.retry_at = time.monotonic() + pause
        kept.status.restarts += 1
        cause = redact(cause)
        kept.status.state, kept.status.error = "restarting", cause
        _log.warning("service failed", service=service, cause=cause, again_in_s=round(pause, 1))

    def _stop(self, kept: _Kept) -> None:
        kept.status.state = "stopped"
        if kept.job is not None:
            self._engine.stop(kept.job)
            kept.job = None

    # Telling and keeping -----------------------------------------------------------

    def _tell(self, elapsed_s: float) -> None:
        micros = time.time_ns() // 1_000
        records = []
        for kept in self._kept.values():
            if kept.job is not None:
                metrics = self._engine.metrics(kept.job.service.name)
                kept.status.measure(metrics, elapsed_s)
                kept.status.behind_bytes = self._behind(kept.job, metrics["reached"])
                kept.status.state_rows = kept.job.state_rows()
                self._engine.note_reached(kept.job, metrics["reached"])
            else:
                kept.status.read_per_s = kept.status.written_per_s = 0.0
            records.append(kept.status.record(micros))
        if records:
            self._log.append(statuses.STREAM, "0", records)

    def _behind(self, job: Job, reached: Mapping[str, int]) -> int:
        total = 0
        for stream in job.service.inputs:
            for partition, end in self._log.end(stream).offsets.items():
                total += max(0, end - reached.get(f"{stream}/{partition}", end))
        return total

    def _expire(self) -> None:
        kept = {stream.name: stream.retention for stream in self._definitions.streams.values()}
        for service in self._definitions.services.values():
            kept[service.name] = kept[service.quarantine] = kept[service.replays] = service.retention
        for name in self._log.streams():
            if name == catalog.STREAM:
                continue  # what was told of a service stays: it says what there is
            retention = kept.get(name)
            limits = Retention(retention.age_s, retention.size_bytes) if retention else Retention(age_s=24 * 3600.0)
            self._log.expire(name, limits)
