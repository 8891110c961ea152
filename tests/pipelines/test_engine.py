"""Services on real Spark and the real log: their output, and resuming where they ended."""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines.running import KEY, World, until
from tidegate.errors import ServiceError
from tidegate.gateway.quarantine import QuarantineQuery, ReplayEntry, ReplayMarks, ReplayPlanner, Subject, read_page
from tidegate.model import timestamps
from tidegate.services.quality import LATENCY_BOUNDS_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

STREAMS = """
streams:
  a: {schema: &gps {vid: string, speed: float64, time: timestamp}, event_time: time, key: vid}
  b: {schema: *gps, event_time: time, key: vid}
"""

MADE = Callable[[str], World]


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[MADE]:
    made: list[World] = []

    def make(services: str) -> World:
        made.append(World(spark, tmp_path, STREAMS + services))
        return made[-1]

    yield make
    for each in made:
        each.close()


def moment(second: float) -> str:
    return timestamps.to_text(round((1_767_225_600 + second) * 1e6))


def gps(n: int, second: float | None = None, **changes: Any) -> dict[str, Any]:
    return {"vid": f"V{n % 3}", "speed": float(n), "time": moment(n if second is None else second), **changes}


MERGED = """
services:
  gps:
    from: [a, b]
    pipeline: [merge, {filter: "speed <> 13"}]
    constraints: {speed: ">= 0"}
    mask: {vid: hmac}
"""


def hashed_id(text: str) -> str:
    """The id that a service with masks gives an event whose record has an id of its own."""
    return hmac.new(KEY, f"id:{text}".encode(), hashlib.sha256).hexdigest()


def test_merged_filtered_judged_masked(world: MADE) -> None:
    here = world(MERGED)
    job = here.start("gps")
    assert job.compiled.plan.mode == here.best_mode
    here.append("a", [gps(n) for n in range(20)])
    here.append(
        "b", [gps(20), gps(21, speed=-1.0), b'{"vid": "V9", "speed": "fast"}', b"{nonsense", gps(22, _id="mine")]
    )
    events = here.await_events("gps", 21)
    assert [e["speed"] for e in events if e["_src"].startswith("a/")] == [float(n) for n in range(20) if n != 13]
    assert [e["speed"] for e in events if e["_src"].startswith("b/")] == [20.0, 22.0]
    assert {e["vid"] for e in events} == {hmac.new(KEY, f"V{n}".encode(), hashlib.sha256).hexdigest() for n in range(3)}
    assert events[0] == {
        "_id": "a:0:0", "_src": "a/0:0", "_time": moment(0), "vid": events[0]["vid"], "speed": 0.0, "time": moment(0)
    }  # fmt: skip
    assert events[-1]["_id"] == hashed_id("mine"), "whatever a producer puts into an id, a mask may have to hide"
    refused = here.await_events("gps.quarantine", 3)
    assert [each["_reason"] for each in refused] == [
        "speed: -1.0 violates speed >= 0",
        "speed: expected float64, not a hidden value",
        "expected a JSON object, not a hidden value",
    ]
    assert "_raw" not in refused[1], "a text that could not be masked has left Spark"
    assert refused[0]["vid"] == events[0]["vid"]

    # Sent again: the records that were refused, with all that the mask hides, corrected.
    found = read_page(here.log, "gps.quarantine", QuarantineQuery())
    subject = Subject(here.definitions.services["gps"])
    planner = ReplayPlanner(here.log, here.definitions, subject, ReplayMarks(here.log))
    plan = planner.plan(
        [ReplayEntry(str(each.position), patch={"speed": 50.0, "time": moment(50)}) for each in found.events]
    )
    assert [(each.result, each.stream) for each in plan.outcomes] == [("replayed", "b")] * 2 + [("refused", None)]
    here.append("b", plan.bodies["b"])
    again = here.await_events("gps", 23)[-2:]
    assert [each["_id"] for each in again] == [hashed_id(each) for each in plan.ids("b")]
    assert [each["speed"] for each in again] == [50.0, 50.0]
    assert again[0]["vid"] == refused[0]["vid"], "the mask hides the same value"


