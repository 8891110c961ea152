"""PushPool without HTTP: what they send, when they wait, when they stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from tests.delivery.test_hub import Truth, hub_on, run, until
from tidegate.delivery.acks import Acknowledgements
from tidegate.delivery.push.context import PushContext, PushSettings
from tidegate.delivery.push.pool import PushPool
from tidegate.delivery.push.transport import Outcome, PendingEvent
from tidegate.errors import RegistryError
from tidegate.logs import SegmentLog
from tidegate.registry import SqliteRegistry
from tidegate.services import loads
from tidegate.subscriptions import PushTarget, Subscription, Webhook, new_secret

SERVICE = """
streams: {raw: {schema: {n: int64, speed: float64}}}
services: {gps: {from: raw}}
"""
HASTY = PushSettings(first_retry_s=0.001, max_retry_s=0.01, max_attempts=3, lease_s=60.0, ack_interval_s=0.01)
"""Waits for nothing long; a lease lasts, as long as a busy machine may keep its holder from renewing it."""


class Receiving:
    """Takes messages, with the outcomes that are said first."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.got: list[tuple[str, list[str]]] = []

    async def send(self, subscription: Subscription, events: Sequence[PendingEvent]) -> Outcome:
        self.got.append((subscription.id, [each.record.split(b'"')[3].decode() for each in events]))
        return self.outcomes.pop(0) if self.outcomes else Outcome("taken")

    async def validate(self, target: PushTarget, *, handshake: bool) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    @property
    def ids(self) -> list[str]:
        return [id_ for _, ids in self.got for id_ in ids]


class Place:
    def __init__(self, folder: Path, settings: PushSettings = HASTY) -> None:
        self.seconds = 1_000.0
        """What leases end by, in the registry and with who holds them; it goes on when a test says so."""
        self.registry = SqliteRegistry(folder / "registry.sqlite", clock=lambda: round(self.seconds * 1e6))
        self.registry.apply(loads(SERVICE))
        self.log = SegmentLog(folder / "log")
        self.log.create("gps", ["a.0", "b.0"])
        self.truth, self.settings = Truth(self.log), settings
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def subscribe(self, id_: str = "s", text: str = "", batch: int = 1) -> None:
        webhook = Webhook("http://example.com/", (new_secret(),), batch)
        self.registry.subscribe(Subscription(id_, "gps", text, deliver=webhook), self.log.begin("gps").text)

    @asynccontextmanager
    async def push_pool(self, transport: Receiving, holder: str = "h") -> AsyncIterator[PushPool]:
        async with hub_on(self.log) as hub:
            acks = Acknowledgements(self.registry.acknowledge_all, 0.005)
            context = PushContext(self.registry, acks, transport, self.settings, lambda: self.now, Random(1))
            found = PushPool(hub, context, holder, lambda: self.seconds)
            for each in self.registry.subscriptions().values():
                await found.want(each)

            async def follow() -> None:
                while True:
                    await found.reconcile()
                    await asyncio.sleep(0.005)

            follower = asyncio.create_task(follow())
            try:
                yield found
            finally:
                follower.cancel()
                await asyncio.wait([follower])
                await found.close()
                await acks.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_delays_double_up_to_a_limit_and_are_never_the_same() -> None:
    settings, chance = PushSettings(first_retry_s=2.0, max_retry_s=3_600.0), Random(7)
    for failures in range(1, 2_000):
        whole = min(3_600.0, 2.0 * 2.0 ** min(failures - 1, 20))
        assert whole / 2 <= settings.retry_delay_s(failures, chance) <= whole
    assert len({settings.retry_delay_s(3, chance) for _ in range(20)}) == 20
    assert settings.retry_delay_s(1, chance, min_s=60.0) == 60.0
    assert settings.retry_delay_s(1, chance, min_s=1e9) == 3_600.0


def test_the_cursor_in_the_registry_follows(place: Place) -> None:
    async def work() -> None:
        place.subscribe(text="speed > 90")
        place.truth.append("a.0", 200)
        receiving = Receiving()
        async with place.push_pool(receiving):
            end = place.log.end("gps").text
            await until(lambda: place.registry.subscription("s").cursor == end, "the cursor to be at the end")
        assert receiving.ids == place.truth.wanted("a.0", 0, lambda n: n % 100 > 90)

    run(work())


