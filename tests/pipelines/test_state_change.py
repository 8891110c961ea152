"""New versions of services with state, on real Spark: which of them go on with the state of the version before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines.running import World, until
from tidegate.model import timestamps
from tidegate.services import loads, stream_schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-stateful")]

STREAMS = """
streams:
  a: {schema: {vid: string, n: int64, time: timestamp}, event_time: time, key: vid}
  b: {schema: {vid: string, n: int64, time: timestamp}, event_time: time, key: vid}
"""
SHORTEST_EPOCH = "spark.sql.streaming.realTimeMode.minBatchDuration"
FIRST = "{from: a, idle: never, pipeline: [{aggregate: {count: c, sum: {n: total}, by: [vid], window: {length: 10s}}}]}"


def event(second: float, n: int = 1, vid: str = "x") -> dict[str, Any]:
    return {"vid": vid, "n": n, "time": timestamps.to_text(1_767_225_600_000_000 + round(second * 1e6))}


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr("tidegate.pipelines.engine.STATEFUL_EPOCH", "1 second")
    spark.conf.set(SHORTEST_EPOCH, "1000")
    made = World(spark, tmp_path, f"{STREAMS}services: {{out: {FIRST}}}")
    yield made
    made.close()
    spark.conf.unset(SHORTEST_EPOCH)


def begin_window(world: World) -> None:
    """Let version 1 read events of a window that is still open, and stop it."""
    world.start("out")
    world.append("a", [event(1, 5), event(2, 7), event(3, 11, "y")])
    stop_when_saved(world, 3)


def stop_when_saved(world: World, held: int) -> None:
    """Stop the service when the checkpoint has its events, so that it does not read them again."""
    until(lambda: world.engine.metrics("out")["held"] == held, f"{held} events in an open window")
    commits = world.engine.checkpoints.main("out", 1) / "commits"
    # The batch that is committed next may have ended before the events came.
    before = newest(commits)
    until(lambda: newest(commits) >= before + 2, "a commit of the state")
    world.stop("out")


def newest(commits: Path) -> int:
    return max((int(each.name) for each in commits.glob("[0-9]*")), default=-1)


def change(world: World, service: str, version: int = 2) -> None:
    """Start another version."""
    world.definitions = loads(f"{STREAMS}services: {{out: {service}}}")
    world.schemas = stream_schemas(world.definitions)
    world.start("out", version)


def aggregate(settings: str, rest: str = "from: a", before: str = "", after: str = "") -> str:
    return f"{{{rest}, idle: never, pipeline: [{before}{{aggregate: {{{settings}}}}}{after}]}}"


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        pytest.param(
            aggregate("count: c, sum: {n: total}, by: [vid], window: {length: 10s}", before='{filter: "n < 100"}, '),
            {"x": {"c": 3, "total": 25}, "y": {"c": 1, "total": 11}},
            id="a filter before",
        ),
        pytest.param(
            aggregate("count: c, sum: {n: total}, by: [vid], window: {length: 10s}, having: c > 1"),
            {"x": {"c": 3, "total": 25}},
            id="having",
        ),
        pytest.param(
            aggregate("count: c, sum: {n: total}, max: {n: top}, by: [vid], window: {length: 10s}"),
            {"x": {"c": 3, "total": 25, "top": 13}, "y": {"c": 1, "total": 11, "top": None}},
            id="another aggregate",
        ),
        pytest.param(
            aggregate("sum: {n: sum}, by: [vid], window: {length: 10s}"),
            {"x": {"sum": 25}, "y": {"sum": 11}},
            id="fewer aggregates, and another name",
        ),
        pytest.param(
            aggregate("count: c, by: [vid], window: {length: 10s}", after=', {project: {vid: vid, twice: "c * 2"}}'),
            {"x": {"twice": 6}, "y": {"twice": 2}},
            id="a projection after",
        ),
        pytest.param(
            aggregate("count: c, by: [vid], window: {length: 10s, lateness: 5s}"),
            {"x": {"c": 3}, "y": {"c": 1}},
            id="more lateness",
        ),
    ],
)
def test_new_version_goes_on_with_open_windows(
    world: World, service: str, expected: dict[str, dict[str, int | None]]
) -> None:
    begin_window(world)
    change(world, service)
    world.append("a", [event(4, 13), event(30)])
    found = world.await_events("out", len(expected))
    assert {each["vid"]: {name: each.get(name) for name in expected[each["vid"]]} for each in found} == expected
    assert len(found) == len(expected)


def test_new_version_with_another_input_goes_on_with_open_windows(world: World) -> None:
    begin_window(world)
    world.append("b", [event(2, 100)])
    settings = "count: c, sum: {n: total}, by: [vid], window: {length: 10s}"
    change(world, aggregate(settings, rest="from: [b, a]", before="merge, "))
    world.append("b", [event(4, 1000), event(30)])
    world.append("a", [event(5, 13), event(30)])
    found = world.await_events("out", 2)
    assert {each["vid"]: each["total"] for each in found} == {"x": 1025, "y": 11}, "b is read from now on"


def test_new_version_that_lost_an_input_goes_on_with_open_windows(world: World) -> None:
    settings = "count: c, by: [vid], window: {length: 10s}"
    both = aggregate(settings, rest="from: [a, b]", before="merge, ")
    world.definitions = loads(f"{STREAMS}services: {{out: {both}}}")
    world.append("b", [])
    world.start("out")
    world.append("b", [event(2)])
    world.append("a", [event(3)])
    stop_when_saved(world, 2)
    change(world, aggregate(settings))
    world.append("a", [event(4), event(30)])
    (found,) = world.await_events("out", 1)
    assert found["c"] == 3


def test_state_with_another_window_starts_anew_where_the_version_before_ended(world: World) -> None:
    begin_window(world)
    change(world, aggregate("count: c, by: [vid], window: {length: 20s}"))
    world.append("a", [event(4), event(30)])
    (found,) = world.await_events("out", 1)
    assert (found["vid"], found["c"]) == ("x", 1)


def test_third_version_goes_on_with_the_state_that_the_first_began(world: World) -> None:
    begin_window(world)
    settings = "count: c, by: [vid], window: {length: 10s}"
    change(world, aggregate(settings))
    world.stop("out")
    change(world, aggregate(settings, before='{filter: "n < 100"}, '), version=3)
    world.append("a", [event(4), event(30)])
    found = world.await_events("out", 2)
    assert {each["vid"]: each["c"] for each in found} == {"x": 3, "y": 1}
