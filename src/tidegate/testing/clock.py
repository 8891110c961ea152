"""A clock that is turned by hand."""

from __future__ import annotations

from threading import Event

START_MICROS = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z."""


class ManualClock:
    """Tells the time that it was turned to. Whoever waits on it turns it, and has waited at once.

    It is what `Intake`, feeds and `MemoryLog` take for a clock.

    >>> clock = ManualClock()
    >>> clock.advance(1.5)
    >>> clock.monotonic(), clock.now() - START_MICROS
    (1.5, 1500000)
    """

    def __init__(self, start_micros: int = START_MICROS) -> None:
        self._start_micros, self._passed_s = start_micros, 0.0
        self.waits: list[float] = []
        """How long whoever waited on it wanted to, in seconds."""

    def advance(self, seconds: float) -> None:
        """Turn it on."""
        if seconds < 0:
            msg = f"expected seconds from 0 on, not {seconds!r}: time does not go back"
            raise ValueError(msg)
        self._passed_s += seconds

    def now(self) -> int:
        """The moment, in microseconds since 1970 UTC."""
        return self._start_micros + round(self._passed_s * 1e6)

    def monotonic(self) -> float:
        """Seconds since it was made."""
        return self._passed_s

    def wait(self, stop: Event, seconds: float) -> bool:
        """Turn it on by so much, and say whether `stop` is set."""
        self.waits.append(seconds)
        self.advance(max(0.0, seconds))
        return stop.is_set()
