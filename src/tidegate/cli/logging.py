"""What happens, as lines on standard error.

structlog is imported by what logs: it takes a tenth of a second, and most commands never do.
"""

from __future__ import annotations

import sys
from typing import Any, TextIO, cast


class _StandardError:
    """Standard error as it is when something is written: a program that holds another may have changed it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def logger(name: str) -> Any:
    """What writes it, for a part of Tidegate."""
    import structlog

    return structlog.get_logger(name)


def log_to_stderr(least: str = "info") -> None:
    """Write what happens as lines to standard error."""
    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(least),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=cast(TextIO, _StandardError())),
    )
