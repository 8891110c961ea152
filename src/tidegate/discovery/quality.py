"""The QoS proxy: promised and measured quality of services, and selection by weights (Zhu).

*Certification* compares a promise with the measurement. *Selection* is the paper's W_QoS: the sum of a service's values
times the consumer's weights. The paper multiplies raw values, so that the unit decides; here each value is first
normalised over the services that are compared:

    benefit: (value - least) / (greatest - least)       cost: (greatest - value) / (greatest - least)

If all values are equal, each is 1. A service without a value gets the mean of the others: a missing measurement makes
it neither worse nor better, so that other components of the score decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tidegate.model.units import duration_text
from tidegate.services.definitions import Qos
from tidegate.services.quality import METRICS, Metric, promised

PromiseVerdict = Literal["kept", "broken", "unmeasured"]

NAMES = tuple(METRICS)


@dataclass(frozen=True, slots=True)
class Certified:
    """A promise, the measurement, and the result of comparing them."""

    metric: str
    promised: float
    measured: float | None
    verdict: PromiseVerdict

    def __str__(self) -> str:
        metric = METRICS[self.metric]
        bound = f"{self.metric} {'>=' if metric.more_is_better else '<='} {figure_text(metric, self.promised)}"
        if self.measured is None:
            return f"promises {bound}, not measured yet"
        return f"promises {bound}, {self.verdict}: measured {figure_text(metric, self.measured)}"


def certify(qos: Qos, measured: Mapping[str, float]) -> tuple[Certified, ...]:
    """Return every promise of a service compared with its measurement.

    >>> [str(promise) for promise in certify(Qos(latency_p99_s=0.05), {"latency": 0.2})]
    ['promises latency <= 50ms, broken: measured 200ms']
    """
    certified = []
    for name, metric in METRICS.items():
        bound = promised(qos, metric)
        if bound is not None:
            value = measured.get(name)
            verdict: PromiseVerdict = (
                "unmeasured" if value is None else "kept" if metric.keeps(value, bound) else "broken"
            )
            certified.append(Certified(name, bound, value, verdict))
    return tuple(certified)


def figure_text(metric: Metric, value: float) -> str:
    """Return a value with its unit.

    >>> figure_text(METRICS["latency"], 0.0512345), figure_text(METRICS["availability"], 0.999)
    ('51.2ms', '99.9%')
    """
    match metric.unit:
        case "seconds":
            if 0 < value < 1:
                return f"{value * 1e3:.3g}ms"
            return f"{value:.3g}s" if value < 60 else duration_text(float(round(value)))
        case "share":
            return f"{value * 100:.4g}%"
    return f"{value:.3g}/s"


class QosFigures:
    """Promised and measured values by slot; NaN where there is none."""

    def __init__(self) -> None:
        self._promised = np.full((64, len(NAMES)), np.nan)
        self._measured = np.full((64, len(NAMES)), np.nan)

    def promise(self, slot: int, qos: Qos) -> None:
        """Set the promises of the service in a slot, and clear the measurements of an earlier service there."""
        while slot >= len(self._promised):
            more = np.full_like(self._promised, np.nan)
            self._promised = np.concatenate([self._promised, more])
            self._measured = np.concatenate([self._measured, more])
        self._promised[slot] = [_or_nan(promised(qos, metric)) for metric in METRICS.values()]
        self._measured[slot] = np.nan

    def measure(self, slot: int, measured: Mapping[str, float]) -> None:
        """Set the measurements of the service in a slot."""
        self._measured[slot] = [measured.get(name, np.nan) for name in NAMES]

    def of(self, slots: Any, metric: str) -> Any:
        """Return the effective values of a metric: measured, or promised where nothing is measured."""
        n = NAMES.index(metric)
        measured = self._measured[slots, n]
        return np.where(np.isnan(measured), self._promised[slots, n], measured)

    def is_measured(self, slot: int, metric: str) -> bool:
        """Return True if the effective value was measured."""
        return not np.isnan(self._measured[slot, NAMES.index(metric)])


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def normalised(metric: Metric, values: Any) -> Any:
    """Return values as shares of their range: 1 is the best, 0 the worst, and the mean of all for one without a value.

    >>> normalised(METRICS["latency"], np.array([0.1, 0.3, 0.2, np.nan])).round(3).tolist()
    [1.0, 0.0, 0.5, 0.5]
    """
    is_known = ~np.isnan(values)
    if not is_known.any():
        return np.zeros(len(values))
    lowest, greatest = values[is_known].min(), values[is_known].max()
    if lowest == greatest:
        return np.ones(len(values))
    share = (values - lowest) / (greatest - lowest)
    share = share if metric.more_is_better else 1 - share
    return np.where(is_known, share, share[is_known].mean())


def selection(figures: Mapping[str, Any], weights: Mapping[str, float]) -> tuple[Any, dict[str, Any]]:
    """Return W_QoS of each service, 0 to 1, and the contribution of each metric (formulas 5 and 6)."""
    total = sum(weights.values())
    parts = {name: weight / total * normalised(METRICS[name], figures[name]) for name, weight in weights.items()}
    return sum(parts.values()), parts
