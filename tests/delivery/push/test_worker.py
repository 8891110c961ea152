"""Push workers without HTTP: what they send, when they retry, when they stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.delivery.test_hub import Truth, hub_on, run, until
from tidegate.delivery.acks import Acknowledgements
from tidegate.delivery.push.context import LEASE_PREFIX, PushContext, PushSettings
from tidegate.delivery.push.placement import Peer, choose_peer
from tidegate.delivery.push.pool import PushPool
from tidegate.delivery.push.transport import Outcome, PendingEvent
from tidegate.errors import RegistryError
from tidegate.logs import SegmentLog
from tidegate.registry import Fence, SqliteRegistry
from tidegate.services import loads
from tidegate.subscriptions import PushTarget, SubscriptionRecord, Webhook, new_secret

SERVICE = """
streams: {raw: {schema: {n: int64, speed: float64}}}
services: {gps: {from: raw}}
"""
HASTY = PushSettings(first_retry_s=0.001, max_retry_s=0.01, max_attempts=3, lease_s=60.0, ack_interval_s=0.01)
"""Short delays, but a long lease: a busy machine may renew it late."""


class Receiving:
    """Records messages, and returns the given outcomes in order, then `taken`."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.got: list[tuple[str, list[str]]] = []

    async def send(self, subscription: SubscriptionRecord, events: Sequence[PendingEvent]) -> Outcome:
        self.got.append((subscription.id, [each.record.split(b'"')[3].decode() for each in events]))
        return self.outcomes.pop(0) if self.outcomes else Outcome("taken")

    async def validate(self, target: PushTarget, *, handshake: bool) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    @property
    def ids(self) -> list[str]:
        return [id_ for _, ids in self.got for id_ in ids]


class PushWorld:
    def __init__(self, folder: Path, settings: PushSettings = HASTY) -> None:
        self.seconds = 1_000.0
        """The clock of leases, for the registry and for the holder; only tests move it."""
        self.registry = SqliteRegistry(folder / "registry.sqlite", clock=lambda: round(self.seconds * 1e6))
        self.registry.apply(loads(SERVICE))
        self.log = SegmentLog(folder / "log")
        self.log.create("gps", ["a.0", "b.0"])
        self.truth, self.settings = Truth(self.log), settings
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def subscribe(self, id_: str = "s", text: str = "", batch: int = 1) -> None:
        webhook = Webhook("http://example.com/", (new_secret(),), batch)
        self.registry.subscribe(SubscriptionRecord(id_, "gps", text, deliver=webhook), self.log.begin("gps").text)

    @asynccontextmanager
    async def push_pool(
        self, transport: Receiving, holder: str = "h", peers: Callable[[], Collection[Peer]] = tuple
    ) -> AsyncIterator[PushPool]:
        async with hub_on(self.log) as hub:
            fenced = partial(self.registry.acknowledge_all, fence=Fence(holder, LEASE_PREFIX))
            acks = Acknowledgements(fenced, 0.005)
            context = PushContext(
                self.registry, acks, transport, self.settings, holder, lambda: self.now, Random(1), peers=peers
            )
            pool = PushPool(hub, context, lambda: self.seconds)
            for each in self.registry.subscriptions().values():
                await pool.want(each)

            async def follow() -> None:
                while True:
                    await pool.reconcile()
                    await asyncio.sleep(0.005)

            follower = asyncio.create_task(follow())
            try:
                yield pool
            finally:
                follower.cancel()
                await asyncio.wait([follower])
                await pool.close()
                await acks.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PushWorld]:
    world = PushWorld(tmp_path)
    yield world
    world.registry.close()


def test_retry_delays_double_up_to_a_limit_with_jitter() -> None:
    settings, chance = PushSettings(first_retry_s=2.0, max_retry_s=3_600.0), Random(7)
    for failures in range(1, 2_000):
        whole = min(3_600.0, 2.0 * 2.0 ** min(failures - 1, 20))
        assert whole / 2 <= settings.retry_delay_s(failures, chance) <= whole
    assert len({settings.retry_delay_s(3, chance) for _ in range(20)}) == 20
    assert settings.retry_delay_s(1, chance, min_s=60.0) == 60.0
    assert settings.retry_delay_s(1, chance, min_s=1e9) == 3_600.0


def test_cursor_in_the_registry_reaches_the_end_of_the_log(world: PushWorld) -> None:
    async def work() -> None:
        world.subscribe(text="speed > 90")
        world.truth.append("a.0", 200)
        receiving = Receiving()
        async with world.push_pool(receiving):
            end = world.log.end("gps").text
            await until(lambda: world.registry.subscription("s").cursor == end, "the cursor to be at the end")
        assert receiving.ids == world.truth.wanted("a.0", 0, lambda n: n % 100 > 90)

    run(work())


