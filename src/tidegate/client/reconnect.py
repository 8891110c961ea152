"""When and how fast a client reconnects."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.timing import Backoff


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Settings for reconnecting after a lost connection."""

    first_s: float = 1.0
    """Backoff before the first attempt, unless the gateway sets another (`retry:`); doubles with each failure.
    Half of every backoff is random, so that clients that lost a gateway together do not return together."""
    most_s: float = 30.0
    """Maximum backoff."""
    silence_s: float = 45.0
    """Read timeout of a stream. A gateway sends a heartbeat every 15 s."""

    def backoff_s(self, first_s: float, failures: int, random: float) -> float:
        """Return the backoff after a number of consecutive failures. `random` is between 0 and 1.

        >>> [Reconnect().backoff_s(1.0, failures, random=1.0) for failures in (0, 1, 4, 5)]
        [1.0, 2.0, 16.0, 30.0]
        >>> Reconnect().backoff_s(1.0, 0, random=0.0)
        0.5
        """
        return Backoff(first_s, self.most_s).delay_s(failures + 1, lambda: random)
