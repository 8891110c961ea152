"""The shapes of state without the connector, against slow, obvious Python, in batches that are cut anywhere."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tidegate.pipelines.plain.state.plan import LATE, RESULT, TICK, StatePlan
from tidegate.pipelines.plain.state.stage import Stage
from tidegate.pipelines.plain.state.watermark import TickClock, Watermark

SECOND = 1_000_000
SOURCE = "a/0"


@dataclass
class Row:
    """A row as Spark gives it."""

    k: str
    time: int | None = None
    kind: int = RESULT
    source: str | None = SOURCE
    clock: str | None = None
    side: int = 0
    arrived: int | None = 0
    tie: str = ""
    event: str = ""
    id: str = ""
    arguments: Mapping[str, Any] | None = None


@dataclass
class MemoryStore:
    """A state in memory."""

    states: dict[str, str] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    marks: str | None = None

    def load(self, key: str) -> str | None:
        return self.states.get(key)

    def save(self, key: str, text: str | None) -> None:
        self.states.pop(key, None)
        if text is not None:
            self.states[key] = text

    def timers(self) -> Iterable[tuple[str, int]]:
        return list(self.times.items())

    def save_timer(self, key: str, time: int | None) -> None:
        self.times.pop(key, None)
        if time is not None:
            self.times[key] = time

    def load_marks(self) -> str | None:
        return self.marks

    def save_marks(self, text: str) -> None:
        self.marks = text


def tick(clock: TickClock) -> Row:
    return Row("#@", kind=TICK, clock=clock.text())


END = tick(TickClock(None, None, 0, None, 1 << 60))
"""The source has been silent for years."""


def record(n: int, key: str, time: int, *arguments: Any, side: int = 0) -> Row:
    named = {f"a{m}": value for m, value in enumerate(arguments)}
    return Row(key, time, tie=f"{SOURCE}/{n:020d}/0", id=str(n), event=f'{{"n":{n}}}', side=side, arguments=named)


def run(plan: StatePlan, rows: Sequence[Row], seed: int = 1, store: MemoryStore | None = None) -> list[dict[str, Any]]:
    """What a stage gives for records in random batches, each with a tick, and for a long silence."""
    store = MemoryStore() if store is None else store
    rng = random.Random(seed)
    results, at = [], 0
    while at < len(rows):
        size = rng.randrange(1, 30)
        batch = list(rows[at : at + size])
        times = [row.time for row in batch if row.time is not None]
        results += Stage(plan, 0, store).run([*batch, tick(TickClock(max(times), None, len(batch), 0, None))])
        at += size
    return results + Stage(plan, 0, store).run([END])


def made(count: int, seed: int = 1, spread: int = 4 * SECOND) -> list[tuple[str, int, int]]:
    """Key, time and number of events that are out of order by at most `spread`."""
    rng = random.Random(seed)
    return [(rng.choice("xyz"), n * 400_000 - rng.randrange(max(1, spread)), rng.randrange(100)) for n in range(count)]


SUM = {"name": "sum(n)", "function": "sum", "argument": 0}
COUNT = {"name": "count(*)", "function": "count"}


def plan(shape: str, **settings: Any) -> StatePlan:
    return StatePlan("out", "stage1", shape, (SOURCE,), idle=10 * SECOND, **settings)


@pytest.mark.parametrize(("length", "slide"), [(10, 10), (10, 5), (7, 3), (3, 7)])
def test_windows_by_time_equal_those_of_obvious_python(length: int, slide: int) -> None:
    events = made(200)
    expected: dict[tuple[str, int], int] = {}
    for key, time, number in events:
        start = time // (slide * SECOND) * slide * SECOND
        while start > time - length * SECOND:
            end = start + length * SECOND
            expected[key, end] = expected.get((key, end), 0) + number
            start -= slide * SECOND
    rows = [record(n, key, time, number) for n, (key, time, number) in enumerate(events)]
    settings = {"length": length * SECOND, "slide": slide * SECOND, "lateness": 5 * SECOND, "aggregates": [SUM]}
    store = MemoryStore()
    found = run(plan("windows", **settings), rows, store=store)
    results = [(row["k"], row["end"], row["values"]) for row in found if row["kind"] == RESULT]
    assert {(key, end): int(values[0]) for key, end, values in results} == expected
    assert len(results) == len(expected)
    assert not store.states
    assert not store.times


def by_key(events: Sequence[tuple[str, int, int]]) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for key, time, number in events:
        found.setdefault(key, []).append((time, number))
    return found


def rows_of(events: Sequence[tuple[str, int, int]]) -> list[Row]:
    return [record(n, key, time, number) for n, (key, time, number) in enumerate(events)]


def results(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == RESULT]


def test_sessions_equal_those_of_obvious_python() -> None:
    events = made(150)
    expected = {}
    for key, own in by_key(events).items():
        session: list[tuple[int, int]] = []
        for time, number in [*sorted(own), (1 << 60, 0)]:
            if session and time > session[-1][0] + 2 * SECOND:
                expected[key, session[0][0], session[-1][0] + 2 * SECOND] = sum(each for _, each in session)
                session = []
            session.append((time, number))
    settings = {"windows": "session", "length": 2 * SECOND, "lateness": 5 * SECOND, "aggregates": [SUM]}
    found = results(run(plan("windows", **settings), rows_of(events)))
    assert {(row["k"], row["start"], row["end"]): int(row["values"][0]) for row in found} == expected


def test_totals_at_window_ends_hold_all_events_so_far() -> None:
    events = made(150)
    expected = {}
    for key, own in by_key(events).items():
        for end in {time // (10 * SECOND) * 10 * SECOND + 10 * SECOND for time, _ in own}:
            expected[key, end] = sum(number for time, number in own if time < end)
    settings = {"windows": "running", "length": 10 * SECOND, "slide": 10 * SECOND, "lateness": 5 * SECOND}
    found = results(run(plan("windows", aggregates=[SUM], **settings), rows_of(events)))
    assert {(row["k"], row["end"]): int(row["values"][0]) for row in found} == expected


@pytest.mark.parametrize(("length", "slide"), [(4, 2), (3, 3), (5, 1)])
def test_windows_by_count_equal_those_of_obvious_python(length: int, slide: int) -> None:
    rows = rows_of(made(120))
    expected = []
    for key in "xyz":
        own = [row.event for row in rows if row.k == key]
        expected += [(key, end, own[end - length : end]) for end in range(length, len(own) + 1, slide)]
    found = results(run(plan("count", windows="count", length=length, slide=slide), rows))
    assert sorted((row["k"], row["revision"], row["events"]) for row in found) == expected


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_join_gives_every_pair_once_and_events_without_a_partner(how: str) -> None:
    events = made(120)
    rows = [record(n, key, time, side=number % 2) for n, (key, time, number) in enumerate(events)]
    left, right = ([row for row in rows if row.side == side] for side in (0, 1))
    pairs = [
        (a, b)
        for a in left
        for b in right
        if a.k == b.k and a.time is not None and b.time is not None and abs(a.time - b.time) <= SECOND
    ]
    expected: list[tuple[str | None, str | None]] = [(a.event, b.event) for a, b in pairs]
    if how != "inner":
        joined = {a.event for a, _ in pairs}
        expected += [(a.event, None) for a in left if a.event not in joined]
    if how == "full":
        joined = {b.event for _, b in pairs}
        expected += [(None, b.event) for b in right if b.event not in joined]
    store = MemoryStore()
    settings = {"sides": 2, "within": SECOND, "lateness": 5 * SECOND, "how": how}
    found = results(run(plan("join", **settings), rows, store=store))
    assert sorted(map(repr, (tuple(row["events"]) for row in found))) == sorted(map(repr, expected))
    assert not store.states


def test_join_by_tuple_windows_gives_each_pair_once() -> None:
    rows = [record(n, "*", n, side=n % 3 == 0) for n in range(60)]
    windows: list[list[str]] = [[], []]
    waiting: list[list[str]] = [[], []]
    expected = []
    for row in rows:
        waiting[row.side].append(row.event)
        if len(waiting[row.side]) == 2:
            for event in waiting[row.side]:
                pairs = [(event, other) for other in windows[1 - row.side]]
                expected += pairs if row.side == 0 else [(other, own) for own, other in pairs]
            windows[row.side] = (windows[row.side] + waiting[row.side])[-5:]
            waiting[row.side] = []
    found = results(run(plan("tuple_join", sides=2, length=5, slide=2), rows))
    assert [tuple(row["events"]) for row in found] == expected


@pytest.mark.parametrize("required", [False, True])
def test_lookup_gives_the_latest_event_of_the_table(required: bool) -> None:
    rows = [record(n, key, time, side=number % 4 == 0) for n, (key, time, number) in enumerate(made(100))]
    latest: dict[str, Row] = {}
    expected = []
    for row in rows:
        if row.side:
            known = latest.get(row.k)
            latest[row.k] = row if known is None or (row.time or 0) >= (known.time or 0) else known
        elif row.k in latest or not required:
            expected.append((row.event, [latest[row.k].event if row.k in latest else None]))
    found = results(run(plan("latest", sides=2, required=required), rows))
    assert [(row["event"], row["events"]) for row in found] == expected


@pytest.mark.parametrize("back", [1, 3])
def test_previous_gives_an_earlier_event_of_the_key(back: int) -> None:
    rows = rows_of(made(60))
    expected = []
    for n, row in enumerate(rows):
        own = [each.event for each in rows[:n] if each.k == row.k]
        expected.append((row.event, [own[-back] if len(own) >= back else None]))
    found = results(run(plan("previous", back=back), rows))
    assert [(row["event"], row["events"]) for row in found] == expected


def test_distinct_gives_one_event_within_a_time() -> None:
    rows, kept = rows_of(made(100, spread=SECOND)), list[Row]()
    for row in rows:
        if all(each.k != row.k or abs((each.time or 0) - (row.time or 0)) > SECOND for each in kept):
            kept.append(row)
    store = MemoryStore()
    found = results(run(plan("distinct", within=SECOND), rows, store=store))
    assert [row["event"] for row in found] == [row.event for row in kept]
    assert not store.states


def test_pattern_takes_events_in_the_order_of_their_time() -> None:
    steps = [{"least": 1, "most": 1, "for": -1, "absent": False}] * 2
    events = [(3, True, False), (1, True, False), (2, False, True), (4, False, True), (5, False, True)]
    rows = [record(n, "x", time * SECOND, *conditions) for n, (time, *conditions) in enumerate(events)]
    found = results(run(plan("pattern", steps=steps, lateness=4 * SECOND, within=2 * SECOND), rows))
    assert [row["events"] for row in found] == [['[{"n":1}]', '[{"n":2}]'], ['[{"n":0}]', '[{"n":3}]']]


def test_pattern_with_an_absent_step_lasts_from_the_last_event_before_it() -> None:
    steps = [
        {"least": 1, "most": None, "for": -1, "absent": False},
        {"least": 1, "most": 1, "for": 5 * SECOND, "absent": True},
    ]
    events = [(1, True, False), (4, True, False), (20, True, False), (22, False, True)]
    rows = [record(n, "x", time * SECOND, *conditions) for n, (time, *conditions) in enumerate(events)]
    found = results(run(plan("pattern", steps=steps), rows))
    assert [(row["start"], row["end"], row["events"][0]) for row in found] == [
        (SECOND, 9 * SECOND, '[{"n":0},{"n":1}]')
    ]


@pytest.mark.parametrize("on_late", ["quarantine", "drop", "update"])
def test_late_record_is_refused_dropped_or_updates_its_window(on_late: str) -> None:
    settings = {"length": 10 * SECOND, "slide": 10 * SECOND, "aggregates": [COUNT], "on_late": on_late}
    store = MemoryStore()
    rows = run(plan("windows", **settings), [record(0, "x", 1), record(1, "x", 15 * SECOND), record(2, "x", 2)], 3)
    counts = [(row["end"], row["values"], row["revision"]) for row in results(rows) if row["end"] == 10 * SECOND]
    reasons = [row["reason"] for row in rows if row["kind"] == LATE]
    late = "late: its window ended at 1970-01-01T00:00:10Z, and the watermark is 1970-01-01T00:00:15Z"
    assert reasons == ([late] if on_late == "quarantine" else [])
    updates = [(10 * SECOND, ["1"], 1), (10 * SECOND, ["2"], 2)]
    assert counts == (updates if on_late == "update" else [(10 * SECOND, ["1"], 0)])
    assert not store.states


def test_watermark_follows_the_clock_while_events_are_live_and_all_is_read() -> None:
    now = 1_000 * SECOND
    watermark = Watermark(["a/0", "a/1"], 10 * SECOND)
    watermark.tick("a/0", TickClock(now - SECOND, SECOND, 5, now, now).text())
    assert watermark.value is None, "the other partition has sent nothing"
    watermark.tick("a/1", TickClock(None, None, 0, None, now).text())
    assert watermark.value is None
    watermark = Watermark(["a/0", "a/1"], 10 * SECOND, watermark.save())
    watermark.tick("a/1", TickClock(None, None, 0, None, now + 10 * SECOND).text())
    assert watermark.value == now - SECOND, "the silent partition holds nothing back"
    watermark.tick("a/0", TickClock(None, None, 0, None, now + 5 * SECOND).text())
    assert watermark.value == now + 4 * SECOND
    watermark.tick("a/0", TickClock(None, None, 0, None, None).text())
    assert watermark.value == now + 4 * SECOND, "not everything was read"


def test_watermark_of_a_stage_is_that_of_the_stage_before() -> None:
    watermark = Watermark(["stage1/0"], -1)
    watermark.tick("stage1/0", "=5")
    watermark.tick("stage1/0", "=3")
    assert watermark.value == 5


def test_stage_sends_ticks_to_the_next_that_no_later_result_precedes() -> None:
    two = StatePlan("out", "stage1", "windows", (SOURCE,), next_partitions=2, length=10, slide=10, lateness=3)
    rows = Stage(two, 0, MemoryStore()).run([record(0, "x", 40), tick(TickClock(40, None, 1, 0, None))])
    assert [(row["tick"], row["clock"]) for row in rows if row["kind"] == TICK] == [(0, "=37"), (1, "=37")]


def test_windows_close_by_the_lateness_of_a_new_version() -> None:
    settings = {"length": 10 * SECOND, "slide": 10 * SECOND, "aggregates": [COUNT]}
    store = MemoryStore()
    late, early = plan("windows", lateness=60 * SECOND, **settings), plan("windows", lateness=SECOND, **settings)
    Stage(late, 0, store).run([record(0, "x", 1), tick(TickClock(1, None, 1, 0, None))])
    rows = Stage(early, 0, store).run([tick(TickClock(11 * SECOND, None, 1, 0, None))])
    assert [(row["k"], row["end"]) for row in results(rows)] == [("x", 10 * SECOND)]
    assert not store.times
