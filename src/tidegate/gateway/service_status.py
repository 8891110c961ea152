"""What the stream `_status` says of each service and source, and whether its runner still reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import structlog

from tidegate.errors import CursorError, StreamNotFound, error_text
from tidegate.logs import Cursor, EventLog
from tidegate.model import timestamps

STREAM = "_status"
SILENT_AFTER_S = 15.0
"""A runner reports each service every second; after this time without a report it is considered dead."""
READ_LIMIT = 1_000
"""Events that are read from the log at once."""

_log = structlog.get_logger("tidegate.gateway")


class ServiceStatuses:
    """The newest status of each service, read from the log.

    `on_status` is called with each new status, on the thread that calls `read`.
    """

    def __init__(self, log: EventLog, on_status: Callable[[Mapping[str, Any]], None]) -> None:
        self.newest: dict[str, dict[str, Any]] = {}
        """The newest event of `_status` for each service."""
        self.sources: dict[str, dict[str, Any]] = {}
        """The newest event of `_status` for the source of each raw stream, also of streams that were removed."""
        self._log, self._on_status = log, on_status
        self._written_at: dict[str, float] = {}
        """When the newest event of each service and source was written, as `time.monotonic`."""
        self._log_back_at = 0.0
        self._cursor: Cursor | None = None
        self._lock = threading.Lock()
        """Held while reading: routes read too, beside the follower of the gateway."""

    def read(self) -> None:
        """Read the events that are new since the last call. Blocks; safe on any thread.

        Raises a `LogError` if the log does not answer.
        """
        with self._lock:
            self._read()

    def _read(self) -> None:
        try:
            is_old = self._cursor is None
            if self._cursor is None:
                self._cursor = self._log.begin(STREAM)
            while (read := self._log.read(STREAM, self._cursor, READ_LIMIT)).records:
                for record in read.records:
                    try:
                        self._add(orjson.loads(record), is_old=is_old)
                    except (ValueError, TypeError, KeyError) as problem:  # written by another version
                        _log.warning("a record of _status can't be read", problem=error_text(problem))
                self._cursor = read.cursor
        except (StreamNotFound, CursorError):  # no service has run here yet, or the stream was created again
            self._cursor = None

    def _add(self, status: Mapping[str, Any], *, is_old: bool) -> None:
        name = status["service"]
        self._written_at[name] = time.monotonic() - (_age_s(status) if is_old else 0.0)
        if status.get("kind", "service") != "service":  # it is about the source of a raw stream
            self.sources[name] = dict(status)
            return
        self.newest[name] = dict(status)
        self._on_status(status)

    def log_answers_again(self) -> None:
        """Start the time for silent runners again: they could not report while the log did not answer."""
        self._log_back_at = time.monotonic()

    def state(self, name: str, *, can_report: bool) -> str:
        """Return the state of a service; `silent` if its runner stopped reporting without saying that it stops.

        `can_report`: False if the log does not answer at the moment; then no runner is silent.
        """
        return self._state(name, self.newest.get(name), can_report=can_report)

    def source_state(self, stream: str, *, can_report: bool) -> str:
        """Return the state of the source of a raw stream, as `state` does."""
        return self._state(stream, self.sources.get(stream), can_report=can_report)

    def _state(self, name: str, status: Mapping[str, Any] | None, *, can_report: bool) -> str:
        if status is None:
            return "never ran"
        if status["state"] in ("stopped", "ended") or not can_report:
            return str(status["state"])
        reported_at = max(self._written_at[name], self._log_back_at)
        return "silent" if time.monotonic() - reported_at > SILENT_AFTER_S else str(status["state"])


def _age_s(status: Mapping[str, Any]) -> float:
    """Return the age of a status event that was written before the gateway started, by its own clock."""
    written_at = timestamps.from_text(status["time"])
    return 0.0 if written_at is None else max(0.0, time.time() - written_at / 1e6)
