"""Snapshots: the latest event of each key, then all later events, none missed and none twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import LARGE_EXAMPLES
from tests.delivery.sinks import Recording
from tests.delivery.test_hub import SCHEMA, hub_on, run, subscriber, until
from tidegate.delivery import latest as latests
from tidegate.delivery import snapshot_sender
from tidegate.delivery.hub import Hub
from tidegate.delivery.latest import Latest, newest, stretch
from tidegate.delivery.subscriber import DeliveryNotice, Subscriber
from tidegate.filters import Filter
from tidegate.logs import Cursor, RetentionLimits, SegmentLog

PARTITIONS = ("a.0", "b.0")


class Appender:
    """Appends events of some keys, each with its own time, and records all of them."""

    def __init__(self, log: SegmentLog, keys: int = 5) -> None:
        self.log, self.keys = log, keys
        self.sent: dict[str, list[dict[str, Any]]] = {each: [] for each in PARTITIONS}
        self._n = 0

    def append(self, partition: str, count: int) -> None:
        made = []
        for _ in range(count):
            self._n += 1
            moment = f"2026-01-01T00:00:00.{self._n:06}Z"
            made.append(
                {"_id": f"{partition}:{self._n}", "_time": moment, "n": self._n, "speed": float(self._n % self.keys)}
            )
        self.log.append("gps", partition, [orjson.dumps(each) for each in made])
        self.sent[partition] += made

    def until(self, end: Cursor | None) -> dict[str, list[dict[str, Any]]]:
        """Return the events before a cursor, by partition."""
        found: dict[str, list[dict[str, Any]]] = {}
        for partition, events in self.sent.items():
            at, found[partition] = 0, []
            for each in events:
                if end is None or at >= end.offsets.get(partition, 0):
                    break
                found[partition].append(each)
                at += len(orjson.dumps(each)) + 1
        return found


def oracle(events: dict[str, list[dict[str, Any]]], wants: Callable[[dict[str, Any]], bool], key: str) -> set[str]:
    """Return the ids of the latest event of each key, by sorting all events."""
    wanted = sorted((each for some in events.values() for each in some if wants(each)), key=lambda each: each["_time"])
    return set({each[key]: each["_id"] for each in wanted}.values())


TEXTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "": lambda _: True,
    "n > 40": lambda event: event["n"] > 40,
    "speed = 3": lambda event: event["speed"] == 3,
}


class Watching(Recording):
    """Records how many events came before the notice `latest`."""

    def send_notice(self, subscriber: Subscriber, notice: DeliveryNotice) -> None:
        super().send_notice(subscriber, notice)
        if notice.kind == "latest":
            self.before = len(self.given)


def begin(hub: Hub, text: str, sink: Recording, cursor: Cursor | None, id_: str = "s") -> Subscriber:
    subscriber_ = subscriber(id_, text, sink, cursor)
    subscriber_.latest = Latest("speed")
    hub.subscribe(subscriber_)
    return subscriber_


@settings(max_examples=LARGE_EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_snapshot_has_the_latest_of_each_key_and_all_later_events_follow(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run(_random_history(Random(seed), tmp_path_factory.mktemp("log")))


async def _random_history(chance: Random, folder: Path) -> None:
    log = SegmentLog(folder / "log")
    log.create("gps", PARTITIONS)
    appender = Appender(log, chance.choice([1, 5, 700]))
    for partition in PARTITIONS:
        appender.append(partition, chance.choice([0, 1, 30, 2_500]))
    async with hub_on(log) as hub:
        readers = []
        for n in range(chance.randint(1, 3)):
            sink = Watching(chance.choice([1, 10, 400, 1_000_000]), strict=chance.random() < 0.5)
            text = chance.choice(list(TEXTS))
            readers.append((text, sink, begin(hub, text, sink, log.begin("gps"), f"s{n}")))
            appender.append(chance.choice(PARTITIONS), chance.choice([1, 50]))
        for _ in range(chance.randint(1, 15)):
            appender.append(chance.choice(PARTITIONS), chance.choice([1, 5, 250]))
            chance.choice(readers)[1].make_room()
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.005]))
        for _, sink, _ in readers:
            sink.room_for = 1_000_000
            sink.make_room()
        for text, sink, each in readers:
            await until(lambda each=each: each.latest is None, "the snapshot")  # type: ignore[misc]
            (end,) = [Cursor.from_text(notice.cursor) for notice in sink.notices if notice.kind == "latest"]
            before = appender.until(end)
            rest = [
                event["_id"]
                for partition, events in appender.sent.items()
                for event in events[len(before[partition]) :]
                if TEXTS[text](event)
            ]
            await until(lambda sink=sink, rest=rest: len(sink.given) >= sink.before + len(rest), "the rest")  # type: ignore[misc]
            ids = sink.ids(each.id)
            assert set(ids[: sink.before]) == oracle(before, TEXTS[text], "speed")
            assert len(set(ids)) == len(ids)
            for partition in PARTITIONS:
                behind = [event for event in ids[sink.before :] if event.startswith(partition)]
                assert behind == [event for event in rest if event.startswith(partition)]
            assert is_in_order(ids)
    log.close()


def is_in_order(ids: list[str]) -> bool:
    numbers = [[int(each.partition(":")[2]) for each in ids if each.startswith(some)] for some in PARTITIONS]
    return all(some == sorted(some) for some in numbers)


@pytest.fixture
def log(tmp_path: Path) -> SegmentLog:
    log = SegmentLog(tmp_path / "log")
    log.create("gps", PARTITIONS)
    return log


def ids_of(snapshot: latests.Snapshot) -> list[str]:
    return [orjson.loads(each.record)["_id"] for each in snapshot.entries]


def take(log: SegmentLog, cursor: Cursor | None = None) -> latests.Snapshot:
    return newest(log, "gps", cursor or log.begin("gps"), lambda _: True, "speed")


def test_key_in_two_partitions_has_only_its_latest_event(log: SegmentLog) -> None:
    appender = Appender(log, keys=1)
    for partition in ("b.0", "a.0", "b.0", "a.0"):
        appender.append(partition, 600)
    assert ids_of(take(log)) == ["a.0:2400"]


def test_snapshot_reads_from_the_given_cursor(log: SegmentLog) -> None:
    appender = Appender(log)
    appender.append("a.0", 5)
    cursor = log.end("gps")
    appender.append("a.0", 2)
    found = take(log, cursor)
    assert (ids_of(found), found.is_complete) == (["a.0:6", "a.0:7"], True)


def test_resuming_from_a_cursor_of_the_snapshot_misses_nothing(log: SegmentLog) -> None:
    appender = Appender(log)
    for partition in PARTITIONS:
        appender.append(partition, 1_500)
    for entry in take(log).entries:
        rest = log.read("gps", Cursor.from_text(entry.cursor), 10_000).records
        ids = {orjson.loads(record)["_id"] for record in rest}
        later = {orjson.loads(each.record)["_id"] for each in take(log).entries if each.number > entry.number}
        assert later <= ids
        assert orjson.loads(entry.record)["_id"] not in ids


def test_snapshot_over_its_limits_leaves_out_the_oldest_keys(log: SegmentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    appender = Appender(log, keys=1_000_000)
    appender.append("a.0", 50)
    monkeypatch.setattr(latests, "MAX_KEYS", 10)
    found = take(log)
    assert (ids_of(found), found.is_complete) == ([f"a.0:{n}" for n in range(41, 51)], False)
    monkeypatch.setattr(latests, "MAX_BYTES", 3 * found.entries[0].size_bytes + 50)
    assert ids_of(take(log)) == [f"a.0:{n}" for n in range(48, 51)]


def test_snapshot_of_a_long_stream_reads_only_about_max_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SegmentLog(tmp_path / "log", segment_bytes=2_000)
    log.create("gps", ["a.0"])
    appender = Appender(log, keys=1_000_000)
    for _ in range(50):
        appender.append("a.0", 100)
    begin, end = log.begin("gps"), log.end("gps")
    assert stretch(log, "gps", begin, end, 6_000) == begin
    some = len(log.read("gps", stretch(log, "gps", begin, end, 1_000), 10_000).records)
    assert 1_000 <= some < 5_000
    monkeypatch.setattr(latests, "MAX_EVENTS", 1_000)
    found = take(log)
    assert (len(found.entries), found.is_complete) == (some, False)


def test_snapshot_of_a_missing_stream_is_empty_and_all_events_follow(tmp_path: Path) -> None:
    async def work() -> None:
        log = SegmentLog(tmp_path / "empty")
        async with hub_on(log) as hub:
            sink = Watching()
            each = begin(hub, "", sink, None)
            await until(lambda: each.latest is None, "the snapshot")
            log.create("gps", PARTITIONS)
            Appender(log).append("a.0", 3)
            await until(lambda: len(sink.given) == 3, "all")
            assert [(notice.kind, dict(notice.details)) for notice in sink.notices] == [
                ("latest", {"events": 0, "complete": True})
            ]

    run(work())


def test_expired_events_before_the_snapshot_are_reported_as_a_gap(tmp_path: Path) -> None:
    async def work() -> None:
        log = SegmentLog(tmp_path / "log", segment_bytes=200)
        log.create("gps", ["a.0"])
        first = log.begin("gps")
        appender = Appender(log)
        for _ in range(20):
            appender.append("a.0", 1)
        log.expire("gps", RetentionLimits(size_bytes=300))
        async with hub_on(log) as hub:
            sink = Watching()
            each = begin(hub, "", sink, first)
            await until(lambda: each.state == "live", "the subscriber to be live")
            assert [notice.kind for notice in sink.notices] == ["gap", "latest"]
            assert sink.ids("s")[-1] == "a.0:20"

    run(work())


def test_filter_change_during_a_snapshot_continues_with_a_new_snapshot_behind_it(log: SegmentLog) -> None:
    async def work() -> None:
        appender = Appender(log, keys=10)
        appender.append("a.0", 100)
        async with hub_on(log) as hub:
            sink = Watching(room_for=3, strict=True)
            each = begin(hub, "n > 0", sink, log.begin("gps"))
            await until(lambda: len(sink.given) == 3, "the first three")
            await hub.change(each, Filter("n < 97", SCHEMA))
            sink.room_for = 1_000
            sink.make_room()
            await until(lambda: each.state == "live", "the subscriber to be live")
            assert sink.ids("s") == [f"a.0:{n}" for n in (91, 92, 93, 94, 95, 96)]
            assert [notice.kind for notice in sink.notices] == ["changed", "latest"]

    run(work())


def test_snapshot_of_a_full_sink_lets_others_read_and_continues_later(
    log: SegmentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_sender, "MAX_SNAPSHOTS", 1)
    monkeypatch.setattr(snapshot_sender, "DRAIN_TIMEOUT_S", 0.02)

    async def work() -> None:
        appender = Appender(log, keys=10)
        appender.append("a.0", 100)
        async with hub_on(log) as hub:
            stuck, quick = Watching(room_for=3, strict=True), Watching()
            each = begin(hub, "", stuck, log.begin("gps"), "stuck")
            await until(lambda: len(stuck.given) == 3, "the first three")
            other = begin(hub, "", quick, log.begin("gps"), "quick")
            await until(lambda: other.state == "live", "the other to be live")
            appender.append("a.0", 10)
            stuck.room_for = 1_000
            stuck.make_room()
            await until(lambda: each.state == "live", "the stuck one to be live")
            assert stuck.ids("stuck") == [f"a.0:{n}" for n in (91, 92, 93, *range(101, 111))]
            assert quick.ids("quick") == [f"a.0:{n}" for n in range(91, 111)]

    run(work())