def test_stateless_service_resumes_at_the_end_of_its_output(world: MADE) -> None:
    here = world(MERGED)
    here.start("gps")
    here.append("a", [gps(n) for n in range(1, 6)])
    here.await_events("gps", 5)
    here.stop("gps")
    here.append("a", [gps(n) for n in range(6, 10)])
    here.append("b", [gps(30)])
    here.start("gps")
    here.append("a", [gps(10)])
    events = here.await_events("gps", 11)
    assert [e["speed"] for e in events if e["_src"].startswith("a/")] == [float(n) for n in range(1, 11)]
    assert len(events) == 11


def test_filtered_events_are_not_read_again(world: MADE, tmp_path: Path) -> None:
    here = world(MERGED)
    here.start("gps")
    here.append("a", [gps(n, speed=13.0) for n in range(50)])
    end = here.log.end("a").offsets["0"]
    mark = tmp_path / "log" / "gps" / "a.0" / "mark"
    until(lambda: mark.exists() and int(mark.read_text().split()[0]) == end, "the mark to follow")
    here.stop("gps")
    job = here.start("gps")
    here.append("a", [gps(1)])
    here.await_events("gps", 1)
    found = here.engine.metrics("gps")
    assert found["reached"]["a/0"] > end
    counts = found["latency_counts"]
    assert (sum(counts), len(counts)) == (found["written"], len(LATENCY_BOUNDS_S) + 1)
    assert found["latency_micros"] > 0
    assert job.failure() is None


@pytest.mark.parametrize("lost", ["source", "output"])
def test_lost_end_of_a_stream_skips_no_event(lost: str, world: MADE, tmp_path: Path) -> None:
    here = world("services: {each: {from: a, pipeline: [{filter: speed >= 0}]}}")
    here.start("each")
    here.append("a", [gps(n) for n in range(50)])
    here.await_events("each", 50)
    mark = tmp_path / "log" / "each" / "a.0" / "mark"
    end = here.log.end("a").offsets["0"]
    until(lambda: mark.exists() and int(mark.read_text().split()[0]) == end, "the mark to follow")
    here.stop("each")
    here.log.close()
    folder = tmp_path / "log" / ("a/0" if lost == "source" else "each/a.0")
    (segment,) = folder.glob("*.log")
    os.truncate(segment, segment.stat().st_size - 300)
    here.append("a", [gps(n) for n in range(50, 60)])
    here.start("each")
    here.append("a", [gps(60)])
    speeds = [event["speed"] for event in here.await_events("each", 61)]
    assert speeds == [float(n) for n in range(61)], "nothing is lost of what services have read, or of the output"


def test_latency_includes_the_wait_in_the_log_and_processing_does_not(world: MADE) -> None:
    here = world(
        """
services:
  moving: {from: a, pipeline: [{filter: speed >= 0}]}
  counted:
    from: a
    pipeline: [{aggregate: {count: n, by: [vid], window: {length: 60s, slide: 30s}, emit: updates}}]
"""
    )
    for name in ("moving", "counted"):
        here.start(name)
        here.append("a", [gps(0)])
        here.await_events(name, 1)
        here.stop(name)
        before = here.engine.metrics(name)
        here.append("a", [gps(n) for n in range(1, 6)])
        written = len(here.events(name))
        appended = time.time()
        until(lambda now=appended: time.time() - now >= 1.5, "the events to wait")  # type: ignore[misc]
        here.start(name)
        here.await_events(name, written + 5)
        until(lambda name=name, before=before: _late_by(here, name, before) >= 5 * 1.5, f"latencies of {name}")  # type: ignore[misc]
        found = here.engine.metrics(name)
        assert sum(found["processing_counts"]) == sum(found["latency_counts"]) >= 6
        here.stop(name)


