"""Data lineage through the operators that read several streams or several events."""

from __future__ import annotations

from tidegate.services import loads
from tidegate.services.lineage import Lineages

STREAMS = """
streams:
  a: &gps {schema: {vid: string, speed: float64, time: timestamp}, event_time: time}
  b: *gps
  w: {schema: {vid: string, rain: float64, time: timestamp}, event_time: time}
services:
"""


def lineages(pipeline: str, inputs: str = "a") -> Lineages:
    return Lineages(loads(f"{STREAMS}  s: {{from: {inputs}, pipeline: [{pipeline}]}}"))


def direct(all_lineages: Lineages, attribute: str) -> set[tuple[str, str]]:
    return {*all_lineages.of_attributes("s", [attribute])} - {("s", attribute)}


def test_merge_with_branches_has_origins_in_all_inputs() -> None:
    merged = lineages("{filter: speed > 1}, {merge: {with: [{from: b, filter: speed > 2}]}}")
    assert direct(merged, "speed") == {("a", "speed"), ("b", "speed")}
    assert {("a", "vid"), ("b", "vid")} <= merged.of_ids("s")
    assert merged.raw_streams("s") == {"a", "b"}


def test_join_of_three_inputs_keeps_the_origins_of_each() -> None:
    joined = lineages("{join: {on: vid, within: 1s, with: [w]}}", "[a, b]")
    assert direct(joined, "vid") == {("a", "vid"), ("b", "vid"), ("w", "vid")}
    assert direct(joined, "b_speed") == {("b", "speed")}
    assert direct(joined, "rain") == {("w", "rain")}
    assert ("w", "rain") in joined.of_ids("s")


def test_join_with_itself_has_one_origin() -> None:
    joined = lineages("{join: {within: 1s}}", "[a, a]")
    assert direct(joined, "a_speed") == {("a", "speed")}


def test_lookup_adds_attributes_and_keeps_ids() -> None:
    looked_up = lineages("{lookup: {from: w, on: vid}}")
    assert direct(looked_up, "rain") == {("w", "rain")}
    assert direct(looked_up, "w_time") == {("w", "time")}
    assert not any(stream == "w" for stream, _ in looked_up.of_ids("s"))


def test_previous_has_the_origins_of_the_earlier_attribute() -> None:
    assert direct(lineages("{previous: {by: vid, of: {last: speed}}}"), "last") == {("a", "speed")}


def test_pattern_steps_have_the_origins_of_whole_events() -> None:
    found = lineages("{pattern: {by: vid, steps: [{fast: speed > 9}, {absent: any, for: 1m}]}}")
    assert direct(found, "fast") == {("a", "vid"), ("a", "speed"), ("a", "time")}
    assert direct(found, "absent") == set()
    assert ("a", "vid") in found.of_ids("s")
    assert ("a", "speed") not in found.of_ids("s")