def test_failure_is_stored_before_the_retry_delay_and_survives_a_restart(world: PushWorld) -> None:
    async def work() -> None:
        world.settings = replace(HASTY, first_retry_s=100.0, max_retry_s=1_000.0)
        world.subscribe()
        world.truth.append("a.0", 3)
        receiving = Receiving(Outcome("taken"), Outcome("failed", "no answer"))
        async with world.push_pool(receiving):
            await until(lambda: world.registry.subscription("s").attempts == 1, "the failure")
            stored = world.registry.subscription("s")
        assert receiving.ids == ["a.0:0", "a.0:1"]
        assert stored.retry_at is not None
        assert timedelta(seconds=50) <= stored.retry_at - world.now <= timedelta(seconds=100)
        world.now = stored.retry_at  # the retry is due
        receiving = Receiving()
        async with world.push_pool(receiving):
            await until(lambda: receiving.ids == ["a.0:1", "a.0:2"], "the rest, none again")
            await until(lambda: world.registry.subscription("s").attempts == 0, "the attempts to be reset")

    run(work())


def test_refused_batch_is_sent_again_one_event_at_a_time(world: PushWorld) -> None:
    async def work() -> None:
        world.subscribe(batch=3)
        world.truth.append("a.0", 4)
        refused = Outcome("refused", "what is that?")
        receiving = Receiving(refused, Outcome("taken"), refused)
        async with world.push_pool(receiving):
            await until(lambda: len(receiving.got) == 5, "all messages")
            await until(lambda: bool(world.registry.dead_letters("s")), "the dead letter")
        sent = [ids for _, ids in receiving.got]
        assert sent == [["a.0:0", "a.0:1", "a.0:2"], ["a.0:0"], ["a.0:1"], ["a.0:2"], ["a.0:3"]]
        (letter,) = world.registry.dead_letters("s")
        assert (b'"a.0:1"' in letter.record, letter.error, letter.attempts) == (True, "what is that?", 1)

    run(work())


def test_filter_that_does_not_fit_the_schema_disables_the_subscription(world: PushWorld) -> None:
    async def work() -> None:
        world.subscribe(text="sped > 3")
        async with world.push_pool(Receiving()):
            await until(lambda: world.registry.subscription("s").state == "disabled", "it to be disabled")
        assert "unknown field 'sped'" in (world.registry.subscription("s").reason or "")

    run(work())


def test_each_subscription_is_delivered_by_one_of_two_gateways(world: PushWorld) -> None:
    async def work() -> None:
        for n in range(5):
            world.subscribe(f"s{n}")
        one, other = Receiving(), Receiving()
        async with world.push_pool(one, "one"), world.push_pool(other, "other"):
            world.truth.append("a.0", 20)
            await until(lambda: len(one.ids) + len(other.ids) == 100, "all events, each once")
        by = [{id_ for id_, _ in each.got} for each in (one, other)]
        assert not by[0] & by[1]
        assert world.registry.leases() == {}

    run(work())


def test_subscriptions_spread_evenly_and_only_those_of_a_lost_gateway_move() -> None:
    records = [SubscriptionRecord(f"s{n}", "gps", "") for n in range(3_000)]
    three = [Peer("a"), Peer("b"), Peer("c")]
    before = {record.id: choose_peer(record, three) for record in records}
    assert all(900 <= list(before.values()).count(peer.id) <= 1_100 for peer in three)
    after = {record.id: choose_peer(record, three[:2]) for record in records}
    assert all(after[id_] == peer for id_, peer in before.items() if peer != "c")
    semantic = [SubscriptionRecord(f"s{n}", "gps", "name ~ 'bus'") for n in range(20)]
    assert {choose_peer(record, [*three, Peer("d", has_semantics=True)]) for record in semantic} == {"d"}
    assert len({choose_peer(record, three) for record in semantic}) == 3, "nobody has semantics"


def test_subscriptions_move_to_a_gateway_that_comes_and_back_when_it_goes(world: PushWorld) -> None:
    async def work() -> None:
        for n in range(8):
            world.subscribe(f"s{n}")
        peers = [Peer("one")]
        one, other = Receiving(), Receiving()

        def delivered() -> list[str]:
            return [f"{id_} {event}" for each in (one, other) for id_, events in each.got for event in events]

        def held(holder: str) -> int:
            return sum(lease.holder == holder for lease in world.registry.leases().values())

        async with world.push_pool(one, "one", lambda: peers) as first:
            world.truth.append("a.0", 5)
            await until(lambda: len(one.ids) == 40, "all events")
            peers = [Peer("one"), Peer("other")]
            mine = {f"s{n}" for n in range(8) if choose_peer(SubscriptionRecord(f"s{n}", "gps", ""), peers) == "one"}
            assert 0 < len(mine) < 8
            async with world.push_pool(other, "other", lambda: peers) as second:
                world.seconds += HASTY.lease_s / 2
                # Its workers end before their cursors are stored: the leases must not end in between.
                await until(lambda: held("one") == len(mine), "the first to give some up")
                assert first.count == len(mine)
                world.seconds += HASTY.lease_s / 2
                await until(lambda: second.count == 8 - len(mine), "the second to take them")
                world.truth.append("a.0", 5)
                await until(lambda: len(delivered()) == 80, "all events, each once")
                assert {id_ for id_, _ in other.got} == {f"s{n}" for n in range(8)} - mine
            peers = [Peer("one")]
            world.seconds += HASTY.lease_s / 2
            await until(lambda: first.count == 8, "the first to have all again")
            world.truth.append("a.0", 5)
            await until(lambda: len(delivered()) == 120, "all events, each once")
        assert len(set(delivered())) == 120

    run(work())


