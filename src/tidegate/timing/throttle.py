"""Leaves out repeats of a message."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

_MAX_KEYS = 1_000
"""Keys that are remembered; with more, all are forgotten, and each may pass once again. A dict that is cleared, since
the command line uses this module without the extra that brings `cachetools`."""


class Throttle:
    """Lets one of each kind of message pass per interval, and counts those that it holds back. Thread-safe.

    >>> now = 0.0
    >>> throttle = Throttle(30.0, lambda: now)
    >>> throttle.passes("a"), throttle.passes("a"), throttle.passes("b")
    (0, None, 0)
    >>> now = 31.0
    >>> throttle.passes("a")
    1
    """

    def __init__(self, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s, self._clock = interval_s, clock
        self._lock = Lock()
        self._seen: dict[str, tuple[float, int]] = {}
        """By key, when a message has passed, and how many were held back since."""

    def passes(self, key: str) -> int | None:
        """Return how many messages were held back since the last one that passed; None: hold this one back too."""
        now = self._clock()
        with self._lock:
            passed_at, held_back = self._seen.get(key, (-self._interval_s, 0))
            if now - passed_at < self._interval_s:
                self._seen[key] = passed_at, held_back + 1
                return None
            if len(self._seen) >= _MAX_KEYS:
                self._seen.clear()
            self._seen[key] = now, 0
            return held_back
