"""The index by boxes answers as the scan does, whatever filters it holds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import generate
from tests.conftest import LARGE_EXAMPLES
from tidegate.errors import FilterError
from tidegate.federation.routes.index import BoxIndex, CoverIndex, ScanIndex
from tidegate.filters import Filter
from tidegate.model import Schema


def some_filters(rng: Random, schema: Schema, typed: bool, count: int) -> list[Filter]:
    """Filters over a schema: random ones, and narrower and wider ones beside them."""
    found: list[Filter] = []
    while len(found) < count:
        text = generate.filter_text(rng, schema, depth=rng.randint(0, 2))
        if rng.random() < 0.4 and found:
            text = f"({found[-1].text}) {rng.choice(['AND', 'OR'])} {text}"
        try:
            found.append(Filter(text, schema if typed else None))
        except FilterError:
            continue
    return found


def check(index: CoverIndex, oracle: ScanIndex, asked: list[Filter]) -> None:
    """Ask both."""
    for each in asked:
        assert index.coverer(each) == oracle.coverer(each), each
        assert index.covered(each) == oracle.covered(each), each
    assert len(index) == len(oracle)


@settings(max_examples=LARGE_EXAMPLES)
@given(seed=st.integers(0, 2**32), typed=st.booleans())
def test_it_agrees_with_the_scan(seed: int, typed: bool) -> None:
    rng = Random(seed)
    schema = generate.schema(rng, 3)
    filters = some_filters(rng, schema, typed, 24)
    index, oracle = BoxIndex(), ScanIndex()
    for number, each in enumerate(filters[:20]):
        index.add(number, each)
        oracle.add(number, each)
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
def test_fuzzy_and_semantic_filters_and_areas_too(typed: bool) -> None:
    schema = Schema({"a": "float64", "b": "float64", "s": "string"}) if typed else None
    filters = [Filter(text, schema) for text in FUZZY]
    index, oracle = BoxIndex(), ScanIndex()
    for number, each in enumerate(filters):
        if each.text:  # everything covers everything: asked for, not held
            index.add(number, each)
            oracle.add(number, each)
    check(index, oracle, filters)
    assert oracle.covered(filters[1]) == [0, 1, 2]
    assert oracle.coverer(filters[17]) == 16
    assert oracle.coverer(filters[18]) == 18  # another theme is another meaning


def test_what_is_said_by_the_first_letters_alone_is_verified() -> None:
    index = BoxIndex()
    for number in range(200):
        index.add(number, Filter(f"vid = 'sensor-{number:06}'"))
    assert index.coverer(Filter("vid = 'sensor-000123' AND speed > 3")) == 123
    assert index.covered(Filter("vid LIKE 'sensor-00001%'")) == list(range(10, 20))
    assert index.coverer(Filter("vid LIKE 'sensor-00001%'")) is None


def test_numbers_beyond_every_float_keep_their_order() -> None:
    index = BoxIndex()
    index.add(0, Filter(f"n < {10**400}"))
    assert index.coverer(Filter(f"n < {10**399}")) == 0
    assert index.coverer(Filter(f"n < {10**401}")) is None
