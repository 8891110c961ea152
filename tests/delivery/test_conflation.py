"""Conflation sends fewer events, never older ones, and finally the latest of each key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import LARGE_EXAMPLES
from tests.delivery.sinks import Recording
from tests.delivery.test_hub import SCHEMA, Truth, hub_on, record, run, until
from tidegate.delivery import conflation
from tidegate.delivery.conflation import Conflating, reconflated
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.hub import Hub
from tidegate.delivery.lane import Lane
from tidegate.delivery.subscriber import DeliveryNotice, LaneMembership, Subscriber
from tidegate.filters import Filter
from tidegate.logs import Cursor, SegmentLog


def follow(
    hub: Hub, inner: Recording, every_s: float, key: str | None, position: Cursor, filter_: Filter | None = None
) -> Subscriber:
    each = Subscriber("s", "gps", filter_, Conflating(inner, every_s, key), Encoding(), position)
    hub.subscribe(each)
    return each


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[SegmentLog, Truth, Hub]]:
    """Yield a log, the list of its appended events, and a hub that serves it."""
    log = SegmentLog(folder)
    log.create("gps", ["a.0", "b.0"])
    async with hub_on(log) as hub:
        yield log, Truth(log), hub
    log.close()


@settings(max_examples=LARGE_EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_events_arrive_in_order_at_most_once_and_end_with_the_latest_of_each_key(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def work() -> None:
        chance = Random(seed)
        async with served(tmp_path_factory.mktemp("log")) as (log, truth, hub):
            inner = Recording(chance.choice([1, 3, 1_000]), strict=chance.random() < 0.5)
            each = follow(hub, inner, chance.choice([0.0, 0.002, 0.02]), "speed", log.begin("gps"))
            for _ in range(chance.randint(1, 15)):
                truth.append("a.0", chance.choice([1, 5, 250]))
                if chance.random() < 0.3:
                    inner.make_room()
                await asyncio.sleep(chance.choice([0, 0.001, 0.01]))
            inner.room_for = 1_000_000
            inner.make_room()
            last = {n % 100: f"a.0:{n}" for n in range(truth.sent["a.0"])}
            await until(lambda: set(last.values()) <= set(inner.ids("s")), "the last of each key")
            assert each.sink.is_flushed
            numbers = [int(event.partition(":")[2]) for event in inner.ids("s")]
            assert numbers == sorted(set(numbers))

    run(work())


class Marked(Recording):
    """Records how many events came before the last notice."""

    before = -1

    def send_notice(self, subscriber: Subscriber, notice: DeliveryNotice) -> None:
        super().send_notice(subscriber, notice)
        self.before = len(self.given)


@settings(max_examples=LARGE_EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_changed_conflation_repeats_no_event_and_loses_none_once_it_is_off(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def work() -> None:
        chance = Random(seed)
        async with served(tmp_path_factory.mktemp("log")) as (log, truth, hub):
            inner = Recording()
            each = follow(hub, inner, 0.002, "speed", log.begin("gps"))
            for _ in range(chance.randint(1, 15)):
                truth.append("a.0", chance.choice([1, 20]))
                await asyncio.sleep(chance.choice([0, 0.001, 0.003, 0.006]))
                hub.rewrite(each, each.encoding, reconflated(each.sink, chance.choice([(None, None), (0.002, "n")])))
            hub.rewrite(each, each.encoding, reconflated(each.sink, (None, None)))
            begin = truth.sent["a.0"]
            truth.append("a.0", 50)
            await until(lambda: inner.ids("s")[-50:] == truth.wanted("a.0", begin, lambda _: True), "all that follow")
            numbers = [int(event.partition(":")[2]) for event in inner.ids("s")]
            assert numbers == sorted(set(numbers))

    run(work())


def test_pass_renders_for_the_sink_that_the_member_joined_with(tmp_path: Path) -> None:
    async def work() -> None:
        log = SegmentLog(tmp_path / "log")
        log.create("gps", ["a.0"])
        before, after = Recording(), Recording()
        each = Subscriber("s", "gps", None, before, Encoding(), log.begin("gps"))
        lane = Lane(log, "gps", SCHEMA, log.begin("gps"))
        lane.admit(LaneMembership(each), log.begin("gps"))
        log.append("gps", "a.0", [record("a.0", 0)])
        each.sink = after  # the lane does not know yet that its member has left
        assert [sink for sink, _, _ in lane.step(10).outputs] == [before]
        log.close()

    run(work())


@settings(max_examples=LARGE_EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_changed_notice_separates_events_of_the_old_and_the_new_filter(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def work() -> None:
        chance = Random(seed)
        async with served(tmp_path_factory.mktemp("log")) as (log, truth, hub):
            inner = Marked(chance.choice([1, 3, 1_000]), strict=chance.random() < 0.5)
            every_s = chance.choice([0.0, 0.002, 5.0])
            each = follow(hub, inner, every_s, "speed", log.begin("gps"), Filter("n < 300", SCHEMA))
            for _ in range(chance.randint(1, 5)):
                truth.append("a.0", chance.choice([1, 5, 250]))
                await asyncio.sleep(chance.choice([0, 0.001, 0.01]))
            place = await hub.change(each, Filter("n >= 300", SCHEMA))
            assert place is not None
            changed_at = truth.sent["a.0"] - len(log.read("gps", place, 10_000).records)
            truth.append("a.0", chance.choice([1, 250]))
            inner.room_for = 1_000_000
            inner.make_room()
            await until(lambda: inner.before >= 0, "the marker")
            hub.drain()  # sends the events that are held
            numbers = [int(event.partition(":")[2]) for event in inner.ids("s")]
            assert numbers == sorted(set(numbers))
            before = numbers[: inner.before]
            assert all(n < min(300, changed_at) for n in before)
            assert all(n >= max(300, changed_at) for n in numbers[inner.before :])
            assert set({n % 100: n for n in range(min(300, changed_at))}.values()) <= set(before)

    run(work())


def test_sink_with_too_many_keys_is_full_and_delivers_all_events_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflation, "MAX_KEYS", 20)

    async def work() -> None:
        log = SegmentLog(tmp_path)
        log.create("gps", ["a.0"])
        async with hub_on(log) as hub:
            inner = Recording(room_for=0, strict=True)
            inner.write([])
            each = follow(hub, inner, 0.0, "n", log.begin("gps"))
            log.append("gps", "a.0", [record("a.0", n) for n in range(50)])
            await until(lambda: not each.sink.write([]), "it to be full")
            log.append("gps", "a.0", [record("a.0", n) for n in range(50, 5_000)])
            inner.room_for = 1_000_000
            inner.make_room()
            await until(lambda: len(inner.given) == 5_000, "all")
            assert inner.ids("s") == [f"a.0:{n}" for n in range(5_000)]

    run(work())


def test_reader_that_resumes_from_its_last_cursor_misses_no_key(tmp_path: Path) -> None:
    async def work() -> None:
        log = SegmentLog(tmp_path)
        log.create("gps", ["a.0"])
        log.append("gps", "a.0", [record("a.0", n) for n in range(10)])
        async with hub_on(log) as hub:
            inner = Recording()
            first = follow(hub, inner, 0.001, "n", log.begin("gps"))
            await until(lambda: len(inner.given) == 10, "the first ten")
            log.append("gps", "a.0", [record("a.0", n) for n in range(10, 13)])
            hub.unsubscribe(first)
            first.sink.close()
            again = Recording()
            follow(hub, again, 0.001, "n", Cursor.from_text(inner.given[-1][2]))
            await until(lambda: again.ids("s")[-1:] == ["a.0:12"], "the rest")
            assert set(inner.ids("s")) | set(again.ids("s")) == {f"a.0:{n}" for n in range(13)}

    run(work())


def test_without_key_only_the_latest_event_is_sent(tmp_path: Path) -> None:
    async def work() -> None:
        log = SegmentLog(tmp_path)
        log.create("gps", ["a.0"])
        log.append("gps", "a.0", [record("a.0", n) for n in range(500)])
        async with hub_on(log) as hub:
            inner = Recording()
            follow(hub, inner, 0.05, None, log.begin("gps"))
            await until(lambda: bool(inner.given), "an event")
            assert inner.ids("s") == ["a.0:499"]
            assert SCHEMA.root.get("n") is not None

    run(work())
