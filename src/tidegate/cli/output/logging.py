"""Log lines on standard error, as text or as JSON.

structlog is imported at the first log call: it takes a tenth of a second, and most commands log nothing.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from typing import Any

from tidegate.errors import EnvironmentProblem
from tidegate.timing import Throttle

FORMAT = "TIDEGATE_LOG"
"""The environment variable with the format of log lines."""
FORMATS = ("text", "json")
REPEAT_INTERVAL_S = 10.0
"""The same problem is logged again after this time."""


class _StderrWriter:
    """Writes lines to `sys.stderr`, looked up at each line: a test runner may have replaced it."""

    def __init__(self, name: str = "tidegate") -> None:
        self.name = name

    def msg(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    debug = info = warning = error = critical = msg


class _ForwardToStructlog(logging.Handler):
    """Passes records of the standard library's `logging` on to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        exception = {"exc_info": record.exc_info} if record.exc_info else {}
        logger(record.name).log(record.levelno, record.getMessage(), **exception)


class _HoldBackRepeats:
    """Drops a line whose `problem` was logged within `REPEAT_INTERVAL_S`; the next one says how many were dropped.

    Work that is retried several times a second logs each failure, while the registry or the log is away.
    """

    def __init__(self) -> None:
        self._throttle = Throttle(REPEAT_INTERVAL_S)

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if "problem" in event:
            import structlog

            repeats = self._throttle.passes(repr(sorted(event.items(), key=lambda each: each[0])))
            if repeats is None:
                raise structlog.DropEvent
            if repeats:
                event["repeats"] = repeats
        return event


def logger(name: str) -> Any:
    """Return the structlog logger of a component, such as `tidegate.gateway`."""
    import structlog

    return structlog.get_logger(name)


def log_to_stderr(min_level: str = "info") -> None:
    """Configure logging for this process: lines on standard error, in the format of `TIDEGATE_LOG`.

    Raises an `EnvironmentProblem` for an unknown format. Calling it again changes the level.
    """
    import structlog

    format_ = os.environ.get(FORMAT) or FORMATS[0]
    if format_ not in FORMATS:
        raise EnvironmentProblem(f"{FORMAT}: expected {' or '.join(FORMATS)}, not {format_!r:.60}")
    processors: list[Any] = [_HoldBackRepeats(), structlog.processors.add_log_level]
    if format_ == "json":
        processors += [
            _add_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
        ]
    else:
        processors += [
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0),
        ]
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(min_level),
        processors=processors,
        logger_factory=_StderrWriter,
    )
    root = logging.getLogger("tidegate")
    if not any(isinstance(handler, _ForwardToStructlog) for handler in root.handlers):
        root.addHandler(_ForwardToStructlog(logging.WARNING))


def _add_name(writer: Any, _: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event["logger"] = writer.name
    return event
