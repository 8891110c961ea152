"""The time as those who append see it, so that a test can turn the hands."""

from __future__ import annotations

import time
from threading import Event
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and waits."""

    def now(self) -> int:
        """The moment, in microseconds since 1970 UTC."""

    def monotonic(self) -> float:
        """Seconds since some moment; never back."""

    def wait(self, stop: Event, seconds: float) -> bool:
        """Wait until `stop` is set, at most so long; say whether it is set."""


class SystemClock:
    """The machine's."""

    def now(self) -> int:
        """The moment, in microseconds since 1970 UTC."""
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def wait(self, stop: Event, seconds: float) -> bool:
        """Wait until `stop` is set, at most so long."""
        return stop.wait(max(0.0, seconds))
