"""Every operator with state against slow, obvious Python: random streams, real Spark, restarts, and the law of counts.

The services of a group run at once over the same streams. The parts of the streams come in a random order. The next
part comes when every service has dealt with the one before, which its counts say.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import ROUNDS
from tests.pipelines import stateful_cases as cases
from tests.pipelines.obvious_state import Event, Reading
from tests.pipelines.running import World, until
from tests.pipelines.stateful_cases import CASES, Case
from tidegate.model import timestamps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SERVICES = Path(__file__).with_name("stateful.yaml")
GROUP = 10
"""Services that run at once: their checkpoints are work for the machine."""
PARTS = 2
"""Parts of each stream."""
RESTARTED = 0.25
"""The share of services that a round restarts."""
NEEDS_A_QUIET_MACHINE = {"full"}
"""Services that only the soak runs: late events of two inputs depend on which input is read first."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z")
SINKS = ("written", "quarantined", "dropped", "skipped", "filtered", "used", "held")
"""Where events end up: what was read, and what operators made of it, is the sum of these."""


@pytest.fixture(autouse=True)
def short_epochs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make checkpoints every few seconds, so that restarts find some."""
    name = "spark.sql.streaming.realTimeMode.minBatchDuration"
    monkeypatch.setattr("tidegate.pipelines.engine.STATEFUL_EPOCH", "6 seconds")
    spark.conf.set(name, "500ms")
    yield
    spark.conf.unset(name)


@pytest.mark.parametrize("begin", range(0, len(CASES), GROUP))
@pytest.mark.parametrize("turn", range(ROUNDS))
def test_operators_with_state_equal_obvious_python(spark: SparkSession, tmp_path: Path, turn: int, begin: int) -> None:
    del turn
    seed = random.SystemRandom().randrange(1 << 32)
    chosen = [case for case in CASES[begin : begin + GROUP] if ROUNDS > 1 or case.name not in NEEDS_A_QUIET_MACHINE]
    try:
        run_round(spark, tmp_path / "first", seed, chosen)
    except AssertionError as problem:
        # Which event of two inputs is late depends on which arrives first, and a checkpoint may come between them on a
        # machine that is too busy. The same round again tells such a case from a fault.
        print(f"once more: {problem}", file=sys.stderr)
        run_round(spark, tmp_path / "second", seed, chosen)


def run_round(spark: SparkSession, folder: Path, seed: int, chosen: Sequence[Case]) -> None:
    rng = random.Random(seed)
    world = World(spark, folder, SERVICES.read_text())
    try:
        reading = _run(world, rng, cases.made(seed), chosen)
        await_results(world, chosen, reading)
        problems = [text for case in chosen if (text := problem(world, case, reading))]
        assert not problems, f"seed {seed}\n" + "\n".join(problems)
    finally:
        world.close()


def _run(world: World, rng: random.Random, streams: Mapping[str, Sequence[Event]], chosen: Sequence[Case]) -> Reading:
    """Append all events in parts, with restarts. Returns them in the order in which they were read."""
    parts = [stream for stream in streams for _ in range(PARTS)]
    rng.shuffle(parts)
    left = {stream: list(events) for stream, events in streams.items()}
    pending = [case for case in chosen if case.may_restart and rng.random() < RESTARTED]
    reading: list[tuple[str, Event]] = []
    start_all(world, chosen)
    for n, stream in enumerate(parts):
        is_last = stream not in parts[n + 1 :]
        count = len(left[stream]) if is_last else rng.randrange(len(left[stream]) // 2 + 1)
        part, left[stream] = left[stream][:count], left[stream][count:]
        world.append(stream, map(wire, part))
        reading += [(stream, event) for event in part]
        if n + 1 < len(parts) and pending and rng.random() < 0.5:  # in the middle of what was just appended
            again = [pending.pop() for _ in range(min(len(pending), rng.randrange(1, 5)))]
            for case in again:
                world.stop(case.name)
            start_all(world, again)
        await_counts(world, chosen, reading)
    return reading


def start_all(world: World, chosen: Sequence[Case]) -> None:
    for case in chosen:
        world.begin(case.name)
    for case in chosen:
        world.await_ready(case.name)


def await_results(world: World, chosen: Sequence[Case], reading: Reading) -> None:
    """Wait for as many results as there must be: ticks tell later stages that windows have ended."""
    wanted = {case: len(case.expected([(s, e) for s, e in reading if s in case.reads])) for case in chosen}
    with suppress(AssertionError):  # what is missing is named by the comparison
        until(lambda: all(len(world.events(case.name)) >= count for case, count in wanted.items()), "the results")


def await_counts(world: World, chosen: Sequence[Case], reading: Reading) -> None:
    """Wait until every service has dealt with all that it was given.

    The law of counts holds, and ticks have moved the watermark to where it must be, twice in a row: otherwise it would
    be chance which of the next events are late.
    """
    times = 0
    newest = {stream: max(e["time"] for s, e in reading if s == stream) for stream in {s for s, _ in reading}}

    def settled() -> bool:
        nonlocal times
        times = times + 1 if all(is_settled(world, case, newest) for case in chosen) else 0
        return times > 1

    try:
        until(settled, "the services to deal with what they were given")
    except AssertionError as problem:
        open_ = [f"{case.name}: {counts(world, case.name)}" for case in chosen if not is_settled(world, case, newest)]
        raise AssertionError("the counts do not add up:\n" + "\n".join(open_)) from problem


def is_settled(world: World, case: Case, newest: Mapping[str, int]) -> bool:
    failure = world.jobs[case.name].failure()
    assert failure is None, f"{case.name}: {failure}"
    found = counts(world, case.name)
    if found["held"] is None:
        return False  # the state has not begun
    if newest.keys() >= set(case.reads):
        marks = found["watermarks"]
        if any(
            marks.get(f"stage1/0.{stream}/0", mark) < mark for stream, mark in newest.items() if stream in case.reads
        ):
            return False
        if "stage1/0" not in marks:
            return False
    ends = sum(world.log.end(stream).offsets["0"] for stream in case.reads)
    return sum(found["reached"].values()) == ends and balance(found) == 0


def counts(world: World, name: str) -> dict[str, Any]:
    return world.engine.metrics(name)


def balance(found: Mapping[str, Any]) -> int:
    """Return the number of events that a service has not processed completely."""
    assert found["held"] is not None
    assert found["restored"] is not None
    return int(found["read"] + found["restored"] + found["results"] - sum(found[name] for name in SINKS))


def wire(event: Event) -> Event:
    own = {name: value for name, value in event.items() if name not in ("_n", "_time")}
    return {**own, "time": timestamps.to_text(event["time"])}


def problem(world: World, case: Case, reading: Reading) -> str:
    """Return the differences between a service's results and those of obvious Python; empty if they agree."""
    own = [(stream, event) for stream, event in reading if stream in case.reads]
    expected, found = in_order(case, case.expected(own)), in_order(case, world.events(case.name))
    late = sorted(event["_id"] for event in (case.late(own) if case.late else ()))
    refused = sorted(event["_id"] for event in world.events(f"{case.name}.quarantine"))
    texts = []
    if found != expected:
        missing, extra = [e for e in expected if e not in found][:3], [e for e in found if e not in expected][:3]
        texts.append(f"{case.name}: {len(found)} instead of {len(expected)}\n  missing {missing}\n  extra {extra}")
    if late != refused:
        texts.append(f"{case.name}: late {refused} instead of {late}")
    return "\n".join(texts)


def in_order(case: Case, events: Sequence[Event]) -> list[str]:
    """Results as texts, in the order that counts."""
    if case.order is None:
        return sorted(map(comparable, events))
    return list(map(comparable, sorted(events, key=lambda each: each.get(case.order or "", ""))))


def comparable(event: Event) -> str:
    """Return an event as text: without nulls, times as numbers, floats rounded."""
    return repr(_plain({name: value for name, value in event.items() if name != "_src"}))


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(each) for name, each in sorted(value.items()) if each is not None}
        case list():
            return [_plain(each) for each in value]
        case float():
            return float(f"{value:.9g}")
        case str() if _MOMENT.fullmatch(value):
            return timestamps.from_text(value)
    return value
