"""What happens, as lines on standard error: to be read by people, or in JSON by a program.

structlog is imported by what logs: it takes a tenth of a second, and most commands never do.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from typing import Any

from tidegate.errors import EnvironmentProblem

FORMAT = "TIDEGATE_LOG"
"""The environment variable that says how lines are written."""
FORMATS = ("text", "json")


class _Lines:
    """Standard error as it is when something is written: a program that holds another may have changed it."""

    def __init__(self, name: str = "tidegate") -> None:
        self.name = name

    def msg(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    debug = info = warning = error = critical = msg


class _Forward(logging.Handler):
    """What parts say by the standard library, as all else is said."""

    def emit(self, record: logging.LogRecord) -> None:
        said = logger(record.name)
        said.log(record.levelno, record.getMessage(), **({"exc_info": record.exc_info} if record.exc_info else {}))


def logger(name: str) -> Any:
    """What writes it, for a part of Tidegate."""
    import structlog

    return structlog.get_logger(name)


def log_to_stderr(least: str = "info") -> None:
    """Write what happens as lines to standard error, in the format that the environment wants."""
    import structlog

    format_ = os.environ.get(FORMAT) or FORMATS[0]
    if format_ not in FORMATS:
        raise EnvironmentProblem(f"{FORMAT}: expected {' or '.join(FORMATS)}, not {format_!r:.60}")
    first: list[Any] = [structlog.processors.add_log_level]
    if format_ == "json":
        first += [
            _add_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
        ]
    else:
        first += [
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0),
        ]
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(least),
        processors=first,
        logger_factory=_Lines,
    )
    root = logging.getLogger("tidegate")
    if not any(isinstance(each, _Forward) for each in root.handlers):
        root.addHandler(_Forward(logging.WARNING))


def _add_name(said: Any, _: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event["logger"] = said.name
    return event
