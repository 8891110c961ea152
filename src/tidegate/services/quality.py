"""What a service's quality is measured by, and the words that stand for figures.

A provider promises and a consumer asks in figures (`50ms`, `0.999`) or in words of this
vocabulary (`fast`, `high`): a word is its figure, everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from tidegate.errors import did_you_mean
from tidegate.services.definitions import Qos
from tidegate.services.findings import Spot

LATENCY_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Latencies are counted by how many are within each of these."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One way to measure how good a service is."""

    name: str
    field: str
    """Where `Qos` has what is promised."""
    unit: Literal["seconds", "share", "events a second"]
    more_is_better: bool
    """A benefit; else a cost."""
    words: Mapping[str, float]

    def keeps(self, value: float, bound: float) -> bool:
        """Whether a value is as good as a bound, or better."""
        return value >= bound if self.more_is_better else value <= bound


def _metric(
    name: str, field: str, unit: Literal["seconds", "share", "events a second"], more: bool, **words: float
) -> Metric:
    return Metric(name, field, unit, more, MappingProxyType(words))


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        each.name: each
        for each in (
            _metric("latency", "latency_p99_s", "seconds", False, instant=0.01, fast=0.05, moderate=1.0, slow=10.0),
            _metric("availability", "availability", "share", True, continuous=0.9999, high=0.999, good=0.99, fair=0.95),
            _metric("rate", "rate", "events a second", True, dense=1_000.0, steady=1.0, sparse=1 / 60),
            _metric(
                "freshness", "freshness_s", "seconds", False, live=1.0, recent=60.0, hourly=3_600.0, daily=86_400.0
            ),
            _metric("completeness", "completeness", "share", True, full=0.999, good=0.99, partial=0.9),
        )
    }
)
"""All of them, with their words. Latency is from the event to the log, 99 in 100 of it."""


def promised(qos: Qos, metric: Metric) -> float | None:
    """What a service promises; None: nothing."""
    found: float | None = getattr(qos, metric.field)
    return found


def read_figure(spot: Spot, metric: Metric) -> float:
    """Read a figure of a metric, or a word that stands for one."""
    value = spot.value
    if isinstance(value, str) and value.lower() in metric.words:
        return metric.words[value.lower()]
    if isinstance(value, str) and value.isalpha():
        example = {"seconds": "a length of time such as 50ms", "share": "a share such as 0.99"}.get(metric.unit)
        expected = f"{example or 'events a second'}, or one of {', '.join(metric.words)}"
        spot.refuse(expected, did_you_mean(value, metric.words))
        return 1.0
    match metric.unit:
        case "seconds":
            return spot.seconds()
        case "share":
            return spot.number("a share from 0 to 1, such as 0.999", 0, 1)
    return spot.number("events a second, above 0", 0, 1e12, above=True)
