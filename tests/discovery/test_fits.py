"""How well properties fit a filter: columns compared with single services."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import Filter
from tidegate.discovery import properties as properties_module
from tidegate.discovery.fits import match_of, properties_of, reasons
from tidegate.discovery.properties import Properties

CHEAP = Filter("FUZZY(price IS Z(2, 10), rate IS S(0, 10), region = 'north')")

FILTERS = [
    "price < 5",
    "NOT price < 5",
    "price IS NULL",
    "region IN ('north', 'south') AND price >= 1.5",
    "region STRLIKE 'nroth'",
    "FUZZY(price IS TRIANGLE(0, 3, 6), rate IS S(0, 10) AT LEAST 0.1 WEIGHT 2) >= 0.6",
    "FUZZY MIN(price IS Z(2, 10), region = 'north') OR indoor = TRUE",
    "",
]
values = st.integers(-3, 12) | st.floats(-3, 12) | st.sampled_from(["north", "nroth", "east", True, False, 2**60])
rows = st.dictionaries(st.sampled_from(["price", "rate", "region", "indoor"]), values)


@given(st.lists(rows, max_size=12), st.sampled_from(FILTERS), st.booleans(), st.randoms(use_true_random=False))
def test_columns_agree_with_each_service(given_: list[dict[str, Any]], text: str, columns: bool, random: Any) -> None:
    filter_, table = Filter(text), Properties()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(properties_module, "PART", 4)
        if columns:
            patch.setattr(properties_module, "_MIN_COLUMNAR", 0)
            patch.setattr(properties_module, "_MIN_TO_BUILD", 0)
        for slot, row in enumerate(given_):
            table.put(slot, {"price": "to be changed"})
            table.put(slot, row)
        slots = np.array(sorted(random.sample(range(len(given_)), len(given_) // 2)), np.int64)
        matches, degrees = table.ask(filter_, slots)
    assert matches.tolist() == [filter_.matches(given_[n]) for n in slots]
    assert degrees.tolist() == pytest.approx([filter_.degree(given_[n]) for n in slots])
    assert dict(table.names()) == {
        name: count for name in ("price", "rate", "region", "indoor") if (count := sum(name in row for row in given_))
    }


@pytest.mark.parametrize("text", FILTERS)
@pytest.mark.parametrize("order", [1, -1])
def test_truth_value_among_numbers_stays_a_truth_value(text: str, order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(properties_module, "_MIN_COLUMNAR", 0)
    monkeypatch.setattr(properties_module, "_MIN_TO_BUILD", 0)
    rows: list[dict[str, Any]] = [
        {"price": 1.5, "rate": 9},
        {"price": True, "rate": 0},
        {"price": True, "rate": 9.5},
        {"rate": 1},
    ]
    rows = rows[::order]
    filter_, table = Filter(text), Properties()
    for slot, row in enumerate(rows):
        table.put(slot, row)
    matches, degrees = table.ask(filter_, np.arange(len(rows)))
    assert matches.tolist() == [filter_.matches(row) for row in rows]
    assert degrees.tolist() == pytest.approx([filter_.degree(row) for row in rows])


def test_whole_part_is_evaluated_as_columns() -> None:
    table = Properties()
    for slot in range(5_000):
        table.put(slot, {"price": slot / 100, "region": "north"} if slot != 77 else {})
    matches, degrees = table.ask(Filter("price IS Z(10, 20)"), np.arange(5_000))
    whole = [slot / 100 < 13.17 and slot != 77 for slot in range(5_000)]
    assert (matches.tolist(), degrees[77], degrees[0]) == (whole, 0.0, 1.0)
    table.put(3, {"price": "free"})
    matches, _ = table.ask(Filter("price IS Z(10, 20)"), np.arange(5_000))
    assert sum(matches.tolist()) == sum(whole) - 1


def test_match_classes() -> None:
    actual = {}
    for name, row in {
        "full": {"price": 1, "rate": 20, "region": "north"},
        "uncertain": {"price": 4, "rate": 9, "region": "north"},
        "none": {"price": 1, "rate": 20, "region": "south"},
    }.items():
        actual[name] = match_of(CHEAP.matches(row), CHEAP.degree(row))
    assert actual == {name: name for name in actual}


def test_reasons_list_fuzzy_items() -> None:
    actual = reasons(
        Filter("FUZZY(price IS Z(2, 10) WEIGHT 2, rate IS S(0, 10) AT LEAST 0.9) AND open = TRUE"),
        {"price": 6, "rate": 8},
    )
    assert [(item.predicate, item.degree, item.least, item.weight, item.holds) for item in actual] == [
        ("price IS Z(2.0, 10.0)", 0.5, 0.5, 2.0, True),
        ("rate IS S(0.0, 10.0)", pytest.approx(0.92), 0.9, 1.0, True),
        ("open = TRUE", None, 1.0, 1.0, False),
    ]
    assert actual[0].values == {"price": 6}
    assert actual[2].values == {"open": None}


def test_properties_of_a_filter() -> None:
    assert properties_of(Filter("a.b > 3 AND FUZZY(c IS Z(0, 1), d = 2) OR a.c = 1")) == ("a", "c", "d")
