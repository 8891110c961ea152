"""The quality metrics of services, and named values for them.

Providers promise and consumers request quality as numbers (`50ms`, `0.999`) or as words (`fast`, `high`). A word is
replaced by its number everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from tidegate.errors import did_you_mean
from tidegate.services.definitions import Qos
from tidegate.services.findings import Spot

DISPATCH_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""The bucket bounds of the histogram of dispatch times, in seconds."""

LATENCY_BOUNDS_S = (*DISPATCH_BOUNDS_S, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The bucket bounds of latency histograms of services, in seconds. A service may be minutes behind."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One quality metric of a service."""

    name: str
    field: str
    """The attribute of `Qos` with the promised value."""
    unit: Literal["seconds", "share", "events a second"]
    more_is_better: bool
    """True for a benefit such as availability, False for a cost such as latency."""
    words: Mapping[str, float]

    def keeps(self, value: float, bound: float) -> bool:
        """Return True if a value is as good as a bound, or better."""
        return value >= bound if self.more_is_better else value <= bound


def _metric(
    name: str, field: str, unit: Literal["seconds", "share", "events a second"], more: bool, **words: float
) -> Metric:
    return Metric(name, field, unit, more, MappingProxyType(words))


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
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
"""All metrics by name. Latency is the 99th percentile of the time from the append of an input to that of the output."""


def promised(qos: Qos, metric: Metric) -> float | None:
    """Return the promised value of a metric; None if the service promises none."""
    value: float | None = getattr(qos, metric.field)
    return value


def read_figure(spot: Spot, metric: Metric) -> float:
    """Return the value of a metric, given as a number or as one of its words; report anything else."""
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