def _late_by(here: World, name: str, before: Mapping[str, Any]) -> float:
    """The seconds that events waited to be read."""
    now = here.engine.metrics(name)
    waits: list[int] = [each["latency_micros"] - each["processing_micros"] for each in (before, now)]
    return (waits[1] - waits[0]) / 1e6


def test_new_service_begins_now_and_with_backfill_at_the_beginning(world: MADE) -> None:
    here = world("services: {slow: {from: a, pipeline: [{filter: speed < 50}]}}")
    here.append("a", [gps(n) for n in range(10)])
    here.start("slow")
    here.append("a", [gps(10)])
    assert [e["speed"] for e in here.await_events("slow", 1)] == [10.0]
    here.stop("slow")
    generation = here.log.end("slow").generation
    here.start("slow", version=2, backfill=True)
    assert [e["speed"] for e in here.await_events("slow", 11)] == [float(n) for n in range(11)]
    assert here.log.end("slow").generation != generation, "old cursors would point into another output"


def test_late_started_service_gets_all_events_since_it_was_applied(world: MADE) -> None:
    here = world("services: {both: {from: [a, b], pipeline: [merge]}, on: {from: both}}")
    here.append("a", [gps(n) for n in range(10)])
    begins, begins_on = here.ends("both"), here.ends("on")
    assert begins_on["both"].cursor == "", "its input is not there yet"
    here.append("a", [gps(10)])
    here.append("b", [gps(11)])
    here.start("both", begins=begins)
    assert [e["speed"] for e in here.await_events("both", 2)] == [10.0, 11.0]
    here.start("on", begins=begins_on)
    here.append("b", [gps(12)])
    assert sorted(e["speed"] for e in here.await_events("on", 3)) == [10.0, 11.0, 12.0]
    here.stop("both")
    here.append("a", [gps(13)])
    here.start("both", begins=begins)
    assert sorted(e["speed"] for e in here.await_events("both", 4)) == [10.0, 11.0, 12.0, 13.0], "nothing twice"


def test_service_with_too_many_tasks_takes_no_slots_of_others(world: MADE) -> None:
    here = world(
        """
  wide: {schema: {vid: string, speed: float64, time: timestamp}, event_time: time, partitions: 200}
services: {slow: {from: wide}, other: {from: a}}
"""
    )
    with pytest.raises(
        ServiceError,
        match=r"it has 200 real-time tasks, and of Spark's 128 slots 120 are free, so 80 are missing: give",
    ):
        here.start("slow")
    here.start("other")
    with pytest.raises(ServiceError, match=r"of Spark's 128 slots 119 are free"):
        here.start("slow")
    here.append("a", [gps(1)])
    assert len(here.await_events("other", 1)) == 1


def test_new_version_resumes_where_the_old_one_ended(world: MADE) -> None:
    here = world(
        """
services:
  slow: {from: a, pipeline: [{filter: speed < 50}]}
  counted: {from: a, pipeline: [{incremental: {count: n}}]}
"""
    )
    for name in ("slow", "counted"):
        here.start(name)
    here.append("a", [gps(n) for n in range(1, 4)])
    here.await_events("slow", 3)
    here.await_events("counted", 3)
    for name in ("slow", "counted"):
        here.stop(name)
    here.append("a", [gps(n) for n in range(4, 6)])
    for name in ("slow", "counted"):
        here.start(name, version=2)
    assert [e["speed"] for e in here.await_events("slow", 5)] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [e["n"] for e in here.await_events("counted", 5)] == [1, 2, 3, 4, 5], "its state goes on"


