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
        self._latency, self._processing = _Histogram(), _Histogram()

    def count(self, name: str, amount: int = 1) -> None:
        """Add to one of the counts."""
        with self._lock:
            self._counts[name] += amount

    def set_reached(self, source: str, position: int) -> None:
        """Set how far a partition of an input was read."""
        with self._lock:
            self._reached[source] = position

    def add_latency(self, micros: int, processing_micros: int | None = None) -> None:
        """Add the time of an event from the append of its record to writing, and the part of it since reading."""
        with self._lock:
            self._latency.add(max(0, micros))
            if processing_micros is not None:
                self._processing.add(max(0, processing_micros))

    def snapshot(self) -> dict[str, Any]:
        """Return all metrics in the form that `Status.measure` takes, and reset the latency quantiles."""
        with self._lock:
            return {
                **{name: self._counts[name] for name in COUNTS},
                "reached": dict(self._reached),
                **self._latency.snapshot("latency"),
                **self._processing.snapshot("processing"),
            }


class _Histogram:
    """Counts by fixed bounds since the start, and quantiles since the last snapshot."""

    def __init__(self) -> None:
        self._recent = Counter[int]()
        self._counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self._sum = 0

    def add(self, micros: int) -> None:
        """Count one event."""
        self._recent[int(math.log2(max(1, micros)) * _BUCKETS_PER_DOUBLING)] += 1
        self._counts[bisect_left(LATENCY_BOUNDS_S, micros / 1e6)] += 1
        self._sum += micros

    def snapshot(self, name: str) -> dict[str, Any]:
        """Return quantiles, counts and sum, and reset the quantiles."""
        recent, self._recent = self._recent, Counter()
        quantiles = {"p50": _quantile(recent, 0.5), "p99": _quantile(recent, 0.99), "max": _quantile(recent, 1.0)}
        return {f"{name}_ms": quantiles, f"{name}_counts": list(self._counts), f"{name}_micros": self._sum}


def _quantile(latencies: Counter[int], share: float) -> float | None:
    remaining = max(1, math.ceil(share * latencies.total()))
    for bucket, count in sorted(latencies.items()):
        remaining -= count
        if remaining <= 0:
            return round(2 ** ((bucket + 0.5) / _BUCKETS_PER_DOUBLING) / 1_000, 3)
    return None
