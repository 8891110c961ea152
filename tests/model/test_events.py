"""Events: validation, conversion, ids and times."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import generate
from tidegate import Enum, EventError, Schema
from tidegate.model import arrow, events, ids, timestamps

randoms = st.integers(0, 2**64).map(Random)

SCHEMA = Schema(
    {
        "vid": "string",
        "speed": "float64",
        "kind": Enum("CAR", "BUS"),
        "mark": "char?",
        "on": "bool?",
        "count": "uint8?",
        "time": "timestamp?",
        "pos": "{x: float64, y: float64?}?",
        "wheels": "int32[2]?",
    },
    event_time="time",
)
GOOD = {"vid": "B17", "speed": 61.5, "kind": "CAR"}


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"kind": 1},
        {"speed": 61},
        {"mark": "é"},
        {"on": False, "count": 255},
        {"time": "2026-11-15T12:00:00Z"},
        {"time": datetime(2026, 11, 15, tzinfo=UTC)},
        {"pos": {"x": 1.0}},
        {"wheels": [1, None]},
        {"mark": None},
        {"_id": "a", "_time": "2026-11-15T12:00:00Z", "_themes": ["traffic"], "_src": "gps:0:17"},
    ],
)
def test_valid_event_is_accepted(extra: dict[str, Any]) -> None:
    events.validate({**GOOD, **extra}, SCHEMA)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"speed": "fast"}, "speed: expected a number (float64), not 'fast'"),
        ({"speed": None}, "speed: expected a number (float64), but it is null"),
        ({"speed": True}, "speed: expected a number (float64), not True"),
        ({"speed": 10**400}, "speed: expected a number (float64), not 1000"),
        ({"speed": 10**5000}, "speed: expected a number (float64), not a huge number"),
        ({"vid": "\ud800"}, "vid: expected a string, not '\\ud800'"),
        ({"time": "0001-01-01T00:00:00+05:00"}, "time: expected an RFC 3339 timestamp"),
        ({"vid": 5}, "vid: expected a string, not 5"),
        ({"kind": "TRAM"}, "kind: expected one of CAR, BUS, not 'TRAM'"),
        ({"kind": 7}, "kind: expected one of CAR, BUS, not 7"),
        ({"mark": "ab"}, "mark: expected a string of one character, not 'ab'"),
        ({"on": 1}, "on: expected true or false, not 1"),
        ({"count": 256}, "count: expected a whole number from 0 to 255 (uint8), not 256"),
        ({"count": 1.5}, "count: expected a whole number from 0 to 255 (uint8), not 1.5"),
        ({"time": "noon"}, "time: expected an RFC 3339 timestamp, not 'noon'"),
        ({"time": 5}, "time: expected an RFC 3339 timestamp, not 5"),
        ({"pos": 5}, "pos: expected an object, not 5"),
        ({"pos": {"y": 1}}, "pos.x: expected a number (float64), but it is missing"),
        ({"pos": {"x": 1, "z": 2}}, "pos.z: unknown attribute"),
        ({"wheels": 5}, "wheels: expected an array (int32[2]), not 5"),
        ({"wheels": [1, 2, 3]}, "wheels: expected at most 2 elements, not 3"),
        ({"wheels": [1, "x"]}, "wheels[1]: expected a whole number"),
        ({"sped": 1}, "sped: unknown attribute; did you mean 'speed'?"),
        ({"_themes": "x"}, "_themes: expected an array (string[]), not 'x'"),
        ({"_other": 1}, "_other: unknown attribute"),
        ({"vid": ["x" * 100]}, "..."),
    ],
)
def test_invalid_event_names_path_and_reason(extra: dict[str, Any], message: str) -> None:
    with pytest.raises(EventError) as caught:
        events.validate({**GOOD, **extra}, SCHEMA)
    assert message in str(caught.value)
    assert len(caught.value.violations) == 1


def test_every_violation_is_found() -> None:
    with pytest.raises(EventError) as caught:
        events.validate({"speed": "fast", "kind": "TRAM"}, SCHEMA)
    assert [violation.path for violation in caught.value.violations] == ["vid", "speed", "kind"]


def test_event_that_is_no_object_is_refused() -> None:
    with pytest.raises(EventError, match="event: expected an object of attributes, not 5"):
        events.validate(5, SCHEMA)


@given(randoms)
def test_events_survive_arrow(rng: Random) -> None:
    schema = generate.schema(rng)
    given_ = [generate.event(rng, schema) for _ in range(5)]
    batch = arrow.to_batch(given_, schema)
    assert Schema.from_arrow(batch.schema).root.fields == schema.root.fields
    again = arrow.to_batch(arrow.to_events(batch), schema)
    assert _comparable(again.to_pylist()) == _comparable(batch.to_pylist())


def _comparable(value: Any) -> Any:
    """Return a value in a form in which NaN equals itself."""
    match value:
        case dict():
            return {key: _comparable(item) for key, item in value.items()}
        case list():
            return [_comparable(item) for item in value]
        case float() if math.isnan(value):
            return "nan"
    return value


def test_batch_has_reserved_keys_and_refuses_invalid_values() -> None:
    batch = arrow.to_batch([{**GOOD, "_id": "a"}, GOOD], SCHEMA)
    assert batch.column("_id").to_pylist() == ["a", None]
    with pytest.raises(EventError, match="event 1, speed: expected a number"):
        arrow.to_batch([GOOD, {**GOOD, "speed": "x"}], SCHEMA)
    with pytest.raises(EventError, match="event 0, sped: unknown attribute; did you mean 'speed'"):
        arrow.to_batch([{**GOOD, "sped": 1}], SCHEMA)
    with pytest.raises(EventError, match="event 0, event: expected an object of attributes, not 5"):
        arrow.to_batch([5], SCHEMA)  # type: ignore[list-item]
    with pytest.raises(EventError, match=re.escape("event 0, f: expected a number (float32), not 1e+300")):
        arrow.to_batch([{"f": 1e300}], Schema({"f": "float32"}))
    assert arrow.to_batch((GOOD for _ in range(3)), SCHEMA).num_rows == 3


def test_event_time_prefers_the_reserved_key() -> None:
    assert events.event_time({"time": "1970-01-01T00:00:01Z"}, SCHEMA) == 1_000_000
    assert events.event_time({"time": "1970-01-01T00:00:01Z", "_time": "1970-01-01T00:00:02Z"}, SCHEMA) == 2_000_000
    assert events.event_time({"time": datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)}, SCHEMA) == 3_000_000
    assert events.event_time({"time": "1970-01-01T00:00:01Z"}) is None
    assert events.event_time({"time": 5}, SCHEMA) is None


def test_lower_case_times_are_accepted() -> None:
    assert timestamps.from_text("1970-01-01t00:00:01z") == 1_000_000


def test_ids_are_a_function_of_the_input() -> None:
    one, other = ids.source_id("gps", 0, 17), ids.source_id("gps", 1, 17)
    assert one != other
    assert ids.joined_id(one, other) == "gps:0:17+gps:1:17"
    assert ids.child_id(one, 2) == "gps:0:17/2"
    assert ids.window_id("cam1", "2026-11-15T12:00:00Z") == "cam1@2026-11-15T12:00:00Z"
    assert ids.window_id("cam1", "2026-11-15T12:00:00Z", 4) == "cam1@2026-11-15T12:00:00Z#4"


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_timestamps_survive_text(micros: int) -> None:
    assert timestamps.from_text(timestamps.to_text(micros)) == micros
    assert timestamps.from_datetime(timestamps.to_datetime(micros)) == micros


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "2026-13-01",
        "0001-01-01T00:00:00+05:00",
        "9999-12-31T23:59:59-05:00",
        "2026-01-01T25:00:00Z",
        "1",
        "2026-01-01T00:00:60Z",
    ],
)
def test_invalid_time_is_none(text: str) -> None:
    assert timestamps.from_text(text) is None
