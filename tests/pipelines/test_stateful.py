"""Operators with state in real-time mode, each against slow, obvious Python, on real Spark with a restart."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines.running import World, until
from tidegate.model import timestamps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-stateful")]

BEGIN_US = 1_767_225_600_000_000
"""2026-01-01. Times long past: only `idle` lets the wall clock close windows."""

SERVICES = """
streams:
  a: {schema: {vid: string, speed: float64, n: int64, time: timestamp}, event_time: time, key: vid}
  b: {schema: {vid: string, level: int64, time: timestamp}, event_time: time, key: vid}
services:
  tumbling:
    from: a
    idle: 1s
    pipeline:
      - filter: "speed >= 0"
      - aggregate:
          of: [{count: c}, {sum: {n: total}}, {avg: {speed: mean}}, {min: {speed: low}}, {max: {speed: high}},
               {first: {n: n1}}, {last: {n: n2}}, {distinct: {n: kinds}}, {collect: {n: all}}]
          by: [vid]
          window: {length: 10s, lateness: 5s}
  sliding:
    from: a
    idle: 1s
    pipeline: [{aggregate: {count: c, sum: {n: total}, by: [vid], window: {length: 10s, slide: 5s, lateness: 5s}}}]
  sessions:
    from: a
    idle: 1s
    pipeline: [{aggregate: {count: c, sum: {n: total}, by: [vid], window: {session: 3s, lateness: 5s}}}]
  counted:
    from: a
    idle: 1s
    pipeline: [{aggregate: {count: c, sum: {n: total}, by: [vid], window: {length: 4 events, slide: 2 events}}}]
  top:
    from: a
    idle: 1s
    pipeline:
      - aggregate: {avg: {speed: mean}, by: [vid], window: {length: 10s, lateness: 5s}}
      - sort: {by: [-mean], limit: 2, window: {length: 10s}}
  running:
    from: a
    idle: 1s
    pipeline: [{incremental: {count: c, sum: {n: total}, by: [vid]}}]
  totals:
    from: a
    idle: 1s
    pipeline: [{incremental: {sum: {n: total}, by: [vid], window: {length: 10s, lateness: 5s}}}]
  pairs:
    from: [a, b]
    idle: 1s
    pipeline: [{join: {on: vid, within: 2s, lateness: 60s}}]
  outer:
    from: [a, b]
    idle: 1s
    pipeline: [{join: {on: vid, within: 2s, lateness: 60s, how: left}}]
  steps:
    from: a
    idle: 1s
    pipeline: [{previous: {by: [vid], of: {before: n}}}]
  once:
    from: a
    idle: 1s
    pipeline: [{deduplicate: {by: [vid], within: 4s}}]
  stopped:
    from: a
    idle: 1s
    pipeline: [{pattern: {by: [vid], steps: [{slow: "speed < 20", for: 6s}], lateness: 5s}}]
