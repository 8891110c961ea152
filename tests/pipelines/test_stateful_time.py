"""Silence, late events and events from the future: what the watermark of the state engine does, on real Spark."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines.running import World, until
from tests.pipelines.test_stateful import balance, short_epochs
from tidegate.model import timestamps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["short_epochs"]

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

BEGIN_US = 1_711_670_400_000_000
SECOND = 1_000_000

SERVICES = """
streams:
  a: {schema: {vid: string, speed: float64, n: int64, time: timestamp}, event_time: time, key: vid}
services:
  tumbling:
    from: a
    idle: IDLE
    on_late: LATE
    pipeline:
      - filter: "speed >= 0"
      - aggregate: {of: [{count: c}, {sum: {n: total}}], by: [vid], window: {length: 10s, lateness: 5s}}
  sketches:
    from: a
    idle: never
    pipeline:
      - aggregate:
          of: [{approx_distinct: {n: kinds}}, {percentile: {speed: {low: 0.1, high: 0.99}}}]
          by: [vid]
          window: {length: 1d}
  stopped:
    from: a
    idle: IDLE
    pipeline: [{pattern: {by: [vid], steps: [{slow: "speed < 20", for: 6s}]}}]
  quiet:
    from: a
    idle: IDLE
    pipeline: [{pattern: {by: [vid], steps: [{seen: any}, {absent: any, for: 10m}]}}]
"""

Event = dict[str, Any]


def event(n: int, at_s: float, speed: float = 1.0, vid: str = "x") -> Event:
    return {"vid": vid, "speed": speed, "n": n, "time": timestamps.to_text(BEGIN_US + round(at_s * SECOND))}


def settled(world: World, name: str) -> dict[str, Any]:
    """The counts of a service that has dealt with all that it was given."""
    until(lambda: balance(world.engine.metrics(name)) == 0, f"the counts of {name} to add up")
    return world.engine.metrics(name)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    settings = {"IDLE": "never", "LATE": "quarantine", **getattr(request, "param", {})}
    text = SERVICES
    for name, value in settings.items():
        text = text.replace(name, value)
    made = World(spark, tmp_path, text)
    yield made
    made.close()


@pytest.mark.parametrize("world", [{"IDLE": "8s"}], indirect=True, ids=[""])
@pytest.mark.usefixtures("short_epochs")
def test_silent_stream_closes_windows_also_if_idle_is_longer_than_an_epoch(world: World) -> None:
    world.append("a", [event(1, 0), event(2, 3), event(3, 1, vid="y")])
    for name in ("tumbling", "stopped", "quiet"):  # before, a slow start would be a silence of its own
        world.start(name, backfill=True)
    closed = world.await_events("tumbling", 2)
    assert sorted((each["vid"], each["c"], each["total"]) for each in closed) == [("x", 2, 3), ("y", 1, 3)]
    stopped = world.await_events("stopped", 2)
    assert sorted((each["vid"], len(each["slow"])) for each in stopped) == [("x", 2), ("y", 1)]
    quiet = world.await_events("quiet", 2)
    assert sorted((each["vid"], each["seen"]["n"], each["match_end"]) for each in quiet) == [
        ("x", 2, "2024-03-29T00:10:03.000000Z"),
        ("y", 3, "2024-03-29T00:10:01.000000Z"),
    ]


def test_late_and_future_events_are_quarantined_and_counted(world: World) -> None:
    world.start("tumbling")
    future = event(3, 200 * 365 * 86_400)
    world.append("a", [event(1, 30), event(2, 0), future, event(4, 30, speed=-1.0), event(5, 60)])
    (closed,) = world.await_events("tumbling", 1)
    assert (closed["c"], closed["total"]) == (1, 1)
    reasons = sorted(each["_reason"] for each in world.await_events("tumbling.quarantine", 2))
    assert reasons[0].startswith("its time, 2224")
    assert reasons[0].endswith("is more than 300 s ahead of the clock")
    assert reasons[1] == ("late: its window ended at 2024-03-29T00:00:10Z, and the watermark is 2024-03-29T00:00:30Z")
    metrics = settled(world, "tumbling")
    names = ("read", "late", "filtered", "quarantined", "used", "results", "held", "written")
    assert {name: metrics[name] for name in names} == {
        "read": 5, "late": 1, "filtered": 1, "quarantined": 2, "used": 1, "results": 1, "held": 1, "written": 1
    }  # fmt: skip


@pytest.mark.parametrize("world", [{"LATE": "drop"}], indirect=True, ids=[""])
def test_dropped_late_events_are_counted(world: World) -> None:
    world.start("tumbling")
    world.append("a", [event(1, 30), event(2, 0), event(3, 60)])
    world.await_events("tumbling", 1)
    metrics = settled(world, "tumbling")
    assert (metrics["late"], metrics["dropped"], metrics["quarantined"], metrics["held"]) == (1, 1, 0, 1)
    assert world.events("tumbling.quarantine") == []


def test_pattern_refuses_what_came_too_late(world: World) -> None:
    world.start("stopped")
    world.append("a", [event(1, 0, 50), event(2, 10, 1), event(3, 20, 1), event(4, 15, 50), event(5, 30, 50)])
    (match,) = world.await_events("stopped", 1)
    assert [each["n"] for each in match["slow"]] == [2]
    (refused,) = world.await_events("stopped.quarantine", 1)
    assert refused["_reason"].startswith("late: its time is 2024-03-29T00:00:15Z")


def test_sketches_of_many_values_stay_within_their_promise(world: World) -> None:
    rng = random.Random(7)
    values = [event(rng.randrange(3_000), n / 10, rng.gauss(50, 15)) for n in range(20_000)]
    world.start("sketches")
    world.append("a", [*values, event(0, 2 * 86_400)])
    (found,) = world.await_events("sketches", 1)
    kinds = len({each["n"] for each in values})
    assert abs(found["kinds"] - kinds) <= 0.04 * kinds
    speeds = sorted(each["speed"] for each in values)
    for name, share in (("low", 0.1), ("high", 0.99)):
        assert abs(bisect(speeds, found[name]) / len(speeds) - share) <= 0.014


def test_events_that_are_held_are_known_after_a_restart(world: World) -> None:
    world.start("tumbling")
    world.append("a", [event(1, 0), event(2, 1), event(3, 2)])
    until(lambda: world.engine.metrics("tumbling")["held"] == 3, "three events to be held")
    world.stop("tumbling")
    world.start("tumbling")
    world.append("a", [event(4, 3)])
    until(lambda: world.engine.metrics("tumbling")["held"] == 4, "four events to be held")
    metrics = world.engine.metrics("tumbling")
    assert metrics["read"] + metrics["restored"] == 4
