"""Mappings, compared with all permutations."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.filters.mapping import best_mappings, log_permanent

figures = st.sampled_from([0.0, 0.0, 1.0, 0.5, 0.9, 1e-9, 1e-200, 5e-324]) | st.floats(0, 1)
matrices = st.integers(0, 4).flatmap(
    lambda rows: st.integers(0, 5).flatmap(
        lambda columns: st.lists(
            st.lists(figures, min_size=columns, max_size=columns), min_size=rows, max_size=rows
        ).map(lambda values: np.array(values, float).reshape(rows, columns))
    )
)


def logs_of_all(matrix: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> dict[tuple[int, ...], float]:
    """Return every mapping with the logarithm of the product of its similarities."""
    rows, columns = matrix.shape
    out = {}
    for chosen in permutations(range(columns), rows):
        values = [float(matrix[row, column]) for row, column in enumerate(chosen)]
        if all(values):
            out[chosen] = sum(map(math.log, values))
    return out


@given(matrices, st.integers(1, 30))
@example(np.array([[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.375, 1.0], [0.0, 5e-324, 0.0, 0.5]]), 1)
def test_best_mappings_agree_with_all_permutations(
    matrix: np.ndarray[tuple[int, int], np.dtype[np.float64]], k: int
) -> None:
    every = logs_of_all(matrix)
    actual = best_mappings(matrix, k)
    assert len(actual) == min(k, len(every)) == len({item.tuples for item in actual})
    expected = sorted(every.values(), reverse=True)[:k]
    assert [every[item.tuples] for item in actual] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    greatest = max(every.values(), default=0.0)
    total = sum(math.exp(item - greatest) for item in every.values())
    for item in actual:
        log = every[item.tuples]
        assert item.similarities == tuple(matrix[row, column] for row, column in enumerate(item.tuples))
        assert item.degree == pytest.approx(math.exp(log / max(1, len(matrix))))
        assert item.probability == pytest.approx(math.exp(log - greatest) / total)
        for row, column in enumerate(item.tuples):
            assert item.correspondences[row] == pytest.approx(matrix[row, column] / math.fsum(matrix[row]))


@given(matrices)
def test_probabilities_of_all_mappings_sum_to_one(
    matrix: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> None:
    actual = best_mappings(matrix, 10_000)
    assert sum(item.probability for item in actual) == pytest.approx(1 if actual else 0)


def test_no_predicates_have_the_empty_mapping() -> None:
    for columns in (0, 3):
        (only,) = best_mappings(np.zeros((0, columns)), 5)
        assert (only.tuples, only.degree, only.probability) == ((), 1.0, 1.0)


def test_more_predicates_than_tuples_have_no_mapping() -> None:
    assert best_mappings(np.ones((3, 2))) == []
    assert log_permanent(np.ones((1, 0))) == -math.inf


def test_best_mapping_is_the_best_for_all_predicates_together() -> None:
    (best,) = best_mappings(np.array([[0.9, 0.8], [0.9, 0.1]]))
    assert best.tuples == (1, 0)
    assert best.degree == pytest.approx(math.sqrt(0.72))
    assert best.probability == pytest.approx(0.72 / (0.72 + 0.09))


def test_equal_similarities_take_no_longer() -> None:
    # 12 of 20 tuples with equal similarities, except one that all predicates prefer: trying all would not end.
    matrix = np.full((12, 20), 0.9)
    matrix[:, 7] = 1.0
    actual = best_mappings(matrix, 5)
    assert [item.degree for item in actual] == pytest.approx([0.9 ** (11 / 12)] * 5)
    assert all(7 in item.tuples for item in actual)