"""

Event = dict[str, Any]


def events_of(seed: int, count: int) -> list[Event]:
    """Events in nearly the order of their time: at most 4 s out of order."""
    rng = random.Random(seed)
    made = []
    for n in range(count):
        at = BEGIN_US + n * 400_000 - rng.randrange(4_000_000)
        vid = rng.choice("xyz")
        made.append({"vid": vid, "speed": float(rng.randrange(-5, 60)), "n": rng.randrange(100), "time": at})
    return made


def wire(event: Event) -> Event:
    return {**event, "time": timestamps.to_text(event["time"])}


def by_vid(events: list[Event]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event["vid"], []).append(event)
    return found


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    made = World(spark, tmp_path, SERVICES)
    yield made
    made.close()


def results(
    world: World, name: str, events: list[Event], expected: int, other: list[Event] | None = None
) -> list[Event]:
    """Run a service over events with a restart in the middle, and wait for its results."""
    half = len(events) // 2
    job = world.start(name)
    assert job.compiled.plan.mode == "real-time"
    if other is not None:
        world.append("b", map(wire, other[: len(other) // 2]))
    world.append("a", map(wire, events[:half]))
    until(lambda: world.engine.metrics(name)["read"] >= half, f"{name} to read half")
    world.stop(name)
    world.start(name)
    if other is not None:
        world.append("b", map(wire, other[len(other) // 2 :]))
    world.append("a", map(wire, events[half:]))
    return world.await_events(name, expected)


def windows(events: list[Event], length: int, slide: int) -> dict[tuple[str, int], list[Event]]:
    found: dict[tuple[str, int], list[Event]] = {}
    for event in events:
        start = event["time"] // slide * slide
        while start > event["time"] - length:
            found.setdefault((event["vid"], start + length), []).append(event)
            start -= slide
    return found


def end_of(event: Event) -> tuple[str, int]:
    end = timestamps.from_text(event["window_end"])
    assert end is not None
    return event["vid"], end


def test_tumbling_windows_equal_those_of_obvious_python(world: World) -> None:
    events = events_of(1, 200)
    expected = windows([event for event in events if event["speed"] >= 0], 10_000_000, 10_000_000)
    found = results(world, "tumbling", events, len(expected))
    assert {end_of(event) for event in found} == expected.keys()
    assert len({event["_id"] for event in found}) == len(found) == len(expected)
    for event in found:
        inside = expected[end_of(event)]
        ordered = sorted(enumerate(inside), key=lambda each: (each[1]["time"], each[0]))
        numbers = [each["n"] for _, each in ordered]
        assert event["c"] == len(inside)
        assert event["total"] == sum(numbers)
        assert event["mean"] == pytest.approx(sum(each["speed"] for each in inside) / len(inside))
        assert (event["low"], event["high"]) == (min(e["speed"] for e in inside), max(e["speed"] for e in inside))
        assert (event["n1"], event["n2"]) == (numbers[0], numbers[-1])
        assert event["kinds"] == len(set(numbers))
        assert event["all"] == numbers


def test_sliding_windows_equal_those_of_obvious_python(world: World) -> None:
    events = events_of(2, 200)
    expected = windows(events, 10_000_000, 5_000_000)
    found = results(world, "sliding", events, len(expected))
    assert {end_of(event): (event["c"], event["total"]) for event in found} == {
        key: (len(inside), sum(each["n"] for each in inside)) for key, inside in expected.items()
    }


def test_sessions_equal_those_of_obvious_python(world: World) -> None:
    events = events_of(3, 120)
    expected = {}
    for vid, own in by_vid(events).items():
        session: list[Event] = []
        for event in [*sorted(own, key=lambda each: each["time"]), None]:
            if session and (event is None or event["time"] > session[-1]["time"] + 3_000_000):
                expected[vid, session[-1]["time"] + 3_000_000] = (len(session), sum(each["n"] for each in session))
                session = []
            if event is not None:
                session.append(event)
    found = results(world, "sessions", events, len(expected))
    assert {end_of(event): (event["c"], event["total"]) for event in found} == expected


def test_windows_by_count_equal_those_of_obvious_python(world: World) -> None:
    events = events_of(4, 90)
    expected = sorted(
        (vid, end, sum(each["n"] for each in own[end - 4 : end]))
        for vid, own in by_vid(events).items()
        for end in range(4, len(own) + 1, 2)
    )
    found = results(world, "counted", events, len(expected))
    assert sorted((event["vid"], int(event["_id"].split("@")[1]), event["total"]) for event in found) == expected


def test_top_n_takes_the_largest_of_each_window_after_an_aggregate(world: World) -> None:
    events = events_of(5, 150)
    means: dict[int, list[tuple[float, str]]] = {}
    for (vid, end), inside in windows(events, 10_000_000, 10_000_000).items():
        means.setdefault(end, []).append((sum(each["speed"] for each in inside) / len(inside), vid))
    expected = {end: [vid for _, vid in sorted(each, reverse=True)[:2]] for end, each in means.items()}
    found = results(world, "top", events, sum(map(len, expected.values())))
    tops: dict[int, list[str]] = {}
    for event in sorted(found, key=lambda each: -each["mean"]):
        tops.setdefault(end_of(event)[1], []).append(event["vid"])
    assert tops == expected


def test_running_totals_give_one_event_for_each_change(world: World) -> None:
    events = events_of(6, 60)
    expected = {}
    for vid, own in by_vid(events).items():
        for n in range(1, len(own) + 1):
            expected[f"{vid}#{n}"] = (n, sum(each["n"] for each in own[:n]))
    found = results(world, "running", events, len(expected))
    assert {event["_id"]: (event["c"], event["total"]) for event in found} == expected


def test_totals_at_the_end_of_windows_hold_all_events_so_far(world: World) -> None:
    events = events_of(7, 120)
    expected = {}
    for vid, own in by_vid(events).items():
        for end in sorted({each["time"] // 10_000_000 * 10_000_000 + 10_000_000 for each in own}):
            expected[vid, end] = sum(each["n"] for each in own if each["time"] < end)
    found = results(world, "totals", events, len(expected))
    assert {end_of(event): event["total"] for event in found} == expected


def pairs_of(events: list[Event], other: list[Event]) -> list[tuple[int, int]]:
    return [
        (n, m)
        for n, left in enumerate(events)
        for m, right in enumerate(other)
        if left["vid"] == right["vid"] and abs(left["time"] - right["time"]) <= 2_000_000
    ]


def levels(seed: int, count: int) -> list[Event]:
    return [{"vid": each["vid"], "level": n, "time": each["time"]} for n, each in enumerate(events_of(seed, count))]


def test_a_join_gives_every_pair_that_is_close_in_time_once(world: World) -> None:
    events, other = [{**each, "n": n} for n, each in enumerate(events_of(8, 60))], levels(9, 60)
    expected = sorted((events[n]["n"], other[m]["level"]) for n, m in pairs_of(events, other))
    found = results(world, "pairs", events, len(expected), other)
    assert sorted((event["n"], event["level"]) for event in found) == expected


def test_a_left_join_gives_events_without_a_partner_when_none_can_come(world: World) -> None:
    events, other = [{**each, "n": n} for n, each in enumerate(events_of(10, 40))], levels(11, 20)
    pairs = pairs_of(events, other)
    joined = {n for n, _ in pairs}
    expected = [(events[n]["n"], other[m]["level"]) for n, m in pairs]
    expected += [(each["n"], None) for n, each in enumerate(events) if n not in joined]
    found = results(world, "outer", events, len(expected), other)
    assert sorted((e["n"], e["level"] is None, e["level"] or 0) for e in found) == sorted(
        (n, level is None, level or 0) for n, level in expected
    )


def test_previous_adds_an_attribute_of_the_event_before(world: World) -> None:
    events = events_of(12, 50)
    expected = [
        (vid, each["n"], own[n - 1]["n"] if n else None)
        for vid, own in by_vid(events).items()
        for n, each in enumerate(own)
    ]
    found = results(world, "steps", events, len(expected))
    assert sorted(map(repr, ((e["vid"], e["n"], e["before"]) for e in found))) == sorted(map(repr, expected))


def test_deduplicate_lets_one_event_of_a_kind_through_within_its_time(world: World) -> None:
    events = events_of(13, 60)
    expected = []
    for own in by_vid(events).values():
        kept: list[Event] = []
        for event in own:
            if all(abs(event["time"] - each["time"]) > 4_000_000 for each in kept):
                kept.append(event)
        expected += [(each["vid"], each["n"], timestamps.to_text(each["time"])) for each in kept]
    found = results(world, "once", events, len(expected))
    assert sorted((each["vid"], each["n"], each["time"]) for each in found) == sorted(expected)


def test_a_pattern_that_lasts_is_found_also_when_its_key_falls_silent(world: World) -> None:
    events = events_of(14, 80)
    events += [{"vid": "q", "speed": 1.0, "n": 1, "time": BEGIN_US + 40_000_000}]
    expected = set()
    for vid, own in by_vid(events).items():
        since = None
        for event in [*sorted(own, key=lambda each: each["time"]), None]:
            if since is not None and (event is None or event["time"] >= since + 6_000_000):
                expected.add((vid, since))
                since = None if event is None or event["speed"] >= 20 else -1
            if event is None or event["speed"] >= 20:
                since = None
            elif since is None:
                since = event["time"]
            if since == -1:
                since = 1 << 62
    found = results(world, "stopped", events, len(expected))
    assert {(event["vid"], timestamps.from_text(event["match_start"])) for event in found} == expected


def test_late_and_future_events_are_quarantined_and_counted(world: World) -> None:
    world.start("tumbling")
    in_time = {"vid": "x", "speed": 1.0, "n": 1, "time": BEGIN_US + 30_000_000}
    late = {**in_time, "n": 2, "time": BEGIN_US}
    future = {**in_time, "n": 3, "time": BEGIN_US + 70 * 365 * 86_400_000_000}
    filtered = {**in_time, "n": 4, "speed": -1.0}
    world.append("a", map(wire, [in_time, late, future, filtered]))
    (event,) = world.await_events("tumbling", 1)
    assert (event["c"], event["total"]) == (1, 1)
    refused = world.await_events("tumbling.quarantine", 2)
    reasons = sorted(each["_reason"] for each in refused)
    assert reasons[0].startswith("its time, 2095")
    assert reasons[0].endswith("is more than 300 s ahead of the clock")
    assert reasons[1].startswith("late: its window ended at 2026-01-01T00:00:10Z, and the watermark is ")
    metrics = world.engine.metrics("tumbling")
    assert (metrics["read"], metrics["late"], metrics["filtered"], metrics["quarantined"]) == (4, 1, 1, 2)
    assert metrics["held"] == 0
