"""What a service has done, counted as the connector counts it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from threading import Lock
from typing import Any

from tidegate.services.quality import LATENCY_BOUNDS_S

COUNTS = ("read", "bytes", "missed_bytes", "written", "quarantined", "flagged", "dropped", "skipped")

_STEPS = 16
"""Buckets of latencies for every doubling of microseconds."""


class Metrics:
    """Counts since the start, and latencies since they were last asked for."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = Counter[str]()
        self._reached: dict[str, int] = {}
        self._latencies = Counter[int]()
        self._within = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self._waited = 0

    def count(self, what: str, many: int = 1) -> None:
        """Add to one of the counts."""
        with self._lock:
            self._counts[what] += many

    def reach(self, source: str, position: int) -> None:
        """Note how far a partition of an input was read."""
        with self._lock:
            self._reached[source] = position

    def took(self, micros: int) -> None:
        """Count how long an event took from where it was read to where it was written."""
        with self._lock:
            self._latencies[int(math.log2(max(1, micros)) * _STEPS)] += 1
            self._within[bisect_left(LATENCY_BOUNDS_S, max(0, micros) / 1e6)] += 1
            self._waited += max(0, micros)

    def snapshot(self) -> dict[str, Any]:
        """All of it, as the status of a service takes it; latencies in milliseconds."""
        with self._lock:
            latencies, self._latencies = self._latencies, Counter()
            return {
                **{name: self._counts[name] for name in COUNTS},
                "reached": dict(self._reached),
                "latencies": list(self._within),
                "latency_micros": self._waited,
                "latency_ms": {
                    "p50": _quantile(latencies, 0.5),
                    "p99": _quantile(latencies, 0.99),
                    "max": _quantile(latencies, 1.0),
                },
            }


def _quantile(latencies: Counter[int], share: float) -> float | None:
    left = max(1, math.ceil(share * latencies.total()))
    for bucket, count in sorted(latencies.items()):
        left -= count
        if left <= 0:
            return round(2 ** ((bucket + 0.5) / _STEPS) / 1_000, 3)
    return None
