"""Delays double up to a maximum, and stay inside the range of the jitter."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tidegate.timing import NO_JITTER, Backoff


@given(
    st.floats(0.001, 100.0),
    st.floats(0.001, 10_000.0),
    st.integers(1, 10_000),
    st.sampled_from([(0.5, 1.0), (0.75, 1.25), NO_JITTER]),
)
def test_delay_is_the_doubled_first_delay_times_a_factor_of_the_jitter(
    first_s: float, max_s: float, failures: int, jitter: tuple[float, float]
) -> None:
    limit_s = first_s
    for _ in range(failures - 1):
        limit_s = min(max_s, limit_s * 2)
    limit_s = min(max_s, limit_s)
    delay_s = Backoff(first_s, max_s, jitter).delay_s(failures)
    assert limit_s * jitter[0] * 0.999 <= delay_s <= limit_s * jitter[1] * 1.001


def test_delay_is_zero_before_the_first_failure() -> None:
    assert Backoff(first_s=1.0, max_s=2.0).delay_s(0) == 0.0


def test_million_failures_do_not_overflow() -> None:
    assert Backoff(first_s=0.1, max_s=30.0, jitter=NO_JITTER).delay_s(1_000_000) == 30.0


def test_seeded_source_repeats_the_delays() -> None:
    backoff = Backoff(first_s=1.0, max_s=60.0)
    first, second = random.Random(7), random.Random(7)
    assert [backoff.delay_s(n, first.random) for n in range(9)] == [backoff.delay_s(n, second.random) for n in range(9)]


def test_delays_double_up_to_the_maximum_and_differ_from_each_other() -> None:
    backoff, rng = Backoff(first_s=1, max_s=30), random.Random(1)
    for failures, limit_s in [(1, 1), (2, 2), (3, 4), (6, 30), (5_000, 30)]:
        delays = {backoff.delay_s(failures, rng.random) for _ in range(50)}
        assert len(delays) == 50
        assert all(limit_s / 2 <= delay_s <= limit_s for delay_s in delays)
