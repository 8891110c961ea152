"""The QoS proxy: rolling windows, promises held against them, and selection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.discovery.quality import certify, figure_text, normalised, selection
from tidegate.discovery.windows import Observation, ObservationWindow
from tidegate.services.definitions import Qos
from tidegate.services.quality import METRICS


def test_a_window_forgets_what_is_old() -> None:
    window = ObservationWindow(60.0, slots=6)
    window.observe(Observation(at=0.0, up=False, latency_s=5.0, events=100, refused=100))
    for second in range(1, 100):
        window.observe(Observation(at=float(second), up=True, latency_s=0.02, events=2, newest_at=second - 0.5))
    found = window.figures(100.0)
    assert found["availability"] == 1.0
    assert found["completeness"] == 1.0
    assert found["rate"] == pytest.approx(2.0, rel=0.2)
    assert found["latency"] == pytest.approx(0.02, rel=0.05)
    assert found["freshness"] == 1.5
    assert window.figures(10_000.0) == {"freshness": 9_901.5}


def test_a_young_window_has_the_rate_of_its_time() -> None:
    window = ObservationWindow(300.0)
    for second in range(11):
        window.observe(Observation(at=1_000.0 + second, events=10 if second else 0))
    assert window.figures(1_010.0)["rate"] == 10.0
    assert ObservationWindow().figures(5.0) == {}


def test_a_window_that_sees_nothing_come_has_a_rate_of_none() -> None:
    window = ObservationWindow(60.0)
    for second in range(10):
        window.observe(Observation(at=float(second), up=True))
    assert window.figures(10.0) == {"availability": 1.0, "rate": 0.0}


@given(st.lists(st.floats(1e-5, 100), min_size=1, max_size=300))
def test_a_percentile_is_right_to_five_percent(latencies: list[float]) -> None:
    window = ObservationWindow()
    for each in latencies:
        window.observe(Observation(at=1.0, latency_s=each))
    exact = float(np.percentile(latencies, 99, method="inverted_cdf"))
    assert window.figures(2.0)["latency"] == pytest.approx(exact, rel=0.05)


def test_promises_are_held_against_what_is_measured() -> None:
    qos = Qos(latency_p99_s=0.05, availability=0.999, rate=10, freshness_s=60, completeness=0.9)
    measured = {"latency": 0.2, "availability": 0.999, "rate": 3.0, "completeness": 0.95}
    assert [str(each) for each in certify(qos, measured)] == [
        "promises latency <= 50ms, broken: measured 200ms",
        "promises availability >= 99.9%, kept: measured 99.9%",
        "promises rate >= 10/s, broken: measured 3/s",
        "promises freshness <= 1m, not measured yet",
        "promises completeness >= 90%, kept: measured 95%",
    ]
    assert certify(Qos(), measured) == ()


def test_figures_are_shares_of_what_is_to_be_had() -> None:
    values = np.array([10.0, 20.0, np.nan, 15.0])
    assert normalised(METRICS["rate"], values).tolist() == [0.0, 1.0, 0.0, 0.5]
    assert normalised(METRICS["latency"], values).tolist() == [1.0, 0.0, 0.0, 0.5]
    assert normalised(METRICS["rate"], np.array([3.0, 3.0, np.nan])).tolist() == [1.0, 1.0, 0.0]
    assert normalised(METRICS["rate"], np.array([np.nan])).tolist() == [0.0]


def test_the_unit_does_not_decide() -> None:
    figures = {"latency": np.array([0.01, 0.5]), "rate": np.array([1.0, 5_000.0])}
    fast, parts = selection(figures, {"latency": 3.0, "rate": 1.0})
    assert fast.tolist() == [0.75, 0.25]
    assert {name: each.tolist() for name, each in parts.items()} == {"latency": [0.75, 0.0], "rate": [0.0, 0.25]}
    in_ms, _ = selection(figures | {"latency": figures["latency"] * 1e3}, {"latency": 3.0, "rate": 1.0})
    assert in_ms.tolist() == fast.tolist()


@given(st.lists(st.floats(0.001, 1e6), min_size=2, max_size=20), st.floats(0.1, 9), st.floats(0.1, 9))
def test_a_service_that_is_better_in_all_is_never_behind(values: list[float], one: float, other: float) -> None:
    figures = {"rate": np.array(sorted(values)), "latency": np.array(sorted(values, reverse=True))}
    score, _ = selection(figures, {"rate": one, "latency": other})
    assert all(np.diff(score) >= -1e-9)
    assert 0 <= score.min() <= score.max() <= 1 + 1e-9


def test_figures_have_their_units() -> None:
    assert [figure_text(METRICS["freshness"], each) for each in (0.0, 0.25, 90.0, 3_600.0)] == [
        "0s",
        "250ms",
        "90s",
        "1h",
    ]
