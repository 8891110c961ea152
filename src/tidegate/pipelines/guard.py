"""Runs steps of the runner that are retried later, and logs their errors without repeating them each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog

from tidegate.errors import error_text

REPEAT_INTERVAL_S = 30.0
"""The same problem is logged again after this time."""

_log = structlog.get_logger("tidegate.runner")


class Guard:
    """Logs the errors of steps; each problem once per `REPEAT_INTERVAL_S`."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[str, float]] = {}

    def run(self, message: str, step: Callable[[], None]) -> None:
        """Run a step. If it raises an Exception, log it with the message and return."""
        try:
            step()
        except Exception as exc:
            self.warn(message, error_text(exc))

    def warn(self, message: str, problem: str, **fields: Any) -> None:
        """Log a problem, unless the same one was logged for this message a short time ago."""
        last_problem, logged_at = self._logged.get(message, ("", 0.0))
        if last_problem != problem or time.monotonic() - logged_at >= REPEAT_INTERVAL_S:
            self._logged[message] = problem, time.monotonic()
            _log.warning(message, problem=problem, **fields)
