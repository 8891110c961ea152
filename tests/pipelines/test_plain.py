"""Services without the connector: the laws of the engine, and the behaviour of the Python parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipelines.running import World, until
from tests.pipelines.test_engine import (  # noqa: F401 - laws that hold here too
    MADE,
    STREAMS,
    gps,
    moment,
    test_filtered_events_are_not_read_again,
    test_late_started_service_gets_all_events_since_it_was_applied,
    test_merged_filtered_judged_masked,
    test_service_with_on_violation_fail_reports_the_reason,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[MADE]:
    made: list[World] = []

    def make(services: str) -> World:
        made.append(World(spark, tmp_path, STREAMS + services, plain=True))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_updates_of_a_window_after_a_restart(world: MADE) -> None:
    here = world(
        """
services:
  flow:
    from: a
    pipeline: [{aggregate: {count: n, by: [vid], window: {length: 60s, slide: 30s}, emit: updates}}]
"""
    )
    job = here.start("flow")
    assert (job.compiled.plan.mode, job.compiled.plan.output) == ("micro-batch", "update")
    here.append("a", [*(gps(n, second=10) for n in range(30)), b"{nonsense"])
    here.await_events("flow", 60)
    here.await_events("flow.quarantine", 1)
    here.stop("flow")
    here.append("a", [gps(n, second=11) for n in range(30)])
    here.start("flow")
    events = here.await_events("flow", 120)
    ids = [e["_id"] for e in events]
    assert len(ids) == len(set(ids))
    assert sorted((e["vid"], e["window_end"], e["n"]) for e in events) == [
        (f"V{k}", moment(end), n) for k in range(3) for end in (30, 60) for n in range(1, 21)
    ]
    assert len(here.events("flow.quarantine")) == 1
    found = here.engine.metrics("flow")
    assert (found["written"], found["quarantined"]) == (len(ids), 1)
    assert found["read"] >= 61, "a batch that was stopped before it was committed is read again"
    assert found["latency_ms"]["p50"] > 0
    assert sum(found["latency_counts"]) == sum(found["processing_counts"]) == found["written"]
    assert found["latency_micros"] >= found["processing_micros"]
    assert found["latency_micros"] > 0


def test_failure_of_a_custom_function_names_its_columns(world: MADE) -> None:
    here = world(
        """
services:
  other:
    from: a
    pipeline: [{custom: {function: "tests.pipelines.functions:unrelated", schema: {vid: string?, n: int64?}}}]
"""
    )
    job = here.begin("other")
    here.append("a", [gps(1)])
    until(lambda: job.failure() is not None, "the service to fail")
    assert job.failure() == (
        "ServiceError: custom function 'tests.pipelines.functions:unrelated' gave a batch without 'vid'; "
        "it has other, another, and its schema vid, n"
    )


def test_state_of_another_mode_is_discarded_and_reading_continues(spark: SparkSession, tmp_path: Path) -> None:
    text = STREAMS + "services: {ever: {from: a, pipeline: [{incremental: {count: n}}]}}"
    for plain in (False, True):
        here = World(spark, tmp_path, text, plain=plain)
        try:
            here.start("ever", backfill=True)
            here.append("a", [gps(1)])
            events = here.await_events("ever", 1 + plain)
        finally:
            pause(here)
    assert [e["n"] for e in events] == [1, 1]


BOTH = """
services:
  gps:
    from: [a, b]
    pipeline: [merge, {filter: "speed <> 13"}]
    constraints: {speed: ">= 0"}
"""
FLOW = """
services:
  flow: {from: a, idle: never, pipeline: [{aggregate: {count: n, by: [vid], window: {length: 10s}}}]}
"""


def test_windows_have_the_same_ids_and_values_in_either_mode(spark: SparkSession, tmp_path: Path) -> None:
    found = []
    for plain in (False, True):
        here = World(spark, tmp_path / str(plain), STREAMS + FLOW, plain=plain)
        try:
            here.start("flow")
            here.append("a", [gps(n, second=n % 10) for n in range(30)])
            here.append("a", [gps(2, second=11, vid='"Ü\\\u0001'), gps(3, second=25)])
            here.append("a", [gps(4, second=45)])
            events = here.await_events("flow", 5)
        finally:
            pause(here)
        found.append(sorted((e["_id"], e["vid"], e["n"], e["window_end"]) for e in events))
    assert found[0] == found[1]
    assert len(found[0]) == 5


def test_each_implementation_resumes_where_the_other_ended(spark: SparkSession, tmp_path: Path) -> None:
    for turn, plain in enumerate((False, True, False)):
        here = World(spark, tmp_path, STREAMS + BOTH, plain=plain)
        try:
            second = 100.0 * turn
            here.append("a", [gps(n, second) for n in (1, 13)])  # while nobody reads
            here.start("gps")
            odd = gps(2, second, vid='"Ü\\\u0001', _id='my "own" \\ \u0007 id', _themes=["x"])
            here.append("a", [odd, gps(3, second + 11), gps(4, second, speed=-1.0)])
            here.append("b", [b'{"vid": "\xff"}', gps(5, second)])
            here.await_events("gps", 3 + 4 * turn)
            here.await_events("gps.quarantine", 2 + 2 * turn)
        finally:
            pause(here)
    assert [len(each) for each in turns(tmp_path / "log", "gps", "a.0", 2)] == [2, 3, 3]
    first, second_, third = turns(tmp_path / "log", "gps", "a.0", 2)
    assert first == second_[1:] == third[1:], "the same bytes"
    for stream, partition in (("gps", "b.0"), ("gps.quarantine", "a.0"), ("gps.quarantine", "b.0")):
        first, second_, third = turns(tmp_path / "log", stream, partition, 1)
        assert first == second_ == third


def pause(here: World) -> None:
    """Stop all services; a later start resumes them."""
    for name in list(here.jobs):
        here.stop(name)
    here.log.close()


def turns(log: Path, stream: str, partition: str, first: int) -> list[list[bytes]]:
    """The lines of a partition by turns, without what differs: positions and times."""
    data = (log / stream / partition / f"{0:020d}.log").read_bytes()
    lines = re.sub(rb"([ab][/:]0:)[0-9]+|[-0-9]+T[:.0-9]+Z", rb"\1", data).splitlines()
    later = (len(lines) - first) // 2
    return [lines[:first], lines[first : first + later], lines[first + later :]]