def test_service_reads_another_service(world: MADE) -> None:
    here = world(
        """
services:
  slow: {from: a, pipeline: [{filter: speed < 50}]}
  kmh: {from: slow, pipeline: [{project: {vid: vid, kmh: speed * 3.6, time: time}}]}
"""
    )
    here.start("slow")
    here.start("kmh")
    here.append("a", [gps(10), gps(60), gps(20)])
    events = here.await_events("kmh", 2)
    assert [round(e["kmh"], 6) for e in events] == [36.0, 72.0]
    assert [e["_id"] for e in events] == [e["_id"] for e in here.events("slow")]


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
    assert job.compiled.plan.mode == "real-time"
    here.append("a", [gps(n, second=10) for n in range(30)])
    here.await_events("flow", 60)
    here.stop("flow")
    here.append("a", [gps(n, second=11) for n in range(30)])
    here.start("flow")
    events = here.await_events("flow", 120)
    ids = [e["_id"] for e in events]
    assert len(ids) == len(set(ids)) == 120
    last = {(e["vid"], e["window_end"]): e["n"] for e in events}
    assert last == {(f"V{k}", moment(end)): 20 for k in range(3) for end in (30, 60)}


def test_final_values_once_each_after_a_restart(world: MADE) -> None:
    here = world(
        """
services:
  flow:
    from: a
    idle: never
    pipeline: [{aggregate: {count: n, max: speed, by: [vid], window: {length: 10s}}}]
"""
    )
    job = here.start("flow")
    assert job.compiled.plan.mode == "real-time"
    here.append("a", [gps(n, second=n % 10) for n in range(30)])
    here.append("a", [gps(0, second=25)])
    here.await_events("flow", 3)
    here.stop("flow")
    here.append("a", [gps(n, second=26) for n in range(3)])
    here.start("flow")
    here.append("a", [gps(0, second=45)])
    events = here.await_events("flow", 6)
    assert {(e["vid"], e["window_end"], e["n"], e["speed"]) for e in events} == {
        *((f"V{k}", moment(10), 10, 27.0 + k) for k in range(3)),
        ("V0", moment(30), 2, 0.0),
        *((f"V{k}", moment(30), 1, float(k)) for k in (1, 2)),
    }
    assert len(events) == 6


def test_service_with_on_violation_fail_reports_the_reason(world: MADE) -> None:
    here = world('services: {gps: {from: a, constraints: {speed: "< 100"}, on_violation: fail}}')
    job = here.start("gps")
    here.append("a", [gps(1), gps(200)])
    until(lambda: job.failure() is not None, "the service to fail")
    assert job.failure() == (
        "ConstraintViolated: a constraint is violated, and on_violation is fail: "
        "speed: 200.0 violates speed < 100 in event a:0:67"
    )


def test_flagged_and_dropped(world: MADE) -> None:
    here = world(
        """
services:
  flagged: {from: a, constraints: {speed: "< 100"}, on_violation: flag}
  dropped: {from: a, constraints: {speed: "< 100"}, on_violation: drop}
"""
    )
    here.start("flagged")
    here.start("dropped")
    here.append("a", [gps(200), gps(1)])
    assert [e.get("_violations") for e in here.await_events("flagged", 2)] == [
        "speed: 200.0 violates speed < 100",
        None,
    ]
    assert [e["speed"] for e in here.await_events("dropped", 1)] == [1.0]
    assert here.engine.metrics("dropped")["dropped"] == 1
    assert here.events("dropped.quarantine") == []


def test_filter_in_python_resumes_at_the_end_of_its_output(world: MADE) -> None:
    here = world("""services: {near: {from: a, pipeline: [{filter: "vid MATCH '(V[0-9])+' AND speed > 0"}]}}""")
    job = here.start("near")
    assert (job.compiled.plan.mode, job.compiled.plan.keyed) == ("micro-batch", False)
    here.append("a", [gps(n) for n in range(1, 4)])
    here.await_events("near", 3)
    here.stop("near")
    here.append("a", [gps(n) for n in range(4, 7)])
    here.start("near")
    assert [e["speed"] for e in here.await_events("near", 6)] == [float(n) for n in range(1, 7)]
