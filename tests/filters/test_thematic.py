"""Predicates that compete for a tuple."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.filters.thematic import SAME, Array, competed

_figures = st.sampled_from([0.0, 1.0, 0.5, 1e-9]) | st.floats(0, 1)
_two = st.tuples(st.integers(0, 4), st.integers(0, 4)).flatmap(
    lambda shape: st.tuples(
        *(st.lists(_figures, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]) for _ in range(2))
    ).map(lambda both: tuple(np.array(each).reshape(shape) for each in both))
)


def said(name: float, value: float) -> float:
    def odds(figure: float) -> float:
        if figure in (0.0, 1.0):
            return SAME if figure else -math.inf
        return min(SAME, math.log(figure / (1 - figure)))

    return odds(name) + odds(value)


@given(_two, st.sampled_from([0.0, 0.5, 1.0]))
def test_who_is_behind_the_best_loses_by_how_far(figures: tuple[Array, Array], rivalry: float) -> None:
    names, values = figures
    found = competed(names, values, rivalry)
    for column in range(names.shape[1]):
        evidence = [said(*pair) for pair in zip(names[:, column].tolist(), values[:, column].tolist(), strict=True)]
        for row, own in enumerate(evidence):
            plain = names[row, column] * values[row, column]
            lost = math.exp(rivalry * (own - max(evidence))) if own > -math.inf else 0.0
            assert found[row, column] == pytest.approx(plain * lost if rivalry else plain, rel=1e-6, abs=1e-12)


def test_a_better_rival_takes_and_a_worse_one_does_not() -> None:
    names, values = np.ones((2, 1)), np.array([[0.9], [0.5]])
    ireland, spain = competed(names, values, 1.0)[:, 0]
    assert ireland == 0.9
    assert spain == pytest.approx(0.5 / 9)


def test_what_fits_alike_takes_nothing_from_each_other_and_the_same_is_one() -> None:
    assert competed(np.ones((2, 1)), np.full((2, 1), 0.7), 1.0)[:, 0].tolist() == [0.7, 0.7]
    assert competed(np.ones((2, 1)), np.array([[1.0], [0.9]]), 1.0)[:, 0].tolist() == [
        1.0,
        pytest.approx(0.9 * 9 * math.exp(-SAME)),
    ]


def test_a_name_tells_which_sense_of_a_value_is_meant() -> None:
    # A bank of a river, where somebody asks for banks of money too: by values alone money would win.
    names, values = np.array([[0.95], [0.05]]), np.array([[0.6], [0.7]])
    river, money = competed(names, values, 1.0)[:, 0]
    assert river == pytest.approx(0.95 * 0.6)
    assert money < 0.01
