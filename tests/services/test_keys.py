"""The key attribute of a service's output."""

from __future__ import annotations

import pytest

from tidegate.services import loads
from tidegate.services.keys import output_keys

STREAMS = """
streams:
  a: &gps {schema: {vid: string, line: string, speed: float64, time: timestamp}, event_time: time, key: vid}
  b: *gps
  c: {schema: {vid: string, line: string, speed: float64, time: timestamp}, event_time: time, key: line}
  d: {schema: {vid: string, line: string, speed: float64, time: timestamp}, event_time: time}
services:
"""


def key(*services: str) -> str | None:
    text = STREAMS + "".join(f"  {service}\n" for service in services)
    return output_keys(loads(text)).get("s")


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("s: {from: a}", "vid"),
        ("s: {from: d}", None),
        ("s: {from: [a, b], pipeline: [merge]}", "vid"),
        ("s: {from: a, pipeline: [{merge: {with: [b]}}]}", "vid"),
        ("s: {from: a, pipeline: [{merge: {with: [b, c]}}]}", None),
        ("s: {from: a, pipeline: [{lookup: {from: c, on: line}}]}", "vid"),
        ("s: {from: a, pipeline: [{previous: {by: line, of: {last: speed}}}]}", "vid"),
        ("s: {from: a, pipeline: [{pattern: {by: line, steps: [{seen: any}]}}]}", "line"),
        ("s: {from: a, pipeline: [{join: {on: line, within: 1s, with: [c]}}]}", "line"),
        ("s: {from: [a, c], pipeline: [merge]}", None),
        ("s: {from: [a, d], pipeline: [merge]}", None),
        ("s: {from: a, pipeline: [{filter: speed > 3}]}", "vid"),
        ("s: {from: a, pipeline: [{project: {taxi: vid, time: time}}]}", "taxi"),
        ("s: {from: a, pipeline: [{project: {x: vid, vid: vid, time: time}}]}", "vid"),
        ("s: {from: a, pipeline: [{project: {speed: speed, time: time}}]}", None),
        ("s: {from: a, pipeline: [{project: {vid: \"concat(vid, 'x')\", time: time}}]}", None),
        ("s: {from: a, pipeline: [{aggregate: {count: n, by: [line], window: {length: 60s}}}]}", "line"),
        ("s: {from: a, pipeline: [{aggregate: {count: n, by: [line, vid], window: {length: 60s}}}]}", None),
        ("s: {from: a, pipeline: [{aggregate: {count: n, window: {length: 60s}}}]}", None),
        ("s: {from: [a, b], pipeline: [{join: {on: [line], within: 10s}}]}", "line"),
        ("s: {from: [a, b], pipeline: [{join: {within: 10s}}]}", None),
        ("s: {from: a, mask: {vid: hmac}}", "vid"),
        ("s: {from: a, mask: {vid: drop}}", None),
        ("s: {from: a, mask: {vid: {truncate: 2}}}", None),
    ],
)
def test_key_follows_the_operators_of_a_pipeline(service: str, expected: str | None) -> None:
    assert key(service) == expected


def test_key_of_an_input_is_found_in_any_order_of_definitions() -> None:
    assert key("s: {from: t}", "t: {from: a, pipeline: [{project: {taxi: vid, time: time}}]}") == "taxi"
