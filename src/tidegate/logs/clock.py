"""The clock of raw-stream writers and feeds, as a protocol, so that tests can use `tidegate.testing.ManualClock`."""

from __future__ import annotations

import time
from threading import Event
from typing import Protocol


class Clock(Protocol):
    """Returns the time, and waits."""

    def now(self) -> int:
        """Return the time in microseconds since 1970 UTC."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never goes back."""

    def wait(self, stop: Event, seconds: float) -> bool:
        """Block until `stop` is set or some seconds have passed; return True if `stop` is set."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> int:
        """Return the time in microseconds since 1970 UTC."""
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never goes back."""
        return time.monotonic()

    def wait(self, stop: Event, seconds: float) -> bool:
        """Block until `stop` is set or some seconds have passed; return True if `stop` is set."""
        return stop.wait(max(0.0, seconds))
