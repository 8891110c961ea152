"""The QoS proxy: what services promise, what is measured, and which is best for whom (Zhu).

*Certification* holds a promise against what is measured. *Selection* is the paper's
W_QoS: a consumer's weights times a service's figures, summed up. The paper multiplies raw
figures, so that the unit decides; here each is made a share of what is to be had first:

    benefit: (value - least) / (greatest - least)       cost: (greatest - value) / (greatest - least)

over the services that are compared, 1 for all where they are equal, 0 where a service has
no figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tidegate.model.units import duration_text
from tidegate.services.definitions import Qos
from tidegate.services.quality import METRICS, Metric, promised

Verdict = Literal["kept", "broken", "unmeasured"]

NAMES = tuple(METRICS)


@dataclass(frozen=True, slots=True)
class Certified:
    """A promise, and what became of it."""

    metric: str
    promised: float
    measured: float | None
    verdict: Verdict

    def __str__(self) -> str:
        metric = METRICS[self.metric]
        bound = f"{self.metric} {'>=' if metric.more_is_better else '<='} {figure_text(metric, self.promised)}"
        if self.measured is None:
            return f"promises {bound}, which nobody has measured"
        return f"promises {bound}, {self.verdict}: measured {figure_text(metric, self.measured)}"


def certify(qos: Qos, measured: Mapping[str, float]) -> tuple[Certified, ...]:
    """Hold every promise of a service against what is measured.

    >>> [str(each) for each in certify(Qos(latency_p99_s=0.05), {"latency": 0.2})]
    ['promises latency <= 50ms, broken: measured 200ms']
    """
    found = []
    for name, metric in METRICS.items():
        bound = promised(qos, metric)
        if bound is not None:
            value = measured.get(name)
            verdict: Verdict = "unmeasured" if value is None else "kept" if metric.keeps(value, bound) else "broken"
            found.append(Certified(name, bound, value, verdict))
    return tuple(found)


def figure_text(metric: Metric, value: float) -> str:
    """Write a figure with its unit.

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


class Figures:
    """Promised and measured figures by place: NaN where there is none."""

    def __init__(self) -> None:
        self._promised = np.full((64, len(NAMES)), np.nan)
        self._measured = np.full((64, len(NAMES)), np.nan)

    def promise(self, place: int, qos: Qos) -> None:
        """Note what a service promises; what was measured at its place before was another's."""
        while place >= len(self._promised):
            more = np.full_like(self._promised, np.nan)
            self._promised = np.concatenate([self._promised, more])
            self._measured = np.concatenate([self._measured, more])
        self._promised[place] = [_or_nan(promised(qos, metric)) for metric in METRICS.values()]
        self._measured[place] = np.nan

    def measure(self, place: int, measured: Mapping[str, float]) -> None:
        """Note what is measured."""
        self._measured[place] = [measured.get(name, np.nan) for name in NAMES]

    def of(self, places: Any, metric: str) -> Any:
        """The figures that count: what is measured, and what is promised where nothing is."""
        n = NAMES.index(metric)
        measured = self._measured[places, n]
        return np.where(np.isnan(measured), self._promised[places, n], measured)

    def is_measured(self, place: int, metric: str) -> bool:
        """Whether the figure that counts was measured."""
        return not np.isnan(self._measured[place, NAMES.index(metric)])


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def normalised(metric: Metric, values: Any) -> Any:
    """Make figures shares of what is to be had: 1 is the best of them, 0 the worst, or none.

    >>> normalised(METRICS["latency"], np.array([0.1, 0.3, 0.2, np.nan])).round(3).tolist()
    [1.0, 0.0, 0.5, 0.0]
    """
    known = ~np.isnan(values)
    if not known.any():
        return np.zeros(len(values))
    least, greatest = values[known].min(), values[known].max()
    if least == greatest:
        return known.astype(float)
    share = (values - least) / (greatest - least)
    return np.where(known, share if metric.more_is_better else 1 - share, 0.0)


def selection(figures: Mapping[str, Any], weights: Mapping[str, float]) -> tuple[Any, dict[str, Any]]:
    """Weigh services (formulas 5 and 6): W_QoS of each, 0 to 1, and what each metric adds to it."""
    total = sum(weights.values())
    parts = {name: weight / total * normalised(METRICS[name], figures[name]) for name, weight in weights.items()}
    return sum(parts.values()), parts
