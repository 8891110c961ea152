"""`BoxIndex` returns the same results as `RouteScanIndex` for all kinds of filters."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import generate
from tests.conftest import LARGE_EXAMPLES
from tidegate.errors import FilterError
from tidegate.federation.routes.index import BoxIndex, CoverIndex, RouteScanIndex
from tidegate.filters import Filter
from tidegate.model import Schema


def some_filters(rng: Random, schema: Schema, typed: bool, count: int) -> list[Filter]:
    """Random filters over a schema, some of them narrower or wider than the one before."""
    filters: list[Filter] = []
    while len(filters) < count:
        text = generate.filter_text(rng, schema, depth=rng.randint(0, 2))
        if rng.random() < 0.4 and filters:
            text = f"({filters[-1].text}) {rng.choice(['AND', 'OR'])} {text}"
        try:
            filters.append(Filter(text, schema if typed else None))
        except FilterError:
            continue
    return filters


def check(index: CoverIndex, oracle: RouteScanIndex, filters: list[Filter]) -> None:
    """Compare the answers of both for each filter."""
    for filter_ in filters:
        assert index.find_covering(filter_) == oracle.find_covering(filter_), filter_
        assert index.find_covered(filter_) == oracle.find_covered(filter_), filter_
    assert len(index) == len(oracle)


@settings(max_examples=LARGE_EXAMPLES)
@given(seed=st.integers(0, 2**32), typed=st.booleans())
def test_random_filters_agree_with_the_scan(seed: int, typed: bool) -> None:
    rng = Random(seed)
    schema = generate.schema(rng, 3)
    filters = some_filters(rng, schema, typed, 24)
    index, oracle = BoxIndex(), RouteScanIndex()
    for number, filter_ in enumerate(filters[:20]):
        index.add(number, filter_)
        oracle.add(number, filter_)
    check(index, oracle, filters)
    for number in rng.sample(range(20), 12):
        index.remove(number)
        oracle.remove(number)
    check(index, oracle, filters)


FUZZY = [
    "a IS TRAPEZOID(0, 1, 2, 5)",
    "a IS TRAPEZOID(-1, 1, 2, 6)",
    "a BETWEEN 1.2 AND 1.8",
    "FUZZY(a IS TRIANGLE(0, 5, 10), b IS TRIANGLE(0, 5, 10)) >= 0.5",
    "FUZZY(a IS TRAPEZOID(0, 4, 6, 10), b IS TRAPEZOID(0, 4, 6, 10)) >= 0.5",
    "a = 5 AND b = 5",
    "FUZZY MIN(a IS TRIANGLE(0, 5, 10), b IS TRIANGLE(0, 5, 10)) >= 0.5",
    "(a, b) INSIDE BOX(0, 0, 10, 10)",
    "(a, b) INSIDE CIRCLE(5, 5, 1000)",
    "(a, b) INSIDE BOX(170, 0, -170, 10)",
    "(a, b) INSIDE BOX(175, 1, 178, 2)",
    "s STRLIKE 'house' WITHIN 2 EDITS",
    "s STRLIKE 'mouse' WITHIN 1 EDITS",
    "s IN ('house', 'horse')",
    "s LIKE '%ous%'",
    "s = 'house'",
    "s~ = 'parking'~",
    "s~ = 'parking'~ AND a > 3",
    "s~ = 'parking'~ WITH THEME ('city')",
    "s~ = 'parking'~ AND a > 3 WITH THEME ('city')",
    "a < b",
    "a < b AND s = 'house'",
    "NOT (a, b) INSIDE BOX(0, 0, 10, 10)",
    "",
]


@pytest.mark.parametrize("typed", [False, True])
def test_fuzzy_semantic_and_area_filters_agree_with_the_scan(typed: bool) -> None:
    schema = Schema({"a": "float64", "b": "float64", "s": "string"}) if typed else None
    filters = [Filter(text, schema) for text in FUZZY]
    index, oracle = BoxIndex(), RouteScanIndex()
    for number, filter_ in enumerate(filters):
        if filter_.text:  # the empty filter covers all others: searched for, but not in the index
            index.add(number, filter_)
            oracle.add(number, filter_)
    check(index, oracle, filters)
    assert oracle.find_covered(filters[1]) == [0, 1, 2]
    assert oracle.find_covering(filters[17]) == 16
    assert oracle.find_covering(filters[18]) == 18  # a filter with another theme does not cover it


def test_strings_with_equal_prefixes_are_compared_as_a_whole() -> None:
    index = BoxIndex()
    for number in range(200):
        index.add(number, Filter(f"vid = 'sensor-{number:06}'"))
    assert index.find_covering(Filter("vid = 'sensor-000123' AND speed > 3")) == 123
    assert index.find_covered(Filter("vid LIKE 'sensor-00001%'")) == list(range(10, 20))
    assert index.find_covering(Filter("vid LIKE 'sensor-00001%'")) is None


def test_numbers_too_large_for_a_float_keep_their_order() -> None:
    index = BoxIndex()
    index.add(0, Filter(f"n < {10**400}"))
    assert index.find_covering(Filter(f"n < {10**399}")) == 0
    assert index.find_covering(Filter(f"n < {10**401}")) is None
