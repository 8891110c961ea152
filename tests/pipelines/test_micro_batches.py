"""Operators with state in micro-batches: the laws of real-time mode, held by Python and by the connector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.pipelines import test_stateful as real_time
from tests.pipelines.running import World, until
from tests.pipelines.test_stateful import BEGIN_US, SERVICES, Event, wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-micro-batches"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

Law = Callable[[World], None]


def laws() -> dict[str, Law]:
    """The tests of real-time mode that compare results with a slow oracle; others are about its counts."""
    return {
        name: test
        for name, test in vars(real_time).items()
        if name.startswith("test_")
        and "results" in test.__code__.co_names
        and "metrics" not in test.__code__.co_names
        and test.__code__.co_varnames[: test.__code__.co_argcount] == ("world",)
    }


def evaluated_by_python(services: str) -> str:
    """The services with a filter at their end that lets all pass and has no native form."""
    definitions = yaml.safe_load(services.replace("on: vid", "'on': vid"))  # YAML 1.1 takes it for true
    for service in definitions["services"].values():
        service["pipeline"].append({"filter": "vid MATCH '(V[0-9])+' OR vid <> ''"})
    return yaml.safe_dump(definitions)


@pytest.fixture(params=["plain", "connector"])
def world(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """A batch may take longer than the second after which a stream is idle in real-time mode: here none is."""
    services = SERVICES.replace("idle: 1s", "idle: 1h")
    if request.param == "plain":
        made = World(spark, tmp_path, services, plain=True)
    else:
        made = World(spark, tmp_path, evaluated_by_python(services))
    yield made
    made.close()


DAY_LATER = {"vid": "closing", "time": BEGIN_US + 86_400_000_000}
"""Closes what is open, as silence does in real-time mode. Its own window stays open."""


def results(
    world: World, name: str, events: list[Event], expected: int, other: list[Event] | None = None
) -> list[Event]:
    """Run a service over events with a restart in the middle, as the laws of real-time mode do."""
    half = len(events) // 2
    job = world.start(name)
    assert (job.compiled.plan.mode, job.compiled.plan.stages > 0) == ("micro-batch", True)
    if other is not None:
        world.append("b", map(wire, other[: len(other) // 2]))
    world.append("a", map(wire, events[:half]))
    until(lambda: _read(world, name) >= half, f"{name} to read half")
    world.stop(name)
    world.start(name)
    if other is not None:
        world.append("b", map(wire, [*other[len(other) // 2 :], {**DAY_LATER, "level": 0}]))
    world.append("a", map(wire, [*events[half:], {**DAY_LATER, "speed": 99.0, "n": 0}]))
    until(lambda: len(_without_closing(world, name)) >= expected, f"{expected} events of {name}")
    return _without_closing(world, name)


def _read(world: World, name: str) -> int:
    assert (problem := world.jobs[name].failure()) is None, problem
    read: int = world.engine.metrics(name)["read"]
    return read


def _without_closing(world: World, name: str) -> list[Event]:
    assert (problem := world.jobs[name].failure()) is None, problem
    return [event for event in world.events(name) if event["vid"] != DAY_LATER["vid"]]


@pytest.mark.parametrize("law", laws())
def test_operator_keeps_the_law_of_real_time_mode(world: World, law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_time, "results", results)  # the one of real-time mode asserts the mode
    laws()[law](world)


@pytest.mark.parametrize("plain", [True, False])
def test_windows_close_in_silence_and_late_and_future_events_are_quarantined(
    spark: SparkSession, tmp_path: Path, plain: bool
) -> None:
    world = World(spark, tmp_path, SERVICES if plain else evaluated_by_python(SERVICES), plain=plain)
    try:
        assert world.start("tumbling").compiled.plan.mode == "micro-batch"
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
        assert reasons[1].startswith("late: its window ended at 2026-01-01T00:00:10Z, and the watermark is ")
        assert world.engine.metrics("tumbling")["quarantined"] == 2
    finally:
        world.close()
