"""Starts one service in a thread of its own, so that a start that hangs or raises affects this service only."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock, Thread

import structlog

from tidegate.errors import error_text
from tidegate.pipelines.engine import Job
from tidegate.pipelines.slots import MissingSlotsError

_log = structlog.get_logger("tidegate.runner")


class StartAttempt:
    """One attempt to start a service. When `is_done` is true, `job` or `error` is set."""

    def __init__(self, service: str, start: Callable[[], Job], stop: Callable[[Job], None]) -> None:
        """Run `start` in a daemon thread. If `cancel` was called before it returns, its job is passed to `stop`."""
        self.job: Job | None = None
        self.error: str | None = None
        self.is_cancelled = False
        self.missing_slots = 0
        """How many slots of a cluster were missing, if that was the error."""
        self.started_at = time.monotonic()
        self._service, self._start, self._stop, self._lock = service, start, stop, Lock()
        self._thread = Thread(target=self._run, name=f"start-{service}", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the attempt. Returns False if it takes longer."""
        self._thread.join(timeout_s)
        return self.is_done

    @property
    def is_done(self) -> bool:
        """True if the thread has ended."""
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """Cancel the attempt: its job is stopped, now or when the start returns."""
        with self._lock:
            self.is_cancelled = True
            job, self.job = self.job, None
        if job is not None:
            self._stop_job(job)

    def _run(self) -> None:
        try:
            job = self._start()
        except BaseException as exc:  # also SystemExit of a custom function, errors of Py4J, RecursionError
            self.error = error_text(exc)
            self.missing_slots = exc.missing if isinstance(exc, MissingSlotsError) else 0
            return
        with self._lock:
            if not self.is_cancelled:
                self.job = job
                return
        self._stop_job(job)

    def _stop_job(self, job: Job) -> None:
        try:
            self._stop(job)
        except BaseException as exc:
            _log.warning("service can't be stopped", service=self._service, problem=error_text(exc))
