"""Predicates that compete for a tuple."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.filters.thematic import (
    MAX_EVIDENCE,
    MAX_RIVALS,
    MIN_RIVALS,
    NEUTRAL_RIVALS,
    SAME_EVIDENCE,
    company,
    competed,
    in_company,
)
from tidegate.filters.vectors import NumpyArray

_figures = st.sampled_from([0.0, 1.0, 0.5, 1e-9]) | st.floats(0, 1)
_two = st.tuples(st.integers(0, 4), st.integers(0, 4)).flatmap(
    lambda shape: st.tuples(
        *(st.lists(_figures, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]) for _ in range(2))
    ).map(lambda both: tuple(np.array(each).reshape(shape) for each in both))
)


def said(name: float, value: float) -> float:
    def odds(figure: float) -> float:
        if figure in (0.0, 1.0):
            return MAX_EVIDENCE if figure else -math.inf
        return min(MAX_EVIDENCE, math.log(figure / (1 - figure)))

    return odds(name) + odds(value)


def chance(evidence: list[float], own: float, rivalry: float) -> float:
    """Return the scaling by the lead over the best other rival; slow and obvious."""
    others = [item for item in evidence if abs(item - own) > SAME_EVIDENCE]
    if max(evidence) - own <= SAME_EVIDENCE:
        others = [item for item in others if item < own]
    if not others or max(others) == -math.inf:
        return 1.0
    return 1 / (1 + math.exp(min(700.0, rivalry * (max(others) - own))))


@given(_two, st.sampled_from([0.0, 0.5, 1.0]))
def test_similarity_is_scaled_by_the_lead_over_the_best_rival(
    figures: tuple[NumpyArray, NumpyArray], rivalry: float
) -> None:
    names, values = figures
    actual = competed(names, values, rivalry)
    for column in range(names.shape[1]):
        evidence = [said(*pair) for pair in zip(names[:, column].tolist(), values[:, column].tolist(), strict=True)]
        for row, own in enumerate(evidence):
            expected = names[row, column] * values[row, column]
            if rivalry and expected:
                odds = company(len(evidence))
                credible = float(in_company(names[row, column], odds) * in_company(values[row, column], odds))
                expected = credible * chance(evidence, own, rivalry)
            assert actual[row, column] == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_better_rival_lowers_similarity_more_than_a_worse_one() -> None:
    names, values = np.ones((NEUTRAL_RIVALS, 1)), np.zeros((NEUTRAL_RIVALS, 1))
    values[:2] = [[0.9], [0.5]]
    ireland, spain = competed(names, values, 1.0)[:2, 0]
    assert ireland == pytest.approx(0.9 * 0.9)  # a lead of ln 9
    assert spain == pytest.approx(0.5 * 0.1)


def test_equal_rivals_do_not_compete_and_equal_terms_have_similarity_one() -> None:
    names = np.ones((NEUTRAL_RIVALS, 1))
    assert competed(names, np.full((NEUTRAL_RIVALS, 1), 0.7), 1.0)[:, 0] == pytest.approx(np.full(NEUTRAL_RIVALS, 0.7))
    texts = np.array([[1.0], [1.0], *[[0.9]] * (NEUTRAL_RIVALS - 2)])
    same, again, like, *_ = competed(names, texts, 1.0)[:, 0]
    assert same == again == pytest.approx(1, abs=1e-4)
    assert like < 1e-4


def test_more_rivals_raise_the_odds_of_a_match() -> None:
    def alone_among(rivals: int) -> float:
        values = np.zeros((rivals, 1))
        values[0] = 0.5
        return float(competed(np.ones((rivals, 1)), values, 1.0)[0, 0])

    assert [alone_among(rivals) for rivals in (NEUTRAL_RIVALS, 4 * NEUTRAL_RIVALS)] == pytest.approx([1 / 2, 8 / 9])
    few, many = (MIN_RIVALS / NEUTRAL_RIVALS) ** 1.5, (MAX_RIVALS / NEUTRAL_RIVALS) ** 1.5
    assert alone_among(1) == alone_among(MIN_RIVALS) == pytest.approx(few / (few + 1))
    assert alone_among(MAX_RIVALS) == alone_among(1_000) == pytest.approx(many / (many + 1))
    assert alone_among(MIN_RIVALS + 1) > alone_among(MIN_RIVALS)
    assert alone_among(MAX_RIVALS - 1) < alone_among(MAX_RIVALS)


def test_attribute_name_decides_between_senses_of_a_value() -> None:
    # A river bank, while another filter asks for money banks: by values alone money would win.
    names, values = np.array([[0.95], [0.05]]), np.array([[0.6], [0.7]])
    river, money = competed(names, values, 1.0)[:, 0]
    assert river > 0.2
    assert money < 0.01
