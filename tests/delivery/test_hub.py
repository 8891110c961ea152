"""Subscribers get exactly their matching events, in order per partition, also after they fell behind or came back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import LARGE_EXAMPLES
from tests.delivery.sinks import Recording
from tests.polling import until_async
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.hub import Hub
from tidegate.delivery.start import NOW, Start
from tidegate.delivery.subscriber import Subscriber
from tidegate.errors import LogError, NotRegistered
from tidegate.filters import Filter
from tidegate.logs import Cursor, EventLog, RetentionLimits, SegmentLog
from tidegate.model import Schema

SCHEMA = Schema({"n": "int64", "speed": "float64"})


def record(partition: str, n: int, **more: Any) -> bytes:
    return b'{"_id":"%s:%d","_time":"2026-01-01T00:00:00.000000Z","n":%d,"speed":%d.0}' % (
        partition.encode(),
        n,
        n,
        n % 100,
    )


@asynccontextmanager
async def hub_on(log: EventLog) -> AsyncIterator[Hub]:
    hub = Hub(log)
    hub.serve({"gps": SCHEMA})
    try:
        yield hub
    finally:
        await hub.close()


until = until_async


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def subscriber(id_: str, text: str, sink: Recording, position: Cursor | None) -> Subscriber:
    return Subscriber(id_, "gps", Filter(text, SCHEMA) if text else None, sink, Encoding(), position)


@pytest.fixture
def log(tmp_path: Path) -> SegmentLog:
    log = SegmentLog(tmp_path / "log")
    log.create("gps", ["a.0", "b.0"])
    return log


class Truth:
    """Appends numbered events, and knows which of them a filter matches."""

    def __init__(self, log: SegmentLog) -> None:
        self._log = log
        self.sent: dict[str, int] = {"a.0": 0, "b.0": 0}

    def append(self, partition: str, count: int) -> None:
        first = self.sent[partition]
        self._log.append("gps", partition, [record(partition, n) for n in range(first, first + count)])
        self.sent[partition] += count

    def wanted(self, partition: str, begin: int, wants: Callable[[int], bool]) -> list[str]:
        return [f"{partition}:{n}" for n in range(begin, self.sent[partition]) if wants(n)]


WANTS: dict[str, Callable[[int], bool]] = {
    "": lambda _: True,
    "speed > 60": lambda n: n % 100 > 60,
    "n >= 100": lambda n: n >= 100,
    "speed = 7": lambda n: n % 100 == 7,
}


@settings(max_examples=LARGE_EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_each_subscriber_gets_exactly_its_matching_events_in_order(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run(_random_history(Random(seed), tmp_path_factory.mktemp("life")))


async def _random_history(chance: Random, folder: Path) -> None:
    log = SegmentLog(folder / "log")
    log.create("gps", ["a.0", "b.0"])
    truth = Truth(log)
    async with hub_on(log) as hub:
        readers: list[_Reader] = []
        for _ in range(chance.randint(10, 40)):
            what = chance.random()
            if what < 0.5:
                truth.append(chance.choice(["a.0", "b.0"]), chance.choice([1, 3, 50, 700]))
            elif what < 0.65 or not readers:
                readers.append(await _Reader.subscribe_at_random(f"s{len(readers)}", hub, truth, chance))
            else:
                await chance.choice(readers).act(chance)
            for _ in range(chance.choice([0, 0, 1, 5])):
                await asyncio.sleep(0)
        for reader in readers:
            reader.resume()
            reader.sink.room_for = 1_000_000
            reader.sink.make_room()
        await until(lambda: all(map(_Reader.has_all, readers)), "all subscribers to have all events")
        for reader in readers:
            reader.check()
    log.close()


class _Reader:
    """A reader that subscribes, makes room or not, leaves, and resumes from its last cursor."""

    def __init__(self, id_: str, hub: Hub, truth: Truth, text: str, begin: Cursor, first: dict[str, int]) -> None:
        self.id, self._hub, self._truth, self._text, self._first = id_, hub, truth, text, first
        self.sink = Recording()
        self._subscriber: Subscriber | None = subscriber(id_, text, self.sink, begin)
        self._begin = begin
        hub.subscribe(self._subscriber)

    @classmethod
    async def subscribe_at_random(cls, id_: str, hub: Hub, truth: Truth, chance: Random) -> _Reader:
        beginning = chance.random() < 0.5
        first = {"a.0": 0, "b.0": 0} if beginning else dict(truth.sent)
        begin = await hub.begin("gps", Start(beginning=True) if beginning else NOW)
        assert begin is not None
        reader = cls(id_, hub, truth, chance.choice(list(WANTS)), begin, first)
        reader.sink.room_for = chance.choice([1, 10, 400, 1_000_000])
        reader.sink.strict = chance.random() < 0.5
        return reader

    async def act(self, chance: Random) -> None:
        if self._subscriber is None:
            self.resume()
        elif chance.random() < 0.5:
            self.sink.make_room()
        else:
            self._hub.unsubscribe(self._subscriber)
            self._subscriber = None

    def resume(self) -> None:
        if self._subscriber is None:
            cursor = Cursor.from_text(self.sink.given[-1][2]) if self.sink.given else self._begin
            sink, self.sink = self.sink, Recording(self.sink.room_for, strict=self.sink.strict)
            self.sink.given = sink.given
            self._subscriber = subscriber(self.id, self._text, self.sink, cursor)
            self._hub.subscribe(self._subscriber)

    def wanted(self, partition: str) -> list[str]:
        return self._truth.wanted(partition, self._first[partition], WANTS[self._text])

    def has_all(self) -> bool:
        return len(self.sink.given) >= sum(len(self.wanted(each)) for each in self._truth.sent)

    def check(self) -> None:
        for partition in self._truth.sent:
            found = [event for event in self.sink.ids(self.id) if event.startswith(f"{partition}:")]
            assert found == self.wanted(partition)


def live_with(hub: Hub, each: Subscriber) -> Awaitable[bool]:
    hub.subscribe(each)
    return until(lambda: each.state == "live", "the subscriber to be live")


def test_slow_reader_does_not_delay_other_subscribers_and_misses_nothing(log: SegmentLog) -> None:
    async def work() -> None:
        truth = Truth(log)
        async with hub_on(log) as hub:
            begin = log.begin("gps")
            stuck, quick = Recording(room_for=5), Recording()
            await live_with(hub, subscriber("stuck", "", stuck, begin))
            await live_with(hub, subscriber("quick", "", quick, begin))
            for _ in range(50):
                truth.append("a.0", 100)
            await until(lambda: len(quick.given) == 5_000, "the quick one to have all")
            assert len(stuck.given) < 5_000
            stuck.room_for = 1_000_000
            stuck.make_room()
            await until(lambda: len(stuck.given) == 5_000, "the stuck one to have all")
            assert stuck.ids("stuck") == quick.ids("quick")

    run(work())


def test_filter_changes_between_two_events_at_the_returned_cursor(log: SegmentLog) -> None:
    async def work() -> None:
        truth = Truth(log)
        async with hub_on(log) as hub:
            sink = Recording()
            each = subscriber("s", "n < 10", sink, log.begin("gps"))
            await live_with(hub, each)
            truth.append("a.0", 20)
            await until(lambda: len(sink.given) == 10, "the first ten")
            place = await hub.change(each, Filter("n >= 20", SCHEMA))
            assert place is not None
            (notice,) = sink.notices
            assert (notice.kind, notice.cursor, notice.details["filter"]) == ("changed", place.text, "n >= 20")
            truth.append("a.0", 5)
            await until(lambda: len(sink.given) == 15, "five more")
            assert sink.ids("s") == [f"a.0:{n}" for n in (*range(10), *range(20, 25))]
            assert log.read("gps", place, 10).records[0] == record("a.0", 20)

    run(work())


def test_expired_events_are_reported_as_a_gap(tmp_path: Path) -> None:
    async def work() -> None:
        log = SegmentLog(tmp_path / "small", segment_bytes=200)
        log.create("gps", ["a.0"])
        begin = log.begin("gps")
        for n in range(20):
            log.append("gps", "a.0", [record("a.0", n)])
        log.expire("gps", RetentionLimits(size_bytes=300))
        left = len(log.read("gps", log.begin("gps"), 100).records)
        async with hub_on(log) as hub:
            sink = Recording()
            await live_with(hub, subscriber("s", "", sink, begin))
            (notice,) = sink.notices
            assert notice.kind == "gap"
            assert notice.details["missed"][0]["partition"] == "a.0"
            assert 0 < left < 20
            assert sink.ids("s") == [f"a.0:{n}" for n in range(20 - left, 20)]

    run(work())


def test_stream_that_was_created_again_is_reported_as_a_gap(log: SegmentLog) -> None:
    async def work() -> None:
        truth = Truth(log)
        truth.append("a.0", 3)
        async with hub_on(log) as hub:
            sink = Recording()
            await live_with(hub, subscriber("s", "", sink, log.begin("gps")))
            await until(lambda: len(sink.given) == 3, "three events")
            log.delete("gps")
            log.create("gps", ["a.0"])
            log.append("gps", "a.0", [record("a.0", 77)])
            await until(lambda: len(sink.given) == 4, "the event of the new stream")
            assert [notice.kind for notice in sink.notices] == ["gap"]
            assert sink.ids("s")[-1] == "a.0:77"

    run(work())


class CountingLog(SegmentLog):
    """A log that counts the waits that failed."""

    failures = 0

    def wait(self, stream: str, cursor: Cursor, timeout_s: float) -> bool:
        try:
            return super().wait(stream, cursor, timeout_s)
        except LogError:
            self.failures += 1
            raise


def test_live_subscriber_keeps_its_cursor_while_the_log_cannot_be_read(tmp_path: Path) -> None:
    async def work() -> None:
        log = CountingLog(tmp_path)
        log.create("gps", ["a.0"])
        log.append("gps", "a.0", [record("a.0", 0)])
        generation = tmp_path / "gps" / "generation"
        async with hub_on(log) as hub:
            sink = Recording()
            await live_with(hub, subscriber("s", "", sink, log.begin("gps")))
            generation.rename(tmp_path / "aside")
            generation.symlink_to(generation)  # the system refuses to open it
            await until(lambda: log.failures > 1, "reads to fail")
            assert hub.counts()["gps"]["live"] == 1
            (tmp_path / "aside").replace(generation)
            log.append("gps", "a.0", [record("a.0", 1)])
            await until(lambda: len(sink.given) > 1, "the next event")
            assert sink.ids("s") == ["a.0:0", "a.0:1"]
            assert sink.notices == []

    run(work())


def test_deleted_stream_keeps_the_cursor_and_reports_a_gap_when_it_is_created_again(tmp_path: Path) -> None:
    async def work() -> None:
        log = SegmentLog(tmp_path)
        log.create("gps", ["a.0"])
        log.append("gps", "a.0", [record("a.0", 0)])
        async with hub_on(log) as hub:
            sink = Recording()
            each = subscriber("s", "", sink, log.begin("gps"))
            await live_with(hub, each)
            cursor = each.position
            log.delete("gps")
            await until(lambda: hub.counts()["gps"]["behind"] == 1, "the subscriber to leave live")
            assert each.position == cursor
            log.create("gps", ["a.0"])
            log.append("gps", "a.0", [record("a.0", 5)])
            await until(lambda: len(sink.given) > 1, "the event of the new stream")
            assert [notice.kind for notice in sink.notices] == ["gap"]
            assert sink.ids("s") == ["a.0:0", "a.0:5"]

    run(work())


def test_subscriber_waits_for_a_stream_that_does_not_exist_yet(tmp_path: Path) -> None:
    async def work() -> None:
        log = SegmentLog(tmp_path / "empty")
        async with hub_on(log) as hub:
            assert await hub.begin("gps") is None
            sink = Recording()
            each = subscriber("s", "", sink, None)
            hub.subscribe(each)
            log.create("gps", ["a.0"])
            log.append("gps", "a.0", [record("a.0", 0)])
            await until(lambda: sink.ids("s") == ["a.0:0"], "the first event")

    run(work())


def test_unknown_service_raises_not_registered_without_a_hint(log: SegmentLog) -> None:
    async def work() -> None:
        async with hub_on(log) as hub:
            with pytest.raises(NotRegistered, match=r"no service 'gsp'$"):
                await hub.begin("gsp")

    run(work())


def test_new_schema_keeps_fitting_subscribers_and_dismisses_the_others(log: SegmentLog) -> None:
    async def work() -> None:
        truth = Truth(log)
        async with hub_on(log) as hub:
            fits, broken = Recording(), Recording()
            await live_with(hub, subscriber("fits", "n > 5", fits, log.begin("gps")))
            await live_with(hub, subscriber("broken", "speed > 5", broken, log.begin("gps")))
            truth.append("a.0", 10)
            await until(lambda: len(fits.given) == len(broken.given) == 4, "four events each")
            hub.serve({"gps": Schema({"n": "int64"})})
            truth.append("a.0", 10)
            await until(lambda: len(fits.given) == 14, "ten more")
            assert len(broken.given) == 4
            assert [notice.kind for notice in broken.notices] == ["error"]
            assert "speed" in broken.notices[0].details["detail"]

    run(work())


@settings(max_examples=LARGE_EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_subscribers_that_share_a_sink_get_exactly_their_matching_events(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run(_shared_sink_history(Random(seed), tmp_path_factory.mktemp("shared")))


async def _shared_sink_history(chance: Random, folder: Path) -> None:
    log = SegmentLog(folder / "log")
    log.create("gps", ["a.0", "b.0"])
    log.create("bus", ["a.0"])
    truth = Truth(log)
    async with hub_on(log) as hub:
        hub.serve({"gps": SCHEMA, "bus": SCHEMA})
        sinks = [Recording(chance.choice([1, 10, 400]), strict=strict) for strict in (True, False)]
        texts = {f"s{n}": chance.choice(list(WANTS)) for n in range(6)}
        for n, (id_, text) in enumerate(texts.items()):
            hub.subscribe(subscriber(id_, text, sinks[n % 2], log.begin("gps")))
        bus = Subscriber("bus", "bus", None, sinks[0], Encoding(), log.begin("bus"))
        hub.subscribe(bus)
        sent = 0
        for _ in range(chance.randint(5, 30)):
            if chance.random() < 0.5:
                truth.append(chance.choice(["a.0", "b.0"]), chance.choice([1, 3, 50, 700]))
                log.append("bus", "a.0", [record("bus", sent)])
                sent += 1
            else:
                chance.choice(sinks).make_room()
            for _ in range(chance.choice([0, 0, 1, 5])):
                await asyncio.sleep(0)
        for sink in sinks:
            sink.room_for = 1_000_000
            sink.make_room()
        wanted = {
            (id_, partition): truth.wanted(partition, 0, WANTS[text])
            for id_, text in texts.items()
            for partition in truth.sent
        }
        wanted["bus", "bus"] = [f"bus:{n}" for n in range(sent)]
        total = sum(map(len, wanted.values()))
        await until(lambda: sum(len(sink.given) for sink in sinks) >= total, "all subscribers to have all events")
        for (id_, partition), events in wanted.items():
            found = [event for sink in sinks for event in sink.ids(id_) if event.startswith(f"{partition}:")]
            assert found == events
    log.close()


def test_strict_sink_gets_only_as_many_events_as_it_has_room_for_and_finally_all(log: SegmentLog) -> None:
    async def work() -> None:
        truth = Truth(log)
        async with hub_on(log) as hub:
            sink = Recording(room_for=7, strict=True)
            await live_with(hub, subscriber("all", "", sink, log.begin("gps")))
            await live_with(hub, subscriber("some", "speed > 60", sink, log.begin("gps")))
            for partition in ("a.0", "b.0"):
                truth.append(partition, 100)
            for took in range(7, 200, 7):
                await until(lambda took=took: len(sink.ids("all")) >= took, "seven more")  # type: ignore[misc]
                assert len(sink.ids("all")) == took
                sink.make_room()
            await until(lambda: len(sink.ids("all")) == 200, "the rest")
            assert sorted(sink.ids("some")) == sorted(
                f"{partition}:{n}" for partition in truth.sent for n in range(61, 100)
            )

    run(work())


def test_subscriber_that_starts_now_gets_its_cursor_and_no_older_event_with_a_full_sink(log: SegmentLog) -> None:
    async def work() -> None:
        truth = Truth(log)
        truth.append("a.0", 500)
        async with hub_on(log) as hub:
            sink = Recording(room_for=1)
            await live_with(hub, subscriber("old", "", sink, log.end("gps")))
            late = []
            for n in range(40):
                truth.append("a.0", 1)
                late.append(subscriber(f"late{n}", "", sink, None))
                hub.subscribe(late[-1], now=True)
                await asyncio.sleep(0.001 * (n % 3))
            sink.room_for = 1_000_000
            sink.make_room()
            await until(lambda: all(each.state == "live" for each in late), "all to be live")
            truth.append("a.0", 1)
            await until(lambda: all(sink.ids(each.id)[-1:] == ["a.0:540"] for each in late), "the last one")
            began = [Cursor.from_text(notice.cursor) for notice in sink.notices if notice.kind == "began"]
            assert len(began) == 40
            for each in late:
                found = [int(event.partition(":")[2]) for event in sink.ids(each.id)]
                assert found == list(range(found[0], 541))
                assert found[0] >= 500

    run(work())


def test_subscriber_that_leaves_during_a_filter_change_is_gone(log: SegmentLog) -> None:
    async def work() -> None:
        changes: list[bool] = []
        hub = Hub(log, on_subscription_change=lambda _, is_here: changes.append(is_here))
        hub.serve({"gps": SCHEMA})
        each = subscriber("a", "speed > 60", Recording(), log.end("gps"))
        hub.subscribe(each)
        await until(lambda: each.state == "live", "it to be live")
        changing = asyncio.create_task(hub.change(each, Filter("speed > 10", SCHEMA)))
        await asyncio.sleep(0)  # the command is sent, and its answer awaited
        hub.unsubscribe(each)
        await changing
        assert (each.state, each.membership, changes) == ("gone", None, [True, False])
        await hub.close()

    run(work())


def test_rewrite_of_a_polling_subscriber_does_not_serve_it(log: SegmentLog) -> None:
    async def work() -> None:
        Truth(log).append("a.0", 5)
        async with hub_on(log) as hub:
            before, after = Recording(), Recording()
            page = subscriber("a", "", before, log.begin("gps"))
            hub.rewrite(page, Encoding("plain"), after)
            assert (before.subscribers, after.subscribers, hub.listening()) == (set(), {page}, [])
            while await hub.poll(page) == "more":
                pass
            assert after.ids("a") == [f"a.0:{n}" for n in range(5)]

    run(work())
