"""What is seen of a service lately: rolling windows of observations.

Whoever observes says when: nothing here asks for the time. Latencies are counted in
steps of 5 percent, so that a window of any number of them is small, and its percentile
right to that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

_STEP = math.log(1.05)
_LEAST_S = 1e-6
PERCENTILE = 0.99


@dataclass(frozen=True, slots=True)
class Observation:
    """What somebody saw of a service at a moment; what is not said was not seen."""

    at: float
    """When, in seconds since 1970."""
    up: bool | None = None
    """Whether it answered, or runs."""
    latency_s: float | None = None
    """Of one event, or a percentile that others measured."""
    events: int = 0
    """That came out since the last observation."""
    refused: int = 0
    """That did not, as they violated a constraint."""
    newest_at: float | None = None
    """The time of the newest event."""


@dataclass(slots=True)
class _Slot:
    """A piece of the window."""

    up: int = 0
    down: int = 0
    events: int = 0
    refused: int = 0
    latencies: dict[int, int] = field(default_factory=dict)


class Window:
    """The observations of one service, as long as they count.

    >>> window = Window(60.0)
    >>> for n in range(10):
    ...     window.observe(Observation(at=100.0 + n, up=n != 3, events=5, latency_s=0.02))
    >>> sorted(window.figures(110.0))
    ['availability', 'completeness', 'latency', 'rate']
    >>> window.figures(110.0)["availability"], window.figures(110.0)["rate"]
    (0.9, 5.0)
    """

    def __init__(self, length_s: float = 300.0, slots: int = 60) -> None:
        self.length_s = length_s
        self._slot_s = length_s / slots
        self._slots: dict[int, _Slot] = {}
        self._first_at = math.inf
        self._newest_at: float | None = None

    def observe(self, seen: Observation) -> None:
        """Count an observation, also one that comes a little late."""
        slot = self._slots.setdefault(math.floor(seen.at / self._slot_s), _Slot())
        self._first_at = min(self._first_at, seen.at)
        if seen.up is not None:
            slot.up += seen.up
            slot.down += not seen.up
        slot.events += seen.events
        slot.refused += seen.refused
        if seen.latency_s is not None:
            step = round(math.log(max(seen.latency_s, _LEAST_S)) / _STEP)
            slot.latencies[step] = slot.latencies.get(step, 0) + 1
        if seen.newest_at is not None:
            self._newest_at = seen.newest_at if self._newest_at is None else max(self._newest_at, seen.newest_at)

    def figures(self, now: float) -> Mapping[str, float]:
        """What the window says by now, by metric; a metric that nothing says anything of is not in it."""
        oldest = math.floor((now - self.length_s) / self._slot_s)
        for number in [n for n in self._slots if n <= oldest]:
            del self._slots[number]
        slots = self._slots.values()
        found: dict[str, float] = {}
        up, down = sum(slot.up for slot in slots), sum(slot.down for slot in slots)
        if up + down:
            found["availability"] = up / (up + down)
        events, refused = sum(slot.events for slot in slots), sum(slot.refused for slot in slots)
        if events + refused:
            found["completeness"] = events / (events + refused)
        since_s = min(self.length_s, now - self._first_at)
        if since_s > 0 and (events or slots):
            found["rate"] = events / since_s
        latency_s = self._latency()
        if latency_s is not None:
            found["latency"] = latency_s
        if self._newest_at is not None:
            found["freshness"] = max(0.0, now - self._newest_at)
        return found

    def _latency(self) -> float | None:
        counts: dict[int, int] = {}
        for slot in self._slots.values():
            for step, count in slot.latencies.items():
                counts[step] = counts.get(step, 0) + count
        rank = math.ceil(PERCENTILE * sum(counts.values()))
        for step in sorted(counts):
            rank -= counts[step]
            if rank <= 0:
                return math.exp(step * _STEP)
        return None
