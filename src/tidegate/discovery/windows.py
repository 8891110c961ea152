"""Rolling windows over the observations of services.

The caller passes the time; nothing here reads a clock. Latencies are counted in buckets of 5 percent, so that a window
is small for any number of events, and its percentiles are exact to 5 percent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

_STEP = math.log(1.05)
_MIN_LATENCY_S = 1e-6
PERCENTILE = 0.99


@dataclass(frozen=True, slots=True)
class Observation:
    """The observations of a service at one time; fields with their default were not observed."""

    at: float
    """Time in seconds since 1970."""
    up: bool | None = None
    """True if the service answered, or runs."""
    latency_s: float | None = None
    """Latency of one event, or a percentile measured elsewhere."""
    events: int = 0
    """Events emitted since the last observation."""
    refused: int = 0
    """Events that violated a constraint since the last observation."""
    newest_at: float | None = None
    """Time of the newest event, in seconds since 1970."""


@dataclass(slots=True)
class _Slot:
    """One interval of the window."""

    up: int = 0
    down: int = 0
    events: int = 0
    refused: int = 0
    latencies: dict[int, int] = field(default_factory=dict)


class ObservationWindow:
    """The observations of one service during the last `length_s` seconds.

    >>> window = ObservationWindow(60.0)
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

    def observe(self, observation: Observation) -> None:
        """Add an observation, also one that arrives a little late."""
        slot = self._slots.setdefault(math.floor(observation.at / self._slot_s), _Slot())
        self._first_at = min(self._first_at, observation.at)
        if observation.up is not None:
            slot.up += observation.up
            slot.down += not observation.up
        slot.events += observation.events
        slot.refused += observation.refused
        if observation.latency_s is not None:
            step = round(math.log(max(observation.latency_s, _MIN_LATENCY_S)) / _STEP)
            slot.latencies[step] = slot.latencies.get(step, 0) + 1
        if observation.newest_at is not None:
            self._newest_at = (
                observation.newest_at if self._newest_at is None else max(self._newest_at, observation.newest_at)
            )

    def figures(self, now: float) -> Mapping[str, float]:
        """Return the window's value of each metric at a time; metrics without observations are left out."""
        oldest = math.floor((now - self.length_s) / self._slot_s)
        for number in [n for n in self._slots if n <= oldest]:
            del self._slots[number]
        slots = self._slots.values()
        values: dict[str, float] = {}
        up, down = sum(slot.up for slot in slots), sum(slot.down for slot in slots)
        if up + down:
            values["availability"] = up / (up + down)
        events, refused = sum(slot.events for slot in slots), sum(slot.refused for slot in slots)
        if events + refused:
            values["completeness"] = events / (events + refused)
        since_s = min(self.length_s, now - self._first_at)
        if since_s > 0 and (events or slots):
            values["rate"] = events / since_s
        latency_s = self._latency()
        if latency_s is not None:
            values["latency"] = latency_s
        if self._newest_at is not None:
            values["freshness"] = max(0.0, now - self._newest_at)
        return values

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
