"""A difference of runs is called one where chance would hardly make it."""

from __future__ import annotations

import statistics
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.significance import by_permutation, by_signs

runs = st.lists(st.integers(0, 20).map(float), min_size=1, max_size=3)


@given(runs, runs)
def test_p_value_is_the_share_of_orders_with_as_large_a_difference(more: list[float], less: list[float]) -> None:
    seen = statistics.fmean(more)
    means = [statistics.fmean(order[: len(more)]) for order in permutations([*more, *less])]
    assert by_permutation(more, less) == pytest.approx(sum(mean >= seen - 1e-9 for mean in means) / len(means))


def test_five_clearly_larger_runs_are_as_unlikely_as_they_can_be() -> None:
    assert by_permutation([21, 22, 23, 24, 25], [11, 12, 13, 14, 15]) == pytest.approx(1 / 252)


def test_test_is_one_sided() -> None:
    assert by_permutation([1, 2, 3], [11, 12, 13]) == 1.0
    assert by_permutation([5, 5], [5, 5]) == 1.0


def test_runs_are_needed_on_both_sides() -> None:
    with pytest.raises(ValueError, match="expected runs on both sides, not 1 and 0"):
        by_permutation([1.0], [])


@given(st.lists(st.integers(-20, 20).map(float), min_size=1, max_size=6))
def test_paired_p_value_is_the_share_of_sign_changes(apart: list[float]) -> None:
    dealt = [sum(signed) for signed in product(*((each, -each) for each in apart))]
    assert by_signs(apart) == sum(each >= sum(apart) for each in dealt) / len(dealt)


def test_pairs_are_needed() -> None:
    with pytest.raises(ValueError, match="expected at least one pair"):
        by_signs([])
