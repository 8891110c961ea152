"""Notes whether the registry or the log does not answer, and why."""

from __future__ import annotations

import time

import structlog

from tidegate.errors import error_text

PARTS = ("registry", "log")
"""What a gateway needs and may lose for a while."""
REPEAT_INTERVAL_S = 30.0
"""The same problem is logged again after this time."""

_log = structlog.get_logger("tidegate.gateway")


class Outages:
    """The parts that don't answer. While there is one, the gateway is degraded: it serves requests that don't need it.

    The follower of the gateway calls `note` and `clear` after each attempt to read a part; the routes read `problems`.
    All on the event loop.
    """

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        """Why a part, `registry` or `log`, can't be used; empty if both answer."""
        self._logged: dict[str, tuple[str, float]] = {}

    def note(self, what: str, problem: Exception, part: str, outage: type[Exception]) -> None:
        """Log a failed attempt; the same problem again only after `REPEAT_INTERVAL_S`.

        A problem that is an `outage` puts the part out of use; any other is only logged.
        """
        text = error_text(problem)
        if isinstance(problem, outage):
            self.problems[part] = text
        logged, logged_at = self._logged.get(what, ("", 0.0))
        if logged != text or time.monotonic() - logged_at >= REPEAT_INTERVAL_S:
            self._logged[what] = text, time.monotonic()
            _log.warning(what, problem=text)

    def clear(self, part: str) -> bool:
        """Note that a part answers. Returns True if this ends an outage."""
        if self.problems.pop(part, None) is None:
            return False
        self._logged.clear()
        _log.info(f"the {part} answers again")
        return True
