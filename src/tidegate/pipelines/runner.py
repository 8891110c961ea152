"""Reconciles the running queries with the registry, and writes their status to `_status`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from graphlib import TopologicalSorter
from typing import Any

import structlog

from tidegate.errors import LogError, error_text, is_permanent
from tidegate.logs import EventLog, RetentionLimits
from tidegate.model import Schema
from tidegate.pipelines import status as statuses
from tidegate.pipelines.catalog import CatalogWriter
from tidegate.pipelines.engine import Engine
from tidegate.pipelines.expiry import DEFAULT_RETENTION, expire_streams
from tidegate.pipelines.guard import Guard
from tidegate.pipelines.start_attempt import StartAttempt
from tidegate.pipelines.status import Status
from tidegate.pipelines.supervised_service import SupervisedService
from tidegate.registry import Registry
from tidegate.services.check import usable
from tidegate.services.definitions import Definitions

POLL_INTERVAL_S = 0.25
"""Between two calls of `Runner.step`."""
STATUS_INTERVAL_S = 1.0
"""Between two events of `_status`."""
EXPIRY_INTERVAL_S = 60.0

_log = structlog.get_logger("tidegate.runner")


class Runner:
    """Starts, updates and stops queries so that they are what the registry says. Writes `_status` and `_services`.

    No definition ends it: an error of one service, stream or record is shown in `_status`, and retried with backoff;
    the other services continue. All methods are called by one thread.
    """

    def __init__(
        self, registry: Registry, log: EventLog, engine: Engine, default_retention: RetentionLimits = DEFAULT_RETENTION
    ) -> None:
        """`default_retention` is that of streams without a definition."""
        self._default_retention = default_retention
        self._registry, self._log, self._engine, self._guard = registry, log, engine, Guard()
        self._services: dict[str, SupervisedService] = {}
        """Services that should run, each after those that it reads."""
        self._removed_attempts: dict[str, tuple[StartAttempt, bool]] = {}
        """Unfinished starts of removed services, and whether to delete the state of the service after the start."""
        self._revision = -1
        self._status_at = self._expired_at = time.monotonic()
        self._definitions = Definitions()
        self._schemas: dict[str, Schema] = {}
        self._problems: dict[str, str] = {}
        """By name, why a stream or service of the registry can't be used."""
        self._stream_versions: dict[str, int] = {}
        self.source_statuses: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
        """Returns the status of each feed, as `Feeds.status` does."""
        log.create(statuses.STREAM)
        self._catalog = CatalogWriter(log)

    def step(self) -> None:
        """Reconcile the queries with the registry once: start, update and stop what differs. Never raises."""
        self._guard.run("the registry can't be read", self._reconcile)
        for name, service in list(self._services.items()):
            try:
                service.poll(self._schemas, may_start=name not in self._removed_attempts)
            except BaseException as exc:  # an error of one service must not stop the others
                if isinstance(exc, LogError) and not is_permanent(exc):
                    # Its query retries by itself. Stopping it would lose its warm state for nothing.
                    self._guard.warn("the log does not answer", error_text(exc))
                    break
                service.fail(error_text(exc))
        self._guard.run("the runs of services can't be stored", self._note_runs)
        now = time.monotonic()
        if now - self._status_at >= STATUS_INTERVAL_S:
            elapsed_s, self._status_at = now - self._status_at, now
            self._guard.run("the status can't be written", partial(self._write_status, elapsed_s))
        if now - self._expired_at >= EXPIRY_INTERVAL_S:
            self._expired_at = now
            expire = partial(expire_streams, self._log, self._definitions, self._guard, self._default_retention)
            self._guard.run("streams can't be expired", expire)

    def _note_runs(self) -> None:
        """Tell the registry which services have begun to run here."""
        for name, service in self._services.items():
            if service.new_run is not None:
                self._registry.note_run(name, service.new_run)
                service.new_run = None

    def statuses(self) -> list[Status]:
        """Return the current status of each service."""
        return [service.status for service in self._services.values()]

    @property
    def definitions(self) -> Definitions:
        """The valid definitions of the registry, when it was last read successfully."""
        return self._definitions

    @property
    def revision(self) -> int:
        """The revision of the registry when it was last read successfully; -1: not yet."""
        return self._revision

    @property
    def is_ready(self) -> bool:
        """True if the registry was read and every service runs."""
        return self._revision >= 0 and all(service.status.state == "running" for service in self._services.values())

    @property
    def is_settled(self) -> bool:
        """True if the registry was read and every service runs or is known to fail."""
        return self._revision >= 0 and all(
            service.status.state == "running" or self._is_failing(service) for service in self._services.values()
        )

    def failing(self) -> list[str]:
        """Return services that fail repeatedly or wait for one that does, and streams whose source fails; sorted."""
        sources = [name for name, status in self.source_statuses().items() if status["state"] == "waiting"]
        services = [name for name, service in self._services.items() if self._is_failing(service)]
        return sorted({*services, *sources, *self._problems})

    def _is_failing(self, service: SupervisedService) -> bool:
        if service.is_failing:
            return True
        inputs = [self._services[name] for name in service.registered.service.inputs if name in self._services]
        return service.is_blocked and (not inputs or any(self._is_failing(upstream) for upstream in inputs))

    def close(self) -> None:
        """Stop all services, readers before the services that they read, and write the last status."""
        for name in reversed(self._order()):
            self._services[name].stop()
        elapsed_s = max(1e-3, time.monotonic() - self._status_at)
        self._guard.run("the status can't be written", partial(self._write_status, elapsed_s))

    # Reconciling -------------------------------------------------------------------

    def _reconcile(self) -> None:
        self._forget_removed()
        revision = self._registry.revision()
        if revision == self._revision:
            return
        registered = self._registry.services()
        valid = usable(self._registry.definitions())
        self._stream_versions = {name: stream.version for name, stream in self._registry.streams().items()}
        self._definitions, self._schemas = valid.definitions, valid.schemas
        self._problems = {**self._registry.unreadable(), **valid.problems}
        for name, problem in self._problems.items():
            self._guard.warn(f"the registry's {name!r} can't be used", problem)
        for stream in self._definitions.streams.values():
            partitions = [str(n) for n in range(stream.partitions)]
            create = partial(self._log.create, stream.name, partitions)
            self._guard.run(f"stream {stream.name!r} can't be created", create)
        desired = {name: entry for name, entry in registered.items() if name in self._definitions.services}
        # A later version may be able to read a definition that this one can't: keep its checkpoint and output.
        for name in [name for name in self._services if name not in desired]:
            self._remove(name, forget=name not in self._problems)
        for name, entry in desired.items():
            if name in self._services:
                self._services[name].update(entry, self._schemas)
            else:
                self._services[name] = SupervisedService(entry, self._engine, self._log)
        self._services = {name: self._services[name] for name in self._order()}
        self._guard.run("the catalog can't be written", partial(self._catalog.update, desired, self._schemas))
        self._revision = revision

    def _remove(self, name: str, *, forget: bool) -> None:
        service = self._services.pop(name)
        service.stop()
        if service.attempt is not None:
            self._removed_attempts[name] = service.attempt, forget
        elif forget:
            self._guard.run(f"service {name!r} can't be forgotten", partial(self._engine.forget, name))
        _log.info("service removed", service=name)

    def _forget_removed(self) -> None:
        """Delete the state of removed services whose starts have ended."""
        for name in [name for name, (attempt, _) in self._removed_attempts.items() if attempt.is_done]:
            _, forget = self._removed_attempts.pop(name)
            if forget and name not in self._services:
                self._engine.forget(name)

    def _order(self) -> list[str]:
        """Return the services, each after those that it reads."""
        graph = {
            name: {stream for stream in service.registered.service.inputs if stream in self._services}
            for name, service in self._services.items()
        }
        return list(TopologicalSorter(graph).static_order())

    # Status ------------------------------------------------------------------------

    def _write_status(self, elapsed_s: float) -> None:
        """Append the status of all services and sources to `_status`. `elapsed_s` is the time since the last call."""
        now_micros = time.time_ns() // 1_000
        records = []
        for name, service in self._services.items():
            self._guard.run(f"service {name!r} can't be measured", partial(service.measure, elapsed_s))
            records.append(service.status.record(now_micros))
        sources = self.source_statuses()
        for name, feed_status in sources.items():
            version = self._stream_versions.get(name, 0)
            records.append(statuses.of_source(name, version, feed_status).record(now_micros))
        for name in self._problems.keys() - self._services.keys() - sources.keys():
            is_stream = name in self._stream_versions
            status = Status(name, self._stream_versions.get(name, 0), "restarting", error=self._problems[name])
            records.append(replace(status, kind="source" if is_stream else "service").record(now_micros))
        if records:
            self._log.append(statuses.STREAM, "0", records)
