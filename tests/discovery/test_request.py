"""Requests: every form, and all problems at once."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.discovery import Request
from tidegate.discovery.attributes import WantedAttribute, value_range
from tidegate.errors import DiscoveryError
from tidegate.filters import sets


def problems(document: Any) -> list[str]:
    with pytest.raises(DiscoveryError) as caught:
        Request.from_dict(document)
    return [str(problem) for problem in caught.value.problems]


def test_every_form_of_an_attribute() -> None:
    listed = Request.from_dict(
        {
            "attributes": [
                "speed",
                {"name": "vid", "type": "string"},
                {"name": "time", "type": "timestamp", "range": ["2026-01-01T00:00:00Z", None]},
                {"name": "kind", "values": ["CAR"]},
            ]
        }
    ).attributes
    named = Request.from_dict(
        {
            "attributes": {
                "speed": None,
                "vid": "text",
                "time": {"type": "time", "range": ["2026-01-01T00:00:00Z", None]},
                "kind": {"values": ["CAR"]},
            }
        }
    ).attributes
    assert listed == named
    assert listed == (
        WantedAttribute("speed"),
        WantedAttribute("vid", "text"),
        WantedAttribute("time", "time", value_range(1_767_225_600_000_000, None)),
        WantedAttribute("kind", None, sets.points(["CAR"])),
    )


def test_request_with_all_keys() -> None:
    actual = Request.from_dict(
        {
            "attributes": ["speed"],
            "names": "edits",
            "coverage": 0.8,
            "filter": "price < %0",
            "params": [5],
            "categories": "traffic",
            "themes": ["land transport"],
            "qos": {"limits": {"latency": "fast", "availability": 0.99}, "weights": {"latency": 2, "rate": 1}},
            "weights": {"qos": 3},
            "limit": 5,
            "explain": True,
        }
    )
    assert str(actual.filter) == "price < 5"
    assert (actual.categories, actual.themes) == (("traffic",), ("land transport",))
    assert dict(actual.limits) == {"latency": 0.05, "availability": 0.99}
    assert dict(actual.qos_weights) == {"latency": 2.0, "rate": 1.0}
    assert dict(actual.weights) == {"coverage": 1.0, "degree": 1.0, "qos": 3.0}
    assert Request.from_dict({}) == Request()


def test_all_problems_are_reported_at_once() -> None:
    assert problems(
        {
            "attributes": ["speed", {"nam": "x"}, 3],
            "coverage": 2,
            "filter": "price <",
            "qos": {"limits": {"latency": "fsat", "speed": 3}, "weights": {"rate": 0, "latency": 0}},
            "limit": 0,
            "explain": "yes",
        }
    ) == [
        "attributes[1].nam: unknown key 'nam'; did you mean 'name'?",
        "attributes[1].name: expected the name of an attribute, not nothing",
        "attributes[2]: expected an attribute: its name, or {name, type, range, values}, not 3",
        "coverage: expected a share from 0 to 1, such as 0.8, not 2",
        "filter: expected a value or a field\n  price <\n         ^ expected a value or a field",
        "qos.limits.speed: unknown key 'speed'; expected one of latency, availability, rate, freshness, completeness",
        "qos.limits.latency: expected a length of time such as 50ms, "
        "or one of instant, fast, moderate, slow, not 'fsat'; "
        "did you mean 'fast'?",
        "qos.weights: expected at least one weight above 0, not {'rate': 0, 'latency': 0}",
        "limit: expected 1 to 1,000 results, not 0",
        "explain: expected true or false, not 'yes'",
    ]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], 'expected a request, such as {"attributes": ["speed"]}, not []'),
        ({"attributes": "speed"}, 'attributes: expected attributes, such as ["speed"'),
        ({"attributes": {"speed": "flot64"}}, "attributes.speed: unknown type 'flot64'; did you mean 'float64'?"),
        ({"attributes": {"speed": 3}}, "expected a type, such as float64, or one of number, text"),
        ({"attributes": ["a", "a"]}, "expected each attribute once, but 'a' is repeated"),
        ({"attributes": [f"a{n}" for n in range(300)]}, "attributes: expected at most 256 attributes, not 300"),
        ({"attributes": {"a": {"range": [1]}}}, "expected the least and the greatest value, such as [0, 120]"),
        ({"attributes": {"a": {"range": [None, None]}}}, "expected the least and the greatest value"),
        ({"attributes": {"a": {"range": 3}}}, "attributes.a.range: expected the least and the greatest value"),
        ({"attributes": {"a": {"range": [3, 1]}}}, "expected the least value before the greatest, not [3, 1]"),
        ({"attributes": {"a": {"range": [3, "x"]}}}, "expected two values of one type"),
        ({"attributes": {"a": {"range": [[], 3]}}}, "attributes.a.range[0]: expected a number, a text or null, not []"),
        ({"attributes": {"a": {"range": [float("nan"), 3]}}}, "attributes.a.range[0]: expected a number, not nan"),
        ({"attributes": {"a": {"type": "time", "range": ["soon", None]}}}, "expected a moment such as 2026-01-05"),
        ({"attributes": {"a": {"values": []}}}, "expected values of one type, at least one, not []"),
        ({"attributes": {"a": {"values": [1, "x"]}}}, "expected values of one type"),
        ({"attributes": {"a": {"values": [1], "range": [1, 2]}}}, "expected range or values, not both"),
        ({"params": [3]}, "params: expected no parameters, as there is no filter"),
        ({"filter": 3}, "filter: expected a filter over properties, such as"),
        ({"filter": "a~ = 'b'~"}, "likeness of meaning (~) needs a semantic space"),
        ({"filter": "a = %0"}, "filter: "),
        ({"weights": {"qos": 0, "degree": 0, "coverage": 0}}, "weights: expected at least one weight above 0"),
        ({"weights": {}}, "weights: expected at least one weight above 0"),
        ({"weights": {"qos": -1}}, "weights.qos: expected a weight, 0 or more, not -1"),
        ({"weights": {"quality": 1}}, "unknown key 'quality'; "),
        ({"qos": {"limits": {"availability": 7}}}, "expected a share from 0 to 1"),
        ({"qos": 3}, 'qos: expected quality, such as {"weights": {"latency": 2, "rate": 1}}, not 3'),
        ({"categories": [3]}, "categories[0]: expected a category, or a list of them, not 3"),
        ({"themes": 3}, "themes: expected a theme, or a list of themes, not 3"),
        ({"names": 3}, "names: expected how names are compared: exact, edits or meaning, not 3"),
    ],
)
def test_problem_says_what_was_expected(document: Any, problem: str) -> None:
    assert any(problem in item for item in problems(document)), problems(document)
