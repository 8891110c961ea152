"""The search for the rank of a value among thresholds, compared with a plain search."""

from __future__ import annotations

from bisect import bisect_right
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.generate import FLOATS, INTEGERS
from tidegate.matching.axis import Grid, NumberThresholds

floats = st.one_of(st.sampled_from([*FLOATS, float("inf"), float("-inf")]), st.floats(allow_nan=False))
signed = st.one_of(st.sampled_from([n for n in INTEGERS if n < 2**63]), st.integers(-(2**63), 2**63 - 1))
unsigned = st.one_of(st.sampled_from([n for n in INTEGERS if n >= 0]), st.integers(0, 2**64 - 1))


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [(np.float64, floats), (np.int64, signed), (np.uint64, unsigned)],
    ids=lambda each: str(each)[:30],
)
def test_ranks_agree_with_a_plain_search(dtype: type, numbers: st.SearchStrategy[float]) -> None:
    @given(st.lists(numbers), st.lists(numbers))
    def check(thresholds: list[float], values: list[float]) -> None:
        thresholds.sort()
        values = [*values, *thresholds]
        actual = Grid.of(np.array(thresholds, dtype)).ranks(np.array(values, dtype))
        assert actual.tolist() == [bisect_right(thresholds, value) for value in values]

    check()


def test_ranks_agree_for_many_uneven_thresholds() -> None:
    rng = np.random.default_rng(5)
    for spread in (rng.random(5_000), rng.lognormal(0, 3, 5_000), np.repeat(rng.random(50), 100)):
        thresholds = np.sort(spread)
        values = np.concatenate([rng.choice(thresholds, 2_000), rng.random(2_000) * thresholds[-1], [-1.0, 1e300]])
        actual = Grid.of(thresholds).ranks(values)
        assert actual.tolist() == np.searchsorted(thresholds, values, side="right").tolist()


def test_thresholds_outside_a_type_are_always_or_never_reached() -> None:
    ladder = NumberThresholds(np.array([-(2**70), -(2**63), 0, 5, 2**63, 2**64 - 1, 2**70], dtype=object))
    rng = Random(1)
    for dtype, least, most in ((np.int64, -(2**63), 2**63 - 1), (np.uint64, 0, 2**64 - 1), (np.int8, -128, 127)):
        values = [least, most, 0, 4, 5, 6, *(rng.randint(least, most) for _ in range(20))]
        assert ladder.ranks(np.array(values, dtype)).tolist() == [ladder.rank(value) for value in values]
