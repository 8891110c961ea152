"""A clock that tests advance by hand."""

from __future__ import annotations

from threading import Event

START_MICROS = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z."""


class ManualClock:
    """Returns the time that it was advanced to. `wait` advances the clock and returns at once.

    Used in place of the system clock by raw-stream writers, feeds and `MemoryLog`.

    >>> clock = ManualClock()
    >>> clock.advance(1.5)
    >>> clock.monotonic(), clock.now() - START_MICROS
    (1.5, 1500000)
    """

    def __init__(self, start_micros: int = START_MICROS) -> None:
        self._start_micros, self._passed_s = start_micros, 0.0
        self.waits: list[float] = []
        """The seconds of each call of `wait`."""

    def advance(self, seconds: float) -> None:
        """Advance the clock. Raises `ValueError` for a negative number."""
        if seconds < 0:
            msg = f"expected seconds from 0 on, not {seconds!r}: time does not go back"
            raise ValueError(msg)
        self._passed_s += seconds

    def now(self) -> int:
        """Return the time in microseconds since 1970 UTC."""
        return self._start_micros + round(self._passed_s * 1e6)

    def monotonic(self) -> float:
        """Return the seconds since the clock was created."""
        return self._passed_s

    def wait(self, stop: Event, seconds: float) -> bool:
        """Advance the clock by some seconds, and return True if `stop` is set."""
        self.waits.append(seconds)
        self.advance(max(0.0, seconds))
        return stop.is_set()
