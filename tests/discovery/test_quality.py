"""The QoS proxy: rolling windows, certified promises, selection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.discovery.quality import certify, figure_text, normalised, selection
from tidegate.discovery.windows import Observation, ObservationWindow
from tidegate.services.definitions import Qos
from tidegate.services.quality import METRICS


def test_window_drops_old_observations() -> None:
    window = ObservationWindow(60.0, slots=6)
    window.observe(Observation(at=0.0, up=False, latency_s=5.0, events=100, refused=100))
    for second in range(1, 100):
        window.observe(Observation(at=float(second), up=True, latency_s=0.02, events=2, newest_at=second - 0.5))
    actual = window.figures(100.0)
    assert actual["availability"] == 1.0
    assert actual["completeness"] == 1.0
    assert actual["rate"] == pytest.approx(2.0, rel=0.2)
    assert actual["latency"] == pytest.approx(0.02, rel=0.05)
    assert actual["freshness"] == 1.5
    assert window.figures(10_000.0) == {"freshness": 9_901.5}


def test_young_window_computes_rate_over_its_age() -> None:
    window = ObservationWindow(300.0)
    for second in range(11):
        window.observe(Observation(at=1_000.0 + second, events=10 if second else 0))
    assert window.figures(1_010.0)["rate"] == 10.0
    assert ObservationWindow().figures(5.0) == {}


def test_window_without_events_has_rate_0() -> None:
    window = ObservationWindow(60.0)
    for second in range(10):
        window.observe(Observation(at=float(second), up=True))
    assert window.figures(10.0) == {"availability": 1.0, "rate": 0.0}


@given(st.lists(st.floats(1e-5, 100), min_size=1, max_size=300))
def test_percentile_is_exact_to_five_percent(latencies: list[float]) -> None:
    window = ObservationWindow()
    for latency in latencies:
        window.observe(Observation(at=1.0, latency_s=latency))
    exact = float(np.percentile(latencies, 99, method="inverted_cdf"))
    assert window.figures(2.0)["latency"] == pytest.approx(exact, rel=0.05)


def test_promises_are_compared_with_measurements() -> None:
    qos = Qos(latency_p99_s=0.05, availability=0.999, rate=10, freshness_s=60, completeness=0.9)
    measured = {"latency": 0.2, "availability": 0.999, "rate": 3.0, "completeness": 0.95}
    assert [str(item) for item in certify(qos, measured)] == [
        "promises latency <= 50ms, broken: measured 200ms",
        "promises availability >= 99.9%, kept: measured 99.9%",
        "promises rate >= 10/s, broken: measured 3/s",
        "promises freshness <= 1m, not measured yet",
        "promises completeness >= 90%, kept: measured 95%",
    ]
    assert certify(Qos(), measured) == ()


def test_normalised_values_are_shares_of_their_range() -> None:
    values = np.array([10.0, 20.0, np.nan, 15.0])
    assert normalised(METRICS["rate"], values).tolist() == [0.0, 1.0, 0.5, 0.5]
    assert normalised(METRICS["latency"], values).tolist() == [1.0, 0.0, 0.5, 0.5]
    assert normalised(METRICS["rate"], np.array([3.0, 3.0, np.nan])).tolist() == [1.0, 1.0, 1.0]
    assert normalised(METRICS["rate"], np.array([np.nan])).tolist() == [0.0]


def test_unit_does_not_affect_selection() -> None:
    figures = {"latency": np.array([0.01, 0.5]), "rate": np.array([1.0, 5_000.0])}
    fast, parts = selection(figures, {"latency": 3.0, "rate": 1.0})
    assert fast.tolist() == [0.75, 0.25]
    assert {name: part.tolist() for name, part in parts.items()} == {"latency": [0.75, 0.0], "rate": [0.0, 0.25]}
    in_ms, _ = selection(figures | {"latency": figures["latency"] * 1e3}, {"latency": 3.0, "rate": 1.0})
    assert in_ms.tolist() == fast.tolist()


@given(st.lists(st.floats(0.001, 1e6), min_size=2, max_size=20), st.floats(0.1, 9), st.floats(0.1, 9))
def test_service_that_is_better_in_everything_ranks_first(values: list[float], one: float, other: float) -> None:
    figures = {"rate": np.array(sorted(values)), "latency": np.array(sorted(values, reverse=True))}
    score, _ = selection(figures, {"rate": one, "latency": other})
    assert all(np.diff(score) >= -1e-9)
    assert 0 <= score.min() <= score.max() <= 1 + 1e-9


def test_values_are_shown_with_units() -> None:
    assert [figure_text(METRICS["freshness"], item) for item in (0.0, 0.25, 90.0, 3_600.0)] == [
        "0s",
        "250ms",
        "90s",
        "1h",
    ]