def test_a_failure_is_in_the_registry_before_it_is_waited_for(tmp_path: Path) -> None:
    async def work() -> None:
        place = Place(tmp_path, replace(HASTY, first_retry_s=100.0, max_retry_s=1_000.0))
        place.subscribe()
        place.truth.append("a.0", 3)
        receiving = Receiving(Outcome("taken"), Outcome("failed", "no answer"))
        async with place.push_pool(receiving):
            await until(lambda: place.registry.subscription("s").attempts == 1, "the failure")
            found = place.registry.subscription("s")
        assert receiving.ids == ["a.0:0", "a.0:1"]
        assert found.retry_at is not None
        assert timedelta(seconds=50) <= found.retry_at - place.now <= timedelta(seconds=100)
        place.now = found.retry_at  # it is time
        receiving = Receiving()
        async with place.push_pool(receiving):
            await until(lambda: receiving.ids == ["a.0:1", "a.0:2"], "the rest, none again")
            await until(lambda: place.registry.subscription("s").attempts == 0, "the failure to be forgotten")

    run(work())


def test_a_refused_batch_is_sent_one_by_one(place: Place) -> None:
    async def work() -> None:
        place.subscribe(batch=3)
        place.truth.append("a.0", 4)
        refused = Outcome("refused", "what is that?")
        receiving = Receiving(refused, Outcome("taken"), refused)
        async with place.push_pool(receiving):
            await until(lambda: len(receiving.got) == 5, "all messages")
            await until(lambda: bool(place.registry.dead_letters("s")), "the dead letter")
        sent = [ids for _, ids in receiving.got]
        assert sent == [["a.0:0", "a.0:1", "a.0:2"], ["a.0:0"], ["a.0:1"], ["a.0:2"], ["a.0:3"]]
        (letter,) = place.registry.dead_letters("s")
        assert (b'"a.0:1"' in letter.record, letter.error, letter.attempts) == (True, "what is that?", 1)

    run(work())


def test_a_filter_that_does_not_fit_any_more_disables(place: Place) -> None:
    async def work() -> None:
        place.subscribe(text="sped > 3")
        async with place.push_pool(Receiving()):
            await until(lambda: place.registry.subscription("s").state == "disabled", "it to be disabled")
        assert "unknown field 'sped'" in (place.registry.subscription("s").reason or "")

    run(work())


def test_of_two_holders_one_delivers(place: Place) -> None:
    async def work() -> None:
        for n in range(5):
            place.subscribe(f"s{n}")
        one, other = Receiving(), Receiving()
        async with place.push_pool(one, "one"), place.push_pool(other, "other"):
            place.truth.append("a.0", 20)
            await until(lambda: len(one.ids) + len(other.ids) == 100, "all events, each once")
        by = [{id_ for id_, _ in each.got} for each in (one, other)]
        assert not by[0] & by[1]
        assert place.registry.leases() == {}

    run(work())


def test_who_can_not_renew_a_lease_stops_before_it_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def fail(*_: object) -> bool:
        nonlocal asked
        asked += 1
        raise RegistryError("the database is away")

    async def work() -> None:
        place.subscribe()
        async with place.push_pool(Receiving()) as pool:
            await until(lambda: pool.subscriber("s") is not None, "it to be delivered")
            monkeypatch.setattr(place.registry, "lease", fail)
            place.seconds += HASTY.lease_s * 0.85
            await until(lambda: asked == 1, "the lease to be asked for")
            assert pool.subscriber("s") is not None, "it is ours still"
            place.seconds += HASTY.lease_s * 0.1
            await until(lambda: pool.subscriber("s") is None, "it to stop")
            assert [each.holder for each in place.registry.leases().values()] == ["h"]
            place.seconds += HASTY.lease_s
            for _ in range(3):  # and it does not begin again with a lease that ran out
                await pool.reconcile()
                assert pool.subscriber("s") is None
            monkeypatch.undo()
            place.seconds += HASTY.lease_s
            await until(lambda: pool.subscriber("s") is not None, "it to be delivered again")

    run(work())


def test_a_courier_that_failed_begins_anew(place: Place) -> None:
    class Broken(Receiving):
        async def send(self, subscription: Subscription, events: Sequence[PendingEvent]) -> Outcome:
            await super().send(subscription, events)
            if len(self.got) == 2:
                raise ZeroDivisionError
            return Outcome("taken")

    async def work() -> None:
        place.subscribe()
        place.truth.append("a.0", 3)
        receiving = Broken()
        async with place.push_pool(receiving):
            await until(lambda: receiving.ids == ["a.0:0", "a.0:1", "a.0:1", "a.0:2"], "all events")

    run(work())
