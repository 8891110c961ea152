"""Counts and latencies of a service, with the same names as those of the connector."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from threading import Lock
from typing import Any

from tidegate.services.quality import LATENCY_BOUNDS_S

COUNTS = ("read", "bytes", "missed_bytes", "written", "quarantined", "flagged", "dropped", "skipped")

_BUCKETS_PER_DOUBLING = 16
"""Latency buckets per power of two of microseconds."""


class PlainMetrics:
    """Counts since the start, and latencies since the last snapshot. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = Counter[str]()
        self._reached: dict[str, int] = {}
        self._latencies = Counter[int]()
        self._histogram = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self._latency_sum = 0

    def count(self, name: str, amount: int = 1) -> None:
        """Add to one of the counts."""
        with self._lock:
            self._counts[name] += amount

    def set_reached(self, source: str, position: int) -> None:
        """Set how far a partition of an input was read."""
        with self._lock:
            self._reached[source] = position

    def add_latency(self, micros: int) -> None:
        """Add the time of an event from reading to writing."""
        with self._lock:
            self._latencies[int(math.log2(max(1, micros)) * _BUCKETS_PER_DOUBLING)] += 1
            self._histogram[bisect_left(LATENCY_BOUNDS_S, max(0, micros) / 1e6)] += 1
            self._latency_sum += max(0, micros)

    def snapshot(self) -> dict[str, Any]:
        """Return all metrics in the form that `Status.measure` takes, and reset the latency quantiles."""
        with self._lock:
            latencies, self._latencies = self._latencies, Counter()
            return {
                **{name: self._counts[name] for name in COUNTS},
                "reached": dict(self._reached),
                "latencies": list(self._histogram),
                "latency_micros": self._latency_sum,
                "latency_ms": {
                    "p50": _quantile(latencies, 0.5),
                    "p99": _quantile(latencies, 0.99),
                    "max": _quantile(latencies, 1.0),
                },
            }


def _quantile(latencies: Counter[int], share: float) -> float | None:
    remaining = max(1, math.ceil(share * latencies.total()))
    for bucket, count in sorted(latencies.items()):
        remaining -= count
        if remaining <= 0:
            return round(2 ** ((bucket + 0.5) / _BUCKETS_PER_DOUBLING) / 1_000, 3)
    return None
