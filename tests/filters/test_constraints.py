"""Constraints as filters on a schema."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate import Schema
from tidegate.filters import Constraints

GPS = Schema(
    {"longitude": "float64", "speed": "float64?", "my field": "string", "pos": {"x": "float64"}},
    constraints={
        "longitude": "BETWEEN 115.25 AND 117.30",
        "speed": "> 0",
        "my field": "LIKE 'B%' OR \"my field\" = 'x'",
        "pos.x": ">= 0",
    },
)
GOOD = {"longitude": 116.4, "speed": 1.0, "my field": "B1", "pos": {"x": 0}}


def test_valid_event_has_no_violations() -> None:
    assert list(Constraints(GPS).violations(GOOD)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"longitude": 130}, "longitude: 130 violates longitude BETWEEN 115.25 AND 117.30"),
        ({"speed": 0}, "speed: 0 violates speed > 0"),
        ({"speed": None}, "speed: a missing value violates speed > 0"),
        ({"my field": "C"}, "my field: 'C' violates \"my field\" LIKE 'B%' OR \"my field\" = 'x'"),
        ({"pos": {"x": -1}}, "pos.x: -1 violates pos.x >= 0"),
    ],
)
def test_violation_shows_value_and_constraint(change: dict[str, Any], message: str) -> None:
    assert [str(violation) for violation in Constraints(GPS).violations({**GOOD, **change})] == [message]


def test_unknown_result_violates_a_constraint() -> None:
    actual = list(Constraints(GPS).violations({}))
    assert [item.path for item in actual] == ["longitude", "speed", "my field", "pos.x"]
    assert str(actual[0]) == "longitude: a missing value violates longitude BETWEEN 115.25 AND 117.30"


def test_constraints_expose_their_filters() -> None:
    filters = Constraints(GPS).filters
    assert str(filters["speed"]) == "speed > 0"
    assert filters["pos.x"].matches({"pos": {"x": 3}})
