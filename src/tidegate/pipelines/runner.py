"""Keeps running what the registry says: starts, updates, stops, restarts, and tells of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import TopologicalSorter
from typing import Any

import structlog

from tidegate.errors import error_text
from tidegate.logs import EventLog, Retention
from tidegate.model import Schema
from tidegate.pipelines import status as statuses
from tidegate.pipelines.catalog import Catalog
from tidegate.pipelines.engine import Engine, Job
from tidegate.pipelines.starting import Starting
from tidegate.pipelines.status import Status
from tidegate.registry import RegisteredService, Registry
from tidegate.services import audit_stream, catalog
from tidegate.services.check import usable
from tidegate.services.definitions import Definitions
from tidegate.services.redaction import redact
from tidegate.timing import Backoff

LOOK_S = 0.25
"""Between two looks at the registry and the queries."""
TELL_S = 1.0
"""Between two events of `_status`."""
EXPIRE_S = 60.0
BACKOFF = Backoff(first_s=1.0, max_s=60.0, jitter=(0.75, 1.25))
"""Delays before a service that failed is started again."""
STEADY_S = 60.0
"""How long a service must run before its failures are forgiven."""
START_WAIT_S = 5.0
"""How long the others wait for the first start of a service; one that takes longer goes on in the background."""
SLOW_START_S = 60.0
"""A start that takes longer is shown as an error, while it goes on."""
REPEAT_S = 30.0
"""The same problem is logged again after this long."""
PROBLEM_FAILURES = 2
"""So many failures in a row, and a service counts as failing: one failure alone may be a busy machine's."""

_log = structlog.get_logger("tidegate.runner")


@dataclass
class _Kept:
    """A service that should run, and what is known of it."""

    registered: RegisteredService
    status: Status
    inputs: Mapping[str, Schema] = field(default_factory=dict)
    """The schemas of what it reads, as it was started with."""
    job: Job | None = None
    starting: Starting | None = None
    """An attempt to start it that has not ended."""
    failures: int = 0
    retry_at: float = 0.0
    is_blocked: bool = False
    """Whether it waits for an input that no other service has made yet."""


