"""Starts, watches, restarts and stops the query of one service."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

import structlog

from tidegate.errors import error_text
from tidegate.logs import EventLog
from tidegate.model import Schema
from tidegate.pipelines.engine import Engine, Job
from tidegate.pipelines.start_attempt import StartAttempt
from tidegate.pipelines.status import Status
from tidegate.registry import RegisteredService, ServiceRun
from tidegate.services.redaction import redact
from tidegate.timing import Backoff

BACKOFF = Backoff(first_s=1.0, max_s=60.0, jitter=(0.75, 1.25))
"""Delays before a service that failed is started again."""
STEADY_S = 60.0
"""After a run of this length, earlier failures of a service no longer count."""
START_WAIT_S = 5.0
"""How long the runner waits for the first start of a service; a longer start continues in the background."""
SLOW_START_S = 60.0
"""A longer start is shown as an error in the status, and continues."""
SLOTS_RETRY_S = 1.0
"""Delay before a service that was short of slots is started again: they come back with a worker."""
TASKS_INTERVAL_S = 1.0
"""Time between two looks at the tasks of a service on a cluster."""
TASKS_GRACE_S = 5.0
"""How long tasks may be missing before the service counts as down: at a checkpoint all are replaced."""
FAILING_AFTER = 2
"""Failures in a row after which a service counts as failing: one alone may be due to a busy machine."""

_log = structlog.get_logger("tidegate.runner")


class SupervisedService:
    """A service that should run, its query, and its status. Used by the thread of the runner only."""

    def __init__(self, registered: RegisteredService, engine: Engine, log: EventLog) -> None:
        self.registered, self.status = registered, Status(registered.service.name, registered.version, "starting")
        self.attempt: StartAttempt | None = None
        """An attempt to start the query that has not ended."""
        self.job: Job | None = None
        self.is_blocked = False
        """True while an input does not exist, because the service that writes it has not started."""
        self.new_run: ServiceRun | None = None
        """The run that began and that the registry does not know yet; the runner resets it."""
        self._engine, self._log = engine, log
        self._input_schemas: Mapping[str, Schema] = {}
        """The schemas that the query was started with."""
        self._failures = 0
        self._retry_at = self._look_at = 0.0
        self._short_since: float | None = None
        """Since when slots or tasks are missing, in monotonic time."""

    @property
    def is_failing(self) -> bool:
        """True if the service fails repeatedly, or its start takes too long."""
        slow = self.attempt is not None and self.status.error is not None
        return self._failures >= FAILING_AFTER or slow or self._is_short

    def update(self, registered: RegisteredService, schemas: Mapping[str, Schema]) -> None:
        """Stop the query if the definition or the schema of an input has changed; `poll` starts it again.

        `schemas` has the schema of every stream, by name.
        """
        has_same_input = not self._input_schemas or self._input_schemas == _input_schemas(registered, schemas)
        if self.registered.version == registered.version and has_same_input:
            return
        self.stop()
        self.registered, self._failures, self._retry_at = registered, 0, 0.0
        self.status.version, self.status.state, self.status.error = registered.version, "starting", None

    def poll(self, schemas: Mapping[str, Schema], *, may_start: bool) -> None:
        """Start the query if it is due, and update the status. `may_start`: no earlier query of this name is stopping.

        May raise anything; the runner then calls `fail`.
        """
        if self.attempt is not None and not self._finish_attempt():
            return
        job = self.job
        if job is None:
            if time.monotonic() >= self._retry_at and may_start:
                self._start(schemas)
            return
        failure = job.failure()
        if failure is not None:
            self.fail(failure)
        elif self.status.state != "running" and self._engine.is_ready(job):
            self.status.state, self.status.missing_tasks, self._short_since = "running", 0, None
            if not self._failures:
                self.status.error = None
            _log.info("service runs", service=job.service.name, mode=job.compiled.plan.mode)
        elif self._failures and time.time() - job.started > STEADY_S:
            self._failures = 0
            self.status.error = None
        elif self._is_down(job):
            self.status.state = "restarting"
        elif any(self._log.partitions(name) != partitions for name, partitions in job.partitions.items()):
            _log.info("the partitions of an input have changed: starting again", service=job.service.name)
            self.stop()

    def fail(self, cause: str) -> None:
        """Stop the query, and schedule a restart with backoff and jitter."""
        self.stop()
        self._failures += 1
        delay_s = BACKOFF.delay_s(self._failures)
        self._retry_at = time.monotonic() + delay_s
        self.status.restarts += 1
        cause = redact(cause)
        self.status.state, self.status.error = "restarting", cause
        name = self.registered.service.name
        _log.warning("service failed", service=name, cause=cause, again_in_s=round(delay_s, 1))

    def stop(self) -> None:
        """Stop the query, and cancel a start. Never raises."""
        self.status.state = "stopped"
        if self.attempt is not None:
            self.attempt.cancel()
        job, self.job = self.job, None
        if job is not None:
            try:
                self._engine.stop(job)
            except BaseException as exc:  # such as a query that does not end in time
                _log.warning("service can't be stopped", service=job.service.name, problem=error_text(exc))

    def measure(self, elapsed_s: float) -> None:
        """Update the rates, latencies and backlog of the status. `elapsed_s` is the time since the last call."""
        if self.job is None:
            self.status.read_per_s = self.status.written_per_s = 0.0
            return
        reached = self._engine.reached(self.job)
        metrics = self._engine.metrics(self.job.service.name) | self._engine.log_counts(self.job, reached)
        self.status.measure(metrics, elapsed_s)
        self.status.behind_bytes = self._backlog_bytes(self.job, reached)
        self.status.state_rows = self.job.state_rows()
        self._engine.note_reached(self.job, reached)

    def _start(self, schemas: Mapping[str, Schema]) -> None:
        registered, service = self.registered, self.registered.service
        streams = self._log.streams()
        missing = [name for name in service.inputs if name not in streams]
        self.is_blocked = bool(missing)
        if missing:
            self.status.error = f"waits for {', '.join(missing)}, which has not started yet"
            return
        self._input_schemas = _input_schemas(registered, schemas)
        start = partial(
            self._engine.start,
            service,
            registered.version,
            self._input_schemas,
            backfill=registered.backfill,
            begins=registered.begins,
            run=registered.run,
        )
        self.attempt = StartAttempt(service.name, start, self._engine.stop)
        self.attempt.wait(0.0 if self._failures else START_WAIT_S)
        self._finish_attempt()

    def _finish_attempt(self) -> bool:
        """Take the result of the start. Returns False if it has not ended."""
        attempt = self.attempt
        assert attempt is not None
        if not attempt.is_done:
            if time.monotonic() - attempt.started_at > SLOW_START_S and not attempt.is_cancelled:
                self.status.error = f"its start takes longer than {SLOW_START_S:.0f} s, and continues"
            return False
        self.attempt = None
        if attempt.is_cancelled:
            return True
        if attempt.job is None and attempt.missing_slots:
            self._wait_for_slots(str(attempt.error), attempt.missing_slots)
            return True
        if attempt.job is None:
            self.fail(attempt.error or "it did not start")
            return True
        self.job = attempt.job
        run = ServiceRun(self.registered.version, self._engine.checkpoints.place)
        self.new_run = None if run == self.registered.run else run
        plan = self.job.compiled.plan
        self.status.mode, self.status.reason = plan.mode, plan.reason
        if not self._failures:
            self.status.state, self.status.error = "starting", None
        return True

    @property
    def _is_short(self) -> bool:
        return self._short_since is not None and time.monotonic() - self._short_since > TASKS_GRACE_S

    def _wait_for_slots(self, problem: str, missing: int) -> None:
        """Try again soon, and say what is missing. Does not count as a failure."""
        self._retry_at = time.monotonic() + SLOTS_RETRY_S
        self._short_since = self._short_since or time.monotonic()
        if self._is_short and self.status.error != problem:
            self.status.error, self.status.missing_tasks = problem, missing
            _log.warning("service waits for slots", service=self.registered.service.name, problem=problem)

    def _is_down(self, job: Job) -> bool:
        """Return True if tasks of a service that ran are missing for longer than a checkpoint takes."""
        now = time.monotonic()
        if self.status.state not in ("running", "restarting") or now < self._look_at:
            return False
        self._look_at = now + TASKS_INTERVAL_S
        missing = self._engine.missing_tasks(job)
        if not missing:
            self._short_since = None
            return False
        self._short_since = self._short_since or now
        if not self._is_short:
            return False
        problem = f"{missing} of its {job.tasks} real-time tasks do not run: no executor has a slot for them"
        if self.status.error != problem:
            _log.warning("service waits for slots", service=job.service.name, problem=problem)
        self.status.missing_tasks, self.status.error = missing, problem
        return True

    def _backlog_bytes(self, job: Job, reached: Mapping[str, int]) -> int:
        """Return how many bytes of the inputs the query has not read yet."""
        total = 0
        for stream in job.service.inputs:
            for partition, end in self._log.end(stream).offsets.items():
                total += max(0, end - reached.get(f"{stream}/{partition}", end))
        return total


def _input_schemas(registered: RegisteredService, schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    return {name: schemas[name] for name in registered.service.inputs}