def test_gateway_that_was_stopped_sends_nothing_that_another_has_sent_meanwhile(world: PushWorld) -> None:
    """Its process is stopped during a message. When it continues, another gateway has delivered and ended."""
    is_stopped, goes_on = asyncio.Event(), asyncio.Event()

    class Stopping(Receiving):
        async def send(self, subscription: SubscriptionRecord, events: Sequence[PendingEvent]) -> Outcome:
            outcome = await super().send(subscription, events)
            if len(self.got) == 2:
                is_stopped.set()
                await goes_on.wait()
            return outcome

    async def work() -> None:
        world.subscribe()
        begin = world.registry.subscription("s").cursor
        world.truth.append("a.0", 6)
        stopped, other = Stopping(), Receiving()
        async with world.push_pool(stopped) as pool:
            await is_stopped.wait()
            await until(lambda: world.registry.subscription("s").cursor != begin, "the first cursor to be stored")
            reconcile, pool.reconcile = pool.reconcile, _nothing  # type: ignore[method-assign]
            world.seconds += HASTY.lease_s
            async with world.push_pool(other, "other"):
                await until(lambda: len(other.ids) == 5, "the rest, with the one unanswered")
            stored = world.registry.subscription("s").cursor
            goes_on.set()
            await until(lambda: pool._running["s"][1].done(), "the worker to see that its lease has ended")
            assert other.ids == [f"a.0:{n}" for n in range(1, 6)]
            assert stopped.ids == ["a.0:0", "a.0:1"]
            await asyncio.sleep(0.05)
            assert world.registry.subscription("s").cursor == stored, "an old cursor is not stored"
            pool.reconcile = reconcile  # type: ignore[method-assign]
            world.truth.append("a.0", 1)
            await until(lambda: stopped.ids == ["a.0:0", "a.0:1", "a.0:6"], "the next event only")

    run(work())


def test_many_subscriptions_start_before_their_leases_end(world: PushWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query of the registry takes a second: one for each of them would be longer than a lease."""

    def slow(query: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            world.seconds += 1
            return query(*arguments)

        return call

    async def work() -> None:
        for n in range(300):
            world.subscribe(f"s{n}")
        for name in ("subscription", "find_subscriptions"):
            monkeypatch.setattr(world.registry, name, slow(getattr(world.registry, name)))
        receiving = Receiving()
        async with world.push_pool(receiving) as pool:
            await until(lambda: pool.count == 300, "all to be delivered")
            world.truth.append("a.0", 1)
            await until(lambda: len(receiving.got) == 300, "the event at all receivers")
        assert world.seconds - 1_000 < HASTY.lease_s

    run(work())


async def _nothing() -> None:
    pass


def test_gateway_that_cannot_renew_a_lease_stops_before_the_lease_ends(
    world: PushWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def fail(*_: object) -> bool:
        nonlocal asked
        asked += 1
        raise RegistryError("the database is away")

    async def work() -> None:
        world.subscribe()
        async with world.push_pool(Receiving()) as pool:
            await until(lambda: pool.subscriber("s") is not None, "it to be delivered")
            monkeypatch.setattr(world.registry, "lease_all", fail)
            world.seconds += HASTY.lease_s * 0.85
            await until(lambda: asked == 1, "the lease to be asked for")
            assert pool.subscriber("s") is not None, "the lease has not ended yet"
            world.seconds += HASTY.lease_s * 0.1
            await until(lambda: pool.subscriber("s") is None, "it to stop")
            assert [each.holder for each in world.registry.leases().values()] == ["h"]
            world.seconds += HASTY.lease_s
            for _ in range(3):  # it does not start again with a lease that has ended
                await pool.reconcile()
                assert pool.subscriber("s") is None
            monkeypatch.undo()
            world.seconds += HASTY.lease_s
            await until(lambda: pool.subscriber("s") is not None, "it to be delivered again")

    run(work())


def test_push_worker_that_raised_is_started_again(world: PushWorld) -> None:
    class Broken(Receiving):
        async def send(self, subscription: SubscriptionRecord, events: Sequence[PendingEvent]) -> Outcome:
            await super().send(subscription, events)
            if len(self.got) == 2:
                raise ZeroDivisionError
            return Outcome("taken")

    async def work() -> None:
        world.subscribe()
        world.truth.append("a.0", 3)
        receiving = Broken()
        async with world.push_pool(receiving):
            await until(lambda: receiving.ids == ["a.0:0", "a.0:1", "a.0:1", "a.0:2"], "all events")

    run(work())
