"""Conflation: fewer events, never older ones, and the last of each key in the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import LARGE_EXAMPLES
from tests.delivery.sinks import Recording
from tests.delivery.test_hub import SCHEMA, Truth, hub_on, record, run, until
from tidegate.delivery.conflation import Conflating
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.hub import Hub
from tidegate.delivery.subscriber import Subscriber
from tidegate.logs import Cursor, SegmentLog


def follow(hub: Hub, inner: Recording, every_s: float, key: str | None, position: Cursor) -> Subscriber:
    each = Subscriber("s", "gps", None, Conflating(inner, every_s, key), Encoding(), position)
    hub.subscribe(each)
    return each


@settings(max_examples=LARGE_EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_in_order_each_at_most_once_and_in_the_end_the_last_of_each_key(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def work() -> None:
        chance = Random(seed)
        log = SegmentLog(tmp_path_factory.mktemp("log"))
        log.create("gps", ["a.0", "b.0"])
        truth = Truth(log)
        async with hub_on(log) as hub:
            inner = Recording(chance.choice([1, 3, 1_000]))
            each = follow(hub, inner, chance.choice([0.0, 0.002, 0.02]), "speed", log.begin("gps"))
            for _ in range(chance.randint(1, 15)):
                truth.append("a.0", chance.choice([1, 5, 250]))
                if chance.random() < 0.3:
                    inner.drain()
                await asyncio.sleep(chance.choice([0, 0.001, 0.01]))
            inner.room_for = 1_000_000
            inner.drain()
            last = {n % 100: f"a.0:{n}" for n in range(truth.sent["a.0"])}
            await until(lambda: set(last.values()) <= set(inner.ids("s")), "the last of each key")
            assert each.sink.is_settled
            numbers = [int(event.partition(":")[2]) for event in inner.ids("s")]
            assert numbers == sorted(set(numbers))
        log.close()

    run(work())


def test_whoever_comes_back_with_the_last_cursor_misses_no_key(tmp_path: Path) -> None:
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


def test_without_a_key_just_the_latest(tmp_path: Path) -> None:
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