class Runner:
    """Reconciles what runs with the registry, tells of both in `_status` and `_services`. Nobody calls it.

    No definition ends it: whatever one service, stream or record raises is its own error in `_status`, with retry
    and backoff, and the others go on.
    """

    def __init__(self, registry: Registry, log: EventLog, engine: Engine) -> None:
        self._registry, self._log, self._engine = registry, log, engine
        self._kept: dict[str, _Kept] = {}
        self._leaving: dict[str, tuple[Starting, bool]] = {}
        """Starts under way of services that were removed, and whether to forget each when its start has ended."""
        self._revision = -1
        self._told_at = self._expired_at = time.monotonic()
        self._definitions = Definitions()
        self._schemas: dict[str, Schema] = {}
        self._problems: dict[str, str] = {}
        """By name, why a stream or service of the registry can't be used."""
        self._versions: dict[str, int] = {}
        self._logged: dict[str, tuple[str, float]] = {}
        self.source_statuses: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
        """Gives the status of each stream's feed, as `Feeds.status` does."""
        log.create(statuses.STREAM)
        self._catalog = Catalog(log)

    def step(self) -> None:
        """Look once: at the registry, at every query, and at what is due. Raises nothing."""
        self._guarded("the registry can't be read", self._reconcile)
        for kept in list(self._kept.values()):
            try:
                self._watch(kept)
            except BaseException as problem:  # of one service; the others go on
                self._failed(kept, error_text(problem))
        now = time.monotonic()
        if now - self._told_at >= TELL_S:
            elapsed_s, self._told_at = now - self._told_at, now
            self._guarded("the status can't be written", partial(self._tell, elapsed_s))
        if now - self._expired_at >= EXPIRE_S:
            self._expired_at = now
            self._guarded("streams can't be expired", self._expire)

    def _guarded(self, what: str, do: Callable[[], None]) -> None:
        """Do something that the next look repeats; log what it raises, the same once in a while only."""
        try:
            do()
        except Exception as problem:
            self._warn(what, error_text(problem))

    def _warn(self, what: str, problem: str, **more: Any) -> None:
        said, at = self._logged.get(what, ("", 0.0))
        if said != problem or time.monotonic() - at >= REPEAT_S:
            self._logged[what] = problem, time.monotonic()
            _log.warning(what, problem=problem, **more)

    def statuses(self) -> list[Status]:
        """What is seen of each service now."""
        return [kept.status for kept in self._kept.values()]

    @property
    def definitions(self) -> Definitions:
        """What the registry says, as far as it can be used, at the last look that could read it."""
        return self._definitions

    @property
    def revision(self) -> int:
        """Of the registry at the last look that could read it; -1: none could yet."""
        return self._revision

    @property
    def is_ready(self) -> bool:
        """Whether every service runs, as soon as it is known which there are."""
        return self._revision >= 0 and all(kept.status.state == "running" for kept in self._kept.values())

    @property
    def is_settled(self) -> bool:
        """Whether every service runs or is known to fail, as soon as it is known which there are."""
        return self._revision >= 0 and all(
            kept.status.state == "running" or self._is_failing(kept) for kept in self._kept.values()
        )

    def failing(self) -> list[str]:
        """Services that fail again and again or wait for one that does, and streams whose source does; sorted."""
        sources = [name for name, each in self.source_statuses().items() if each["state"] == "waiting"]
        services = [name for name, kept in self._kept.items() if self._is_failing(kept)]
        return sorted({*services, *sources, *self._problems})

    def _is_failing(self, kept: _Kept) -> bool:
        if kept.failures >= PROBLEM_FAILURES or (kept.starting is not None and kept.status.error is not None):
            return True
        above = [self._kept[name] for name in kept.registered.service.inputs if name in self._kept]
        return kept.is_blocked and (not above or any(self._is_failing(each) for each in above))

    def close(self) -> None:
        """Stop all services, those that others read last."""
        for name in reversed(self._order()):
            self._stop(self._kept[name])
        self._guarded("the status can't be written", partial(self._tell, max(1e-3, time.monotonic() - self._told_at)))

    # Reconciling -------------------------------------------------------------------

    def _reconcile(self) -> None:
        for name in [name for name, (starting, _) in self._leaving.items() if starting.is_done]:
            _, forget = self._leaving.pop(name)
            if forget and name not in self._kept:
                self._engine.forget(name)
        revision = self._registry.revision()
        if revision == self._revision:
            return
        registered = self._registry.services()
        found = usable(self._registry.definitions())
        self._versions = {name: each.version for name, each in self._registry.streams().items()}
        self._definitions, self._schemas = found.definitions, found.schemas
        self._problems = {**self._registry.unreadable(), **found.problems}
        for name, problem in self._problems.items():
            self._warn(f"the registry's {name!r} can't be used", problem)
        for stream in self._definitions.streams.values():
            partitions = [str(n) for n in range(stream.partitions)]
            self._guarded(f"stream {stream.name!r} can't be made", partial(self._log.create, stream.name, partitions))
        wanted = {name: each for name, each in registered.items() if name in self._definitions.services}
        # What can't be read now may be again, by the next version: its checkpoint and its output stay.
        for name in [name for name in self._kept if name not in wanted]:
            self._remove(name, forget=name not in self._problems)
        for name, each in wanted.items():
            self._want(name, each)
        self._kept = {name: self._kept[name] for name in self._order()}
        self._guarded("the catalog can't be written", partial(self._catalog.tell, wanted, self._schemas))
        self._revision = revision

    def _want(self, name: str, registered: RegisteredService) -> None:
        kept = self._kept.get(name)
        if kept is None:
            self._kept[name] = _Kept(registered, Status(name, registered.version, "starting"))
        elif kept.registered.version != registered.version or kept.inputs not in ({}, self._inputs(registered)):
            self._stop(kept)
            kept.registered, kept.failures, kept.retry_at = registered, 0, 0.0
            kept.status.version, kept.status.state, kept.status.error = registered.version, "starting", None

    def _remove(self, name: str, *, forget: bool) -> None:
        kept = self._kept.pop(name)
        self._stop(kept)
        if kept.starting is not None:
            self._leaving[name] = kept.starting, forget
        elif forget:
            self._guarded(f"service {name!r} can't be forgotten", partial(self._engine.forget, name))
        _log.info("service removed", service=name)

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
        if kept.starting is not None and not self._is_started(kept):
            return
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
        if service.name in self._leaving:
            return  # a start of the service of this name before is still under way
        known = self._log.streams()
        missing = [name for name in service.inputs if name not in known]
        kept.is_blocked = bool(missing)
        if missing:
            kept.status.error = f"waits for {', '.join(missing)}, which has not started yet"
            return
        kept.inputs = self._inputs(registered)
        start = partial(
            self._engine.start,
            service,
            registered.version,
            kept.inputs,
            backfill=registered.backfill,
            begins=registered.begins,
        )
        kept.starting = Starting(service.name, start, self._engine.stop)
        kept.starting.wait(0.0 if kept.failures else START_WAIT_S)
        self._is_started(kept)

    def _is_started(self, kept: _Kept) -> bool:
        """Take in how a start ended; False while it is under way."""
        starting = kept.starting
        assert starting is not None
        if not starting.is_done:
            if time.monotonic() - starting.begun > SLOW_START_S and not starting.is_cancelled:
                kept.status.error = f"its start takes longer than {SLOW_START_S:.0f} s, and goes on"
            return False
        kept.starting = None
        if starting.is_cancelled:
            return True
        if starting.job is None:
            self._failed(kept, starting.error or "it did not start")
            return True
        kept.job = starting.job
        plan = kept.job.compiled.plan
        kept.status.mode, kept.status.reason = plan.mode, plan.reason
        if not kept.failures:
            kept.status.state, kept.status.error = "starting", None
        return True

    def _failed(self, kept: _Kept, cause: str) -> None:
        """Note why, and when to try again: soon, then ever less often, never at the same moment as others."""
        service = kept.registered.service.name
        self._stop(kept)
        kept.failures += 1
        pause = BACKOFF.delay_s(kept.failures)
        kept.retry_at = time.monotonic() + pause
        kept.status.restarts += 1
        cause = redact(cause)
        kept.status.state, kept.status.error = "restarting", cause
        _log.warning("service failed", service=service, cause=cause, again_in_s=round(pause, 1))

    def _stop(self, kept: _Kept) -> None:
        kept.status.state = "stopped"
        if kept.starting is not None:
            kept.starting.cancel()
        job, kept.job = kept.job, None
        if job is not None:
            try:
                self._engine.stop(job)
            except BaseException as problem:  # a query that does not end in time
                _log.warning("service can't be stopped", service=job.service.name, problem=error_text(problem))

    # Telling and keeping -----------------------------------------------------------

    def _tell(self, elapsed_s: float) -> None:
        micros = time.time_ns() // 1_000
        records = []
        for name, kept in self._kept.items():
            self._guarded(f"service {name!r} can't be measured", partial(self._measure, kept, elapsed_s))
            records.append(kept.status.record(micros))
        sources = self.source_statuses()
        for name, said in sources.items():
            records.append(statuses.of_source(name, self._versions.get(name, 0), said).record(micros))
        for name in self._problems.keys() - self._kept.keys() - sources.keys():
            is_stream = name in self._versions
            broken = Status(name, self._versions.get(name, 0), "restarting", error=self._problems[name])
            records.append(replace(broken, kind="source" if is_stream else "service").record(micros))
        if records:
            self._log.append(statuses.STREAM, "0", records)

    def _measure(self, kept: _Kept, elapsed_s: float) -> None:
        if kept.job is None:
            kept.status.read_per_s = kept.status.written_per_s = 0.0
            return
        metrics = self._engine.metrics(kept.job.service.name)
        kept.status.measure(metrics, elapsed_s)
        kept.status.behind_bytes = self._behind(kept.job, metrics["reached"])
        kept.status.state_rows = kept.job.state_rows()
        self._engine.note_reached(kept.job, metrics["reached"])

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
            if name in (catalog.STREAM, audit_stream.STREAM):
                continue  # what was told of a service stays: it says what there is; the gateway shortens its audit log
            retention = kept.get(name)
            limits = Retention(retention.age_s, retention.size_bytes) if retention else Retention(age_s=24 * 3600.0)
            self._guarded(f"stream {name!r} can't be expired", partial(self._expire_one, name, limits))

    def _expire_one(self, name: str, limits: Retention) -> None:
        self._log.expire(name, limits)
