"""The kernels' methods for the best mapping, compared with trying all mappings."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.matching import meaning_kernels as kernels

_similarity = st.sampled_from([0.0, 1e-9, 0.5, 1.0]) | st.floats(0, 1)


@st.composite
def _tables(draw: st.DrawFn, most: int) -> np.ndarray:
    predicates, tuples = draw(st.integers(1, most)), draw(st.integers(1, 5))
    rows = st.lists(_similarity, min_size=tuples, max_size=tuples)
    return np.array(draw(st.lists(rows, min_size=predicates, max_size=predicates)))


def _tried(table: np.ndarray) -> float:
    """Return the greatest product of one tuple per predicate, no tuple twice."""
    chosen = permutations(range(table.shape[1]), len(table))
    return max((math.prod(table[n, at] for n, at in enumerate(item)) for item in chosen), default=0.0)


@given(_tables(most=kernels.MAX_SUBSET_PREDICATES))
def test_subset_and_search_methods_find_the_best_mapping(table: np.ndarray) -> None:
    predicates, expected = np.arange(len(table)), _tried(table)
    by_sets = kernels._best_product(table, predicates, table.shape[1], np.empty(1 << kernels.MAX_SUBSET_PREDICATES))
    assert by_sets == pytest.approx(expected, rel=1e-12)
    if len(table) in (3, 4):
        actual = kernels._searched(table, predicates, table.max(axis=1), table.shape[1])
        assert actual == pytest.approx(expected, rel=1e-12)


@given(_tables(most=5))
def test_cheapest_assignment_is_the_best_mapping(table: np.ndarray) -> None:
    with np.errstate(divide="ignore"):
        actual = np.exp(-kernels._cheapest(-np.log(table)))
    assert actual == pytest.approx(_tried(table), rel=1e-9)


@given(st.floats(0, 1), st.integers(1, 6))
def test_root_is_the_nth_root_of_the_product(product: float, size: int) -> None:
    assert kernels._root(product, size) == pytest.approx(product ** (1 / size), rel=1e-12)
