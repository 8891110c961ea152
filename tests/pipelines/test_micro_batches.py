"""Operators with state in micro-batches against slow, obvious Python: by Python alone, and by the connector.

The services and laws are those of real-time mode. Each service is restarted in the middle of its streams.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROUNDS
from tests.pipelines import test_stateful as real_time
from tests.pipelines.obvious_state import Event, Reading
from tests.pipelines.running import LATE, World, until
from tests.pipelines.stateful_cases import BEGIN_US, CASES, Case, made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-micro-batches"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

SERVICES = real_time.SERVICES.read_text()
SIZE = 5
"""Services that run at once."""


FEW = {"itself", "chained"}
"""All that runs outside of the soak: test_plain_state.py has every shape of state without Spark."""


def groups() -> Iterator[list[Case]]:
    """Cases to run together. Those that depend on the order of the streams are one group, which reads one at a time."""
    if ROUNDS == 1:
        yield [case for case in CASES if case.name in FEW]
        return
    free = [case for case in CASES if case.may_restart]
    for begin in range(0, len(free), SIZE):
        yield free[begin : begin + SIZE]
    yield [case for case in CASES if not case.may_restart]


GROUPS = {group[0].name: group for group in groups()}


def evaluated_by_python(services: str) -> str:
    """The services with one more filter, which lets all pass and has no native form; it stands where `vid` is known."""
    head, text = services.split("services:\n")
    passes = "      - filter: vid MATCH '(V[0-9])+' OR NOT vid MATCH '(V[0-9])+'\n"
    blocks = []
    for block in re.split(r"(?m)^(?=  \w+:$)", text)[1:]:
        if "aggregate" in block and "vid" not in block:
            blocks.append(block.replace("pipeline:\n", "pipeline:\n" + passes))
        else:
            blocks.append(block + passes)
    return head + "services:\n" + "".join(blocks)


@pytest.fixture(params=["plain", "connector"])
def world(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "plain":
        made_world = World(spark, tmp_path, SERVICES, plain=True)
    else:
        made_world = World(spark, tmp_path, evaluated_by_python(SERVICES))
    yield made_world
    made_world.close()


@pytest.mark.parametrize("group", GROUPS)
def test_operators_in_micro_batches_equal_obvious_python(world: World, group: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chosen = GROUPS[group]
    reading = _run(world, random.Random(seed), made(seed), chosen)
    problems = [text for case in chosen if (text := real_time.problem(world, case, reading))]
    assert not problems, f"seed {seed}\n" + "\n".join(problems)


def _run(world: World, rng: random.Random, streams: dict[str, list[Event]], chosen: Sequence[Case]) -> Reading:
    """Append all events, and restart the services between their halves. Returns them in the order of reading."""
    names = sorted({stream for case in chosen for stream in case.reads}, key=lambda _: rng.random())
    middle = {stream: rng.randrange(len(streams[stream])) for stream in names}
    parts = [(stream, streams[stream][: middle[stream]]) for stream in names]
    parts += [(stream, streams[stream][middle[stream] :]) for stream in reversed(names)]
    is_ordered = not all(case.may_restart for case in chosen)
    for case in chosen:
        world.start(case.name)
    assert {world.jobs[case.name].compiled.plan.mode for case in chosen} == {"micro-batch"}
    reading: list[tuple[str, Event]] = []
    for n, (stream, events) in enumerate(parts):
        if n == len(names):
            _await_end(world, chosen, reading)
            for case in chosen:
                world.stop(case.name)
                world.start(case.name)
        world.append(stream, map(real_time.wire, events))
        reading += [(stream, event) for event in events]
        if is_ordered:
            _await_end(world, chosen, reading)
    _await_end(world, chosen, reading)
    return reading


def _await_end(world: World, chosen: Sequence[Case], reading: Reading) -> None:
    """Wait until the services have dealt with all that there is. Without the connector their counts do not tell."""
    if world.best_mode == "real-time":
        real_time.await_counts(world, chosen, reading)
    else:
        until(lambda: all(_has_read_all(world, case) for case in chosen), "the services to read all")


def _has_read_all(world: World, case: Case) -> bool:
    """Return whether a batch that reached the ends of the streams is over."""
    job = world.jobs[case.name]
    if LATE in (failure := job.failure() or ""):
        world.stop(case.name)
        world.begin(case.name)
        return False
    assert not failure, f"{case.name}: {failure}"
    progress = job.queries[0].lastProgress
    if progress is None:
        return False
    reached = {offset["stream"]: offset["0"] for offset in (json.loads(each.endOffset) for each in progress.sources)}
    return reached == {stream: world.log.end(stream).offsets["0"] for stream in case.reads}


SILENT = """
streams:
  a: {schema: {vid: string, n: int64, time: timestamp}, event_time: time, key: vid}
services:
  counts:
    from: a
    idle: 1s
    pipeline:
      - filter: n <> 4
      - aggregate: {of: [{count: c}, {sum: {n: total}}], by: [vid], window: {length: 10s, lateness: 5s}}
"""


@pytest.mark.parametrize("plain", [True, False])
def test_windows_close_in_silence_and_late_and_future_events_are_quarantined(
    spark: SparkSession, tmp_path: Path, plain: bool
) -> None:
    world = World(spark, tmp_path, SILENT if plain else evaluated_by_python(SILENT), plain=plain)
    try:
        assert world.start("counts").compiled.plan.mode == "micro-batch"
        in_time = {"_id": "1", "vid": "x", "n": 1, "time": BEGIN_US + 30_000_000}
        late = {**in_time, "_id": "2", "n": 2, "time": BEGIN_US}
        future = {**in_time, "_id": "3", "n": 3, "time": BEGIN_US + 70 * 365 * 86_400_000_000}
        filtered = {**in_time, "_id": "4", "n": 4}
        world.append("a", map(real_time.wire, [in_time, late, future, filtered]))
        (event,) = world.await_events("counts", 1)
        assert (event["c"], event["total"]) == (1, 1)
        refused = world.await_events("counts.quarantine", 2)
        reasons = sorted(each["_reason"] for each in refused)
        assert reasons[0].startswith("its time, 2094")
        assert reasons[1].startswith("late: its window ended at 2024-03-29T00:00:10Z, and the watermark is ")
        assert world.engine.metrics("counts")["quarantined"] == 2
    finally:
        world.close()
