"""What happens, as lines on standard error."""

from __future__ import annotations

import structlog
import typer


def log_to_stderr(least: str = "info") -> None:
    """Write what happens as lines to standard error."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(least),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=typer.get_text_stream("stderr")),
    )
