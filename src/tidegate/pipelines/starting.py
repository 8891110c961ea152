"""Starts one service in a thread of its own, so that a start that hangs or raises is that service's error alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock, Thread

import structlog

from tidegate.errors import error_text
from tidegate.pipelines.engine import Job

_log = structlog.get_logger("tidegate.runner")


class Starting:
    """One attempt to start a service. `job` or `error` is set when it `is_done`."""

    def __init__(self, service: str, start: Callable[[], Job], stop: Callable[[Job], None]) -> None:
        """Run `start` in a daemon thread. A job that comes after `cancel` is handed to `stop`."""
        self.job: Job | None = None
        self.error: str | None = None
        self.is_cancelled = False
        self.begun = time.monotonic()
        self._service, self._start, self._stop, self._lock = service, start, stop, Lock()
        self._thread = Thread(target=self._run, name=f"start-{service}", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the attempt; False if it takes longer."""
        self._thread.join(timeout_s)
        return self.is_done

    @property
    def is_done(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """Let the attempt come to nothing: what it has started, or will have, is stopped."""
        with self._lock:
            self.is_cancelled = True
            job, self.job = self.job, None
        if job is not None:
            self._end(job)

    def _run(self) -> None:
        try:
            job = self._start()
        except BaseException as problem:  # SystemExit of a custom function, Py4J's errors, RecursionError: all alike
            self.error = error_text(problem)
            return
        with self._lock:
            if not self.is_cancelled:
                self.job = job
                return
        self._end(job)

    def _end(self, job: Job) -> None:
        try:
            self._stop(job)
        except BaseException as problem:
            _log.warning("service can't be stopped", service=self._service, problem=error_text(problem))
