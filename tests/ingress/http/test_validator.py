"""The fast judgement of an event is the slow one's."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import generate
from tidegate.ingress.http.validator import validator
from tidegate.model import Enum, Schema
from tidegate.model.events import violations

randoms = st.integers(0, 2**64).map(Random)

EVERY = Schema(
    {
        "text": "string",
        "mark": "char?",
        "on": "bool?",
        "small": "int8?",
        "large": "uint64?",
        "single": "float32?",
        "double": "float64?",
        "time": "timestamp?",
        "kind": "enum(CAR, BUS)?",
        "pos": "{x: float64, y: float64?}?",
        "wheels": "int32[2]?",
        "trail": "{at: timestamp}[]?",
    }
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([127, 128, -129, 2**31, 2**63, 2**64 - 1, 2**64, 10**400, 3.4e38, 3.5e38, -3.5e38])
    | st.floats()
    | st.text(st.characters())
    | st.sampled_from(["CAR", "TRAM", "a", "ab", "\ud800", "京", "2026-11-15"])
)
moments = st.datetimes().map(lambda moment: moment.isoformat()) | st.sampled_from(
    [
        "2026-11-15T12:00:00Z",
        "2026-11-15t12:00:00z",
        "2026-11-15 12:00:00.1234567Z",
        "2026-11-15ß12:00:00Z",
        "2026-11-15ŉ12:00:00Z",
        " 2026-11-15T12:00:00Z",
        "2026-11-15T12:00:00Z ",
        "2026-w01-1T00:00:00Z",
        "2026-W01-1T00:00:00Z",
        "20261115T120000Z",
        "2026-11-15Z",
        "2026-11-15T24:00:00Z",
        "2026-02-30T00:00:00Z",
        "0001-01-01T00:00:00+05:00",
        "9999-12-31T23:59:59.999999-01:00",
        "Z",
        "",
    ]
)
values = st.recursive(
    scalars | moments,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "y", "at", "z"]) | st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=5,
)
reserved = st.sampled_from(["_id", "_time", "_themes", "_src", "_other"])
names = st.sampled_from([field.name for field in EVERY.root]) | reserved | st.text(max_size=3)


def agree(event: Any, schema: Schema) -> None:
    assert validator(schema)(event) == (not list(violations(event, schema)))


@given(values | st.dictionaries(names, values, max_size=6))
def test_validator_agrees_on_any_value(event: Any) -> None:
    agree(event, EVERY)


@given(st.dictionaries(names, values, max_size=3))
def test_validator_agrees_on_almost_valid_events(changes: dict[str, Any]) -> None:
    good = {"text": "a", "time": "2026-11-15T12:00:00Z", "pos": {"x": 1.5}, "wheels": [1, None], "kind": 1}
    agree(good, EVERY)
    agree({**good, **changes}, EVERY)


@given(randoms, st.booleans(), st.dictionaries(reserved | st.text(max_size=2), scalars, max_size=1))
def test_validator_agrees_on_any_schema(rng: Random, wild: bool, more: dict[str, Any]) -> None:
    schema = generate.schema(rng)
    event = (generate.wild_event if wild else generate.event)(rng, schema)
    agree({**event, **more}, schema)


@given(moments)
def test_validator_agrees_on_any_time(text: str) -> None:
    agree({"time": text}, Schema({"time": "timestamp"}))


@pytest.mark.parametrize("name", ["it's", 'q"x', "a\\b", "größe", "{0}", "a b", "if", "\n"])
def test_name_may_be_any_text(name: str) -> None:
    schema = Schema({name: "int8"})
    assert validator(schema)({name: 1})
    assert not validator(schema)({name: 300})
    assert not validator(schema)({"a": 1})


def test_label_may_be_any_text() -> None:
    schema = Schema({"kind": Enum("it's", 'a"b')})
    assert validator(schema)({"kind": 'a"b'})
    assert not validator(schema)({"kind": "its"})


def test_equal_schemas_share_one() -> None:
    assert validator(Schema({"a": "int8"})) is validator(Schema({"a": "int8"}))
