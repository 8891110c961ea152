"""How well properties fit a filter: columns against one by one."""

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
def test_columns_say_what_each_service_says(
    given_: list[dict[str, Any]], text: str, columns: bool, random: Any
) -> None:
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


def test_a_whole_part_is_asked_as_columns() -> None:
    table = Properties()
    for slot in range(5_000):
        table.put(slot, {"price": slot / 100, "region": "north"} if slot != 77 else {})
    matches, degrees = table.ask(Filter("price IS Z(10, 20)"), np.arange(5_000))
    whole = [slot / 100 < 13.17 and slot != 77 for slot in range(5_000)]
    assert (matches.tolist(), degrees[77], degrees[0]) == (whole, 0.0, 1.0)
    table.put(3, {"price": "free"})
    matches, _ = table.ask(Filter("price IS Z(10, 20)"), np.arange(5_000))
    assert sum(matches.tolist()) == sum(whole) - 1


def test_the_three_classes() -> None:
    said = {}
    for name, row in {
        "full": {"price": 1, "rate": 20, "region": "north"},
        "uncertain": {"price": 4, "rate": 9, "region": "north"},
        "none": {"price": 1, "rate": 20, "region": "south"},
    }.items():
        said[name] = match_of(CHEAP.matches(row), CHEAP.degree(row))
    assert said == {name: name for name in said}


def test_reasons_are_given_item_by_item() -> None:
    found = reasons(
        Filter("FUZZY(price IS Z(2, 10) WEIGHT 2, rate IS S(0, 10) AT LEAST 0.9) AND open = TRUE"),
        {"price": 6, "rate": 8},
    )
    assert [(each.predicate, each.degree, each.least, each.weight, each.holds) for each in found] == [
        ("price IS Z(2.0, 10.0)", 0.5, 0.5, 2.0, True),
        ("rate IS S(0.0, 10.0)", pytest.approx(0.92), 0.9, 1.0, True),
        ("open = TRUE", None, 1.0, 1.0, False),
    ]
    assert found[0].values == {"price": 6}
    assert found[2].values == {"open": None}


def test_a_filter_says_which_properties_it_reads() -> None:
    assert properties_of(Filter("a.b > 3 AND FUZZY(c IS Z(0, 1), d = 2) OR a.c = 1")) == ("a", "c", "d")
