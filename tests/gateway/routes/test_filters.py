"""Explain and backtest of filters without a subscription."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.gateway.running import World
from tidegate.filters import Filter
from tidegate.filters.nodes import Path as Attribute
from tidegate.gateway import backtest as looking
from tidegate.model import Schema, timestamps
from tidegate.model.types import Scalar


def back(http: httpx.Client, **params: Any) -> dict[str, Any]:
    answer = http.get("/v1/services/gps/backtest", params={"from": "beginning", **params})
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def test_explain_describes_a_filter(shared: httpx.Client) -> None:
    said = shared.get("/v1/services/gps/explain", params={"filter": "NOT speed <= %0", "param": "60"}).json()
    assert (said["service"], said["canonical"]) == ("gps", "speed > 60")
    assert said["normal_form"]["alternatives"][0]["sets"] == {"speed": "(60, +inf)"}
    assert said["attributes"] == [{"name": "speed", "type": "float64"}]
    assert "event" not in said
    event = json.dumps({"specversion": "1.0", "data": {"speed": 70, "vid": "B1"}})
    why = shared.get("/v1/services/gps/explain", params={"filter": "speed > 60", "event": event}).json()["event"]
    assert (why["matches"], why["predicates"][0]["values"]) == (True, {"speed": 70})


def test_invalid_filter_has_a_caret_and_a_hint(shared: httpx.Client) -> None:
    for call in ("explain", "backtest"):
        answer = shared.get(f"/v1/services/gps/{call}", params={"filter": "sped > 60"})
        said = answer.json()
        assert (answer.status_code, said["type"]) == (400, "urn:tidegate:problem:bad-filter")
        assert said["errors"] == [
            {"pointer": "filter", "detail": "unknown field 'sped'; did you mean 'speed'?", "at": 0, "text": "sped"}
        ]
        assert "\n  ^^^^ unknown field" in said["detail"]
        assert shared.get(f"/v1/services/nothing/{call}").status_code == 404


@pytest.mark.parametrize(
    ("params", "detail"),
    [
        ({"from": "now"}, "from: expected beginning, a moment"),
        ({"from": "soon"}, "from: expected now, beginning, a moment"),
        ({"param": "1"}, "param: expected no parameter, as there is no filter"),
        ({"max": "0"}, "query/max"),
        ({"sample": "101"}, "query/sample"),
    ],
)
def test_invalid_queries_are_refused(shared: httpx.Client, params: dict[str, str], detail: str) -> None:
    answer = shared.get("/v1/services/gps/backtest", params=params)
    assert answer.status_code in (400, 422)
    assert answer.json()["detail"].startswith(detail)


def test_backtest_counts_past_matches(world: World, http: httpx.Client) -> None:
    assert back(http)["events"] == 0, "nothing has come yet"
    world.append(2_500)  # more than one read
    found = back(http, filter="speed >= 90 AND vid = 'B1'", sample=2)
    assert (found["events"], found["matched"], found["complete"]) == (2_500, 25, True)
    assert found["filter"] == "speed >= 90 AND vid = 'B1'"
    assert [each["_id"] for each in found["sample"]] == ["gps_taxi:0:2491", "gps_taxi:0:2391"], "the newest first"
    assert "_src" not in found["sample"][0]
    speed, vid = found["attributes"]
    assert (speed["name"], speed["bins"][0]["from"], speed["bins"][-1]["to"]) == ("speed", 0, 99)
    assert (sum(each["events"] for each in speed["bins"]), sum(each["matched"] for each in speed["bins"])) == (
        2_500,
        25,
    )
    assert {each["value"]: each["matched"] for each in vid["values"]}["B1"] == 25
    assert found["timeline"] == [{"at": "2026-01-01T00:00:00.000000Z", "events": 2_500, "matched": 25}]
    by_name = {each["name"]: each for each in back(http)["attributes"]}
    assert by_name.keys() == {"vid", "speed", "time"}, "no filter: all"
    assert by_name["time"]["bins"][0]["from"] == "2026-01-01T00:00:00.000000Z", "moments are spread as numbers are"


def test_backtest_reads_only_the_newest_events(world: World, http: httpx.Client) -> None:
    world.append(6_000)
    found = back(http, max=1_000, sample=1)
    assert found["sample"][0]["_id"] == "gps_taxi:0:5999"
    assert 0 < found["events"] <= 6_000
    assert found["complete"] is (found["events"] == 6_000)


def test_hidden_attributes_are_in_no_answer(tmp_path: Path) -> None:
    text = "streams: {gps_taxi: {schema: {vid: string, speed: float64}}}\n"
    world = World(tmp_path, f"{text}services: {{gps: {{from: gps_taxi, access: {{fields: {{vid: []}}}}}}}}")
    world.needs_keys = True
    _, key = world.registry.create_key("somebody", "consumer")
    with world.running(), world.client() as http:
        assert http.get("/v1/services/gps/backtest").status_code == 401
        http.headers["authorization"] = f"Bearer {key}"
        world.append(3)
        found = back(http)
        assert (found["events"], [each["name"] for each in found["attributes"]]) == (3, ["speed"])
        assert all("vid" not in each for each in found["sample"])
        said = http.get("/v1/services/gps/backtest", params={"filter": "vid = 'B1'"})
        assert (said.status_code, "unknown field 'vid'" in said.json()["detail"]) == (400, True)
        event = http.get("/v1/services/gps/explain", params={"filter": "speed < 1", "event": "gps_taxi:0:1"})
        assert event.json()["event"]["matches"] is False


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**40), 2**40)


@given(st.lists(st.tuples(numbers, st.booleans()), min_size=1))
@example([(-1.7e308, True), (0.0, False), (1.7e308, True)])
@example([(0.0, True), (5e-324, False)])
def test_every_number_is_in_one_bin(values: list[tuple[float, bool]]) -> None:
    bins = looking._bins([(float(value), flag) for value, flag in values])
    assert sum(each["events"] for each in bins) == len(values)
    assert sum(each["matched"] for each in bins) == sum(flag for _, flag in values)
    assert bins[0]["from"] == min(float(value) for value, _ in values)
    assert bins[-1]["to"] == max(float(value) for value, _ in values)
    assert all(isfinite(each["from"]) and isfinite(each["to"]) for each in bins)


@given(st.lists(st.tuples(st.datetimes(timezones=st.just(UTC)), st.booleans()), min_size=1))
def test_every_moment_is_in_one_bin(values: list[tuple[datetime, bool]]) -> None:
    attribute = looking._Attribute(Attribute(("time",), Scalar("timestamp")))
    for moment, _ in values:
        attribute.take({"time": moment.isoformat()})
    bins = attribute.distribution([flag for _, flag in values])["bins"]
    assert sum(each["events"] for each in bins) == len(values)
    assert sum(each["matched"] for each in bins) == sum(flag for _, flag in values)
    moments = [moment for moment, _ in values]
    ends = [timestamps.from_datetime(each) for each in (min(moments), max(moments))]
    assert timestamps.from_text(bins[0]["from"]) == ends[0]
    assert timestamps.from_text(bins[-1]["to"]) == pytest.approx(ends[1], abs=32)  # a double's share of 9,999 years


def test_invalid_times_are_counted_as_values() -> None:
    attribute = looking._Attribute(Attribute(("time",), Scalar("timestamp")))
    for each in ("2026-01-01", "soon", 7):
        attribute.take({"time": each})
    assert [each["value"] for each in attribute.distribution([True, True, False])["values"]] == [
        "2026-01-01",
        "soon",
        "7",
    ]


anything = st.sampled_from("abcdefghijklmnop") | st.booleans() | st.lists(st.integers(-9, 9), max_size=2)


@given(st.lists(st.tuples(anything, st.booleans())))
def test_every_value_is_counted_once(values: list[tuple[Any, bool]]) -> None:
    found = looking._values(values)
    assert sum(each["events"] for each in found) == len(values)
    assert sum(each["matched"] for each in found) == sum(flag for _, flag in values)
    assert len(found) <= looking.MAX_VALUES + 1


def test_compiled_filter_lists_its_attributes() -> None:
    schema = Schema({"a": "int32", "pos": {"x": "float64"}, "b": "string"})
    named = [str(each.parts) for each in looking.named(Filter("pos.x > 1 AND (a = 1 OR a = 2)", schema), schema)]
    assert named == ["('pos', 'x')", "('a',)"]
    assert [each.parts for each in looking.named(None, schema)] == [("a",), ("b",)]
