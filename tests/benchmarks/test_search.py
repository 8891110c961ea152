"""The search finds the end, tries nothing twice, and stops when its time is up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.search import Found, largest


@given(st.integers(0, 5_000), st.integers(1, 500), st.integers(1, 4_000))
def test_search_ends_within_a_tenth_of_the_limit(end: int, first: int, limit: int) -> None:
    tried: list[int] = []

    def goes(count: int) -> bool:
        tried.append(count)
        return count <= end

    found = largest(goes, first, limit, lambda: True)
    assert len(tried) == len(set(tried)) == found.tried
    assert all(1 <= count <= limit for count in tried)
    assert found.most <= min(end, limit)
    if end >= limit:
        assert found == Found(limit, None, found.tried)
    else:
        assert found.is_sharp
        assert found.least_bad is not None
        assert found.most <= end < found.least_bad


@given(st.integers(0, 5_000), st.integers(1, 12))
def test_search_stops_at_its_time_limit_with_its_best_result(end: int, tries: int) -> None:
    left = iter(range(tries - 1))
    found = largest(lambda count: count <= end, 50, 10_000, lambda: next(left, None) is not None)
    assert found.tried <= tries
    assert found.most <= end
    assert found.least_bad is None or end < found.least_bad


def test_first_trial_runs_even_without_time() -> None:
    assert largest(lambda _: True, 50, 1_000, lambda: False) == Found(50, None, 1)
    assert not Found(50, None, 1).is_sharp
