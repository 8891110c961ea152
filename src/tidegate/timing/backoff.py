"""Exponential backoff: the delay before something that failed is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

NO_JITTER = (1.0, 1.0)

_MAX_DOUBLINGS = 60
"""Keeps the power of two finite however often something fails."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double with each failure in a row, up to a maximum, with jitter.

    Keeps no state: the caller counts the failures, and starts again at 0 when it sees fit.

    >>> backoff = Backoff(first_s=1.0, max_s=5.0, jitter=NO_JITTER)
    >>> [backoff.delay_s(failures) for failures in range(6)]
    [0.0, 1.0, 2.0, 4.0, 5.0, 5.0]
    """

    first_s: float
    """Delay after the first failure, before jitter."""
    max_s: float
    """Longest delay, before jitter."""
    jitter: tuple[float, float] = (0.5, 1.0)
    """Each delay is multiplied by a random factor from this range, so that clients which failed together do not all
    retry at the same time."""

    def delay_s(self, failures: int, random_unit: Callable[[], float] = random.random) -> float:
        """Return the seconds to wait after this many failures in a row; 0 if nothing has failed.

        `random_unit` returns a number from 0 to 1; pass a seeded one to make the delays reproducible.
        """
        if failures <= 0:
            return 0.0
        low, high = self.jitter
        delay_s = min(self.max_s, self.first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
        return delay_s * (low + (high - low) * random_unit())
