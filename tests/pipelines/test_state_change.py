"""New versions of services with state, on real Spark: which of them keep the state."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines.running import World, until
from tidegate.errors import EnvironmentProblem
from tidegate.model import timestamps
from tidegate.pipelines.state_snapshots import StateSnapshots
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
def session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """A session in which states are committed every second."""
    monkeypatch.setattr("tidegate.pipelines.engine.STATEFUL_EPOCH", "1 second")
    spark.conf.set(SHORTEST_EPOCH, "1000")
    yield spark
    spark.conf.unset(SHORTEST_EPOCH)


@pytest.fixture
def world(session: SparkSession, tmp_path: Path) -> Iterator[World]:
    made = World(session, tmp_path, f"{STREAMS}services: {{out: {FIRST}}}")
    yield made
    made.close()


def begin_window(world: World) -> None:
    """Run version 1 until it has read events of an open window, and stop it."""
    world.start("out")
    world.append("a", [event(1, 5), event(2, 7), event(3, 11, "y")])
    stop_when_saved(world, 3)


def stop_when_saved(world: World, held: int, name: str = "out") -> None:
    """Stop the service when the checkpoint has its events, so that it does not read them again."""
    until(lambda: world.engine.metrics(name)["held"] == held, f"{held} events in an open window")
    commits = Path(world.engine.checkpoints.main(name, 1)) / "commits"
    # The batch that is committed next may have ended before the events came.
    before = newest(commits)
    until(lambda: newest(commits) >= before + 2, "a commit of the state")
    world.stop(name)


def newest(commits: Path) -> int:
    return max((int(each.name) for each in commits.glob("[0-9]*")), default=-1)


def change(world: World, service: str, version: int = 2) -> None:
    """Start another version."""
    world.definitions = loads(f"{STREAMS}services: {{out: {service}}}")
    world.schemas = stream_schemas(world.definitions)
    world.start("out", version)


def aggregate(settings: str, rest: str = "from: a", before: str = "", after: str = "") -> str:
    return f"{{{rest}, idle: never, pipeline: [{before}{{aggregate: {{{settings}}}}}{after}]}}"


Results = dict[str, dict[str, int | None]]

CHANGES: dict[str, tuple[str, Results]] = {
    "filtered": (
        aggregate("count: c, sum: {n: total}, by: [vid], window: {length: 10s}", before='{filter: "n < 100"}, '),
        {"x": {"c": 3, "total": 25}, "y": {"c": 1, "total": 11}},
    ),
    "having": (
        aggregate("count: c, sum: {n: total}, by: [vid], window: {length: 10s}, having: c > 1"),
        {"x": {"c": 3, "total": 25}},
    ),
    "another_aggregate": (
        aggregate("count: c, sum: {n: total}, max: {n: top}, by: [vid], window: {length: 10s}"),
        {"x": {"c": 3, "total": 25, "top": 13}, "y": {"c": 1, "total": 11, "top": None}},
    ),
    "fewer_aggregates": (
        aggregate("sum: {n: sum}, by: [vid], window: {length: 10s}"),
        {"x": {"sum": 25}, "y": {"sum": 11}},
    ),
    "projected": (
        aggregate("count: c, by: [vid], window: {length: 10s}", after=', {project: {vid: vid, twice: "c * 2"}}'),
        {"x": {"twice": 6}, "y": {"twice": 2}},
    ),
    "later": (
        aggregate("count: c, by: [vid], window: {length: 10s, lateness: 5s}"),
        {"x": {"c": 3}, "y": {"c": 1}},
    ),
}
"""By name of a service: its second version, and what the windows hold that the first version left open."""


def test_new_versions_go_on_with_open_windows(session: SparkSession, tmp_path: Path) -> None:
    world = World(session, tmp_path, f"{STREAMS}services: {{{', '.join(f'{name}: {FIRST}' for name in CHANGES)}}}")
    try:
        for name in CHANGES:
            world.start(name)
        world.append("a", [event(1, 5), event(2, 7), event(3, 11, "y")])
        for name in CHANGES:
            stop_when_saved(world, 3, name)
        changed = ", ".join(f"{name}: {service}" for name, (service, _) in CHANGES.items())
        world.definitions = loads(f"{STREAMS}services: {{{changed}}}")
        world.schemas = stream_schemas(world.definitions)
        for name in CHANGES:
            world.start(name, 2)
        # The window ends, and is closed by an event that lies behind the lateness, not far beyond it.
        world.append("a", [event(4, 13), event(11), event(15.5)])
        for name, (_, expected) in CHANGES.items():
            found = world.await_events(name, len(expected))
            assert {each["vid"]: {key: each.get(key) for key in expected[each["vid"]]} for each in found} == expected
            assert len(found) == len(expected)
    finally:
        world.close()


def test_new_version_with_another_input_keeps_open_windows(world: World) -> None:
    begin_window(world)
    world.append("b", [event(2, 100)])
    settings = "count: c, sum: {n: total}, by: [vid], window: {length: 10s}"
    change(world, aggregate(settings, rest="from: [b, a]", before="merge, "))
    world.append("b", [event(4, 1000), event(30)])
    world.append("a", [event(5, 13), event(30)])
    found = world.await_events("out", 2)
    assert {each["vid"]: each["total"] for each in found} == {"x": 1025, "y": 11}, "b is read from now on"


def test_new_version_without_an_input_keeps_open_windows(world: World) -> None:
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


def test_changed_window_starts_with_an_empty_state_where_the_previous_version_ended(world: World) -> None:
    begin_window(world)
    change(world, aggregate("count: c, by: [vid], window: {length: 20s}"))
    world.append("a", [event(4), event(30)])
    (found,) = world.await_events("out", 1)
    assert (found["vid"], found["c"]) == ("x", 1)


def test_third_version_keeps_the_state_of_the_first(world: World) -> None:
    begin_window(world)
    settings = "count: c, by: [vid], window: {length: 10s}"
    change(world, aggregate(settings))
    world.stop("out")
    change(world, aggregate(settings, before='{filter: "n < 100"}, '), version=3)
    world.append("a", [event(4), event(30)])
    found = world.await_events("out", 2)
    assert {each["vid"]: each["c"] for each in found} == {"x": 3, "y": 1}


def test_watermark_is_known_after_a_restart_in_silence(world: World) -> None:
    begin_window(world)
    world.start("out")
    found = until(lambda: world.engine.metrics("out")["watermarks"], "the watermark")
    assert found["stage1/0"] == timestamps.from_text(event(3)["time"])


def test_state_goes_on_in_micro_batches_and_back_in_real_time(world: World) -> None:
    begin_window(world)
    settings = "count: c, by: [vid], window: {length: 10s}"
    change(world, aggregate(settings, before="{filter: \"vid MATCH '(x|y)+'\"}, "))
    modes = [world.jobs["out"].compiled.plan.mode]
    world.append("a", [event(4), event(5, vid="z")])
    stop_when_saved(world, 4)
    change(world, aggregate(settings), version=3)
    modes.append(world.jobs["out"].compiled.plan.mode)
    assert modes == ["micro-batch", "real-time"]
    world.append("a", [event(6, vid="y"), event(30)])
    found = world.await_events("out", 2)
    assert {each["vid"]: each["c"] for each in found} == {"x": 3, "y": 2}


def test_state_continues_in_a_moved_folder(world: World, session: SparkSession, tmp_path: Path) -> None:
    begin_window(world)
    world.log.close()
    shutil.copytree(tmp_path, tmp_path / "moved", ignore=shutil.ignore_patterns("moved"))
    shutil.rmtree(tmp_path / "checkpoints")
    moved = World(session, tmp_path / "moved", f"{STREAMS}services: {{out: {FIRST}}}")
    try:
        moved.start("out")
        moved.append("a", [event(30)])
        found = moved.await_events("out", 2)
        assert {each["vid"]: each["c"] for each in found} == {"x": 2, "y": 1}
    finally:
        moved.close()


NOW = datetime(2026, 11, 18, tzinfo=UTC)


def test_upgrade_that_lost_the_state_is_undone_by_a_snapshot(world: World, tmp_path: Path) -> None:
    snapshots = StateSnapshots(tmp_path / "states", tmp_path / "checkpoints")
    world.start("out")
    world.append("a", [event(1, 5), event(2, 7)])
    stop_when_saved(world, 2)
    world.start("out")
    snapshot = snapshots.save("out", "before", NOW)  # while it runs
    assert (snapshot.version, snapshots.list()) == (1, [snapshot])
    world.stop("out")
    change(world, aggregate("count: c, by: [vid], window: {length: 20s}"))
    world.append("a", [event(3, 9)])
    until(lambda: world.engine.metrics("out")["held"] == 1, "the event in the new window")
    world.stop("out")
    snapshots.restore("out", "before")
    change(world, FIRST, version=3)
    world.append("a", [event(30)])
    (found,) = world.await_events("out", 1)
    assert (found["c"], found["total"]) == (3, 21)


def test_snapshot_needs_a_state_and_a_free_name(world: World, tmp_path: Path) -> None:
    snapshots = StateSnapshots(tmp_path / "states", tmp_path / "checkpoints")
    with pytest.raises(EnvironmentProblem, match="service 'out' has not run here: it has no state to save"):
        snapshots.save("out", "before", NOW)
    begin_window(world)
    snapshots.save("out", "before", NOW)
    with pytest.raises(EnvironmentProblem, match="service 'out' has a snapshot 'before'; choose another name"):
        snapshots.save("out", "before", NOW)
    with pytest.raises(EnvironmentProblem, match=r"the name '../x' can't be used: expected up to 64 of"):
        snapshots.save("out", "../x", NOW)
    with pytest.raises(EnvironmentProblem, match="service 'out' has no snapshot 'befor'; did you mean 'before'"):
        snapshots.restore("out", "befor")
    with pytest.raises(EnvironmentProblem, match="service 'other' has no snapshot 'x': it has none"):
        snapshots.restore("other", "x")
