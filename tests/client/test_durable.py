"""Durable subscriptions from Python, against a real gateway: what was not dealt with comes again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.proxy import proxy
from tests.client.test_subscription import SOON, ids, take
from tests.gateway.running import World
from tests.pipelines.running import PATIENCE_S
from tidegate import Filter
from tidegate.client import AsyncClient, Client, Notice, Refused, SubscriptionEnded, course
from tidegate.errors import ClientError


def made(client: Client, **more: Any) -> str:
    id_: str = client.create_subscription("gps", since="beginning", **more)["id"]
    return id_


def test_made_shown_listed_changed_explained_and_removed(world: World) -> None:
    with Client(world.url) as client:
        found = client.create_subscription(
            "gps", "speed > %0", params=[90], select="vid,speed", format="plain", every=0.5, key="vid", idle=30,
            description="the fastest",
        )  # fmt: skip
        id_ = found["id"]
        assert (found["filter"], found["params"], found["select"]) == ("speed > %0", [90], ["vid", "speed"])
        assert (found["every"], found["key"], found["idle"]) == ("500ms", "vid", "30s")
        assert client.subscription(id_)["description"] == "the fastest"
        assert [each["id"] for each in client.subscriptions("gps")] == [id_]
        changed = client.change_subscription(id_, filter=Filter("speed > 95"), params=None, select=["vid"], version=1)
        assert (changed["filter"], changed["version"], changed["select"]) == ("speed > 95", 2, ["vid"])
        with pytest.raises(Refused) as refused:
            client.change_subscription(id_, description="slow", version=1)
        assert refused.value.status == 412
        said = client.explain(id_, {"vid": "B1", "speed": 96.0})
        assert (said["subscription"], said["canonical"]) == (id_, "speed > 95")
        assert client.explain(id_)["subscription"] == id_
        client.delete_subscription(id_)
        with pytest.raises(Refused, match=id_):
            client.subscription(id_)


def test_a_webhook_its_dead_letters_and_enabling(world: World) -> None:
    with Client(world.url) as client:
        webhook = {"url": "http://127.0.0.1:9/in", "handshake": False, "batch": 5}
        found = client.create_subscription("gps", webhook=webhook)
        id_ = found["id"]
        assert found["deliver"]["webhook"]["secret"].startswith("whsec_")
        assert client.dead_letters(id_) == []
        assert client.redeliver(id_) == {"delivered": [], "failed": [], "untried": []}
        with pytest.raises(Refused, match="has no dead letter 7"):
            client.redeliver(id_, [7])
        assert client.enable_subscription(id_)["state"] == "active"
        assert client.change_subscription(id_, webhook=None)["deliver"] == "pull"
        with pytest.raises(ClientError, match="can't be written as JSON"):
            client.change_subscription(id_, params=[object()])


def fail_at_the_third(client: Client, id_: str) -> None:
    with client.consume(id_) as found:
        assert take(3, found) == ids(4, 7)
        raise ZeroDivisionError  # the last was not dealt with


def test_what_was_dealt_with_is_acknowledged_and_the_rest_comes_again(world: World) -> None:
    world.append(10)
    with Client(world.url) as client:
        id_ = made(client)
        with client.consume(id_) as found:
            assert take(4, found) == ids(0, 4)
        with pytest.raises(ZeroDivisionError):
            fail_at_the_third(client, id_)
        with client.consume(id_, auto_ack=False) as found:
            assert take(4, found) == ids(6, 10)
        with client.consume(id_, auto_ack=False) as found:
            events = [next(found) for _ in range(4)]
            assert [each.id for each in events] == ids(6, 10)
            found.ack(events[1])
            assert client.subscription(id_)["cursor"] == events[1].cursor
            found.ack()
            assert client.subscription(id_)["cursor"] == events[3].cursor
        world.append(1)
        with client.consume(id_) as found:
            assert take(1, found) == ids(10, 11)


def test_an_event_is_acknowledged_as_soon_as_the_next_is_waited_for(world: World) -> None:
    async def work() -> None:
        async with AsyncClient(world.url) as client:
            id_ = (await client.create_subscription("gps"))["id"]
            async with client.consume(id_) as found:
                world.append(3)
                events = [await anext(found) for _ in range(3)]
                waiting = asyncio.ensure_future(anext(found))
                async with asyncio.timeout(PATIENCE_S):
                    while (await client.subscription(id_))["cursor"] != events[-1].cursor:  # noqa: ASYNC110 - it is the gateway's
                        await asyncio.sleep(0.01)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await found.ack(events[0])
            assert [each["id"] for each in await client.subscriptions("gps")] == [id_]
            await client.change_subscription(id_, filter="speed > 1")
            assert (await client.explain(id_))["subscription"] == id_
            assert await client.dead_letters(id_) == []
            await client.delete_subscription(id_)

    asyncio.run(work())


def test_lost_connections_lose_and_double_nothing_and_acknowledge_nothing(world: World) -> None:
    world.append(300)
    with Client(world.url) as client:
        id_ = made(client, format="plain")
    with proxy(world.port) as cut, Client(cut.url, reconnect=SOON) as client:
        cut.cuts = [3_000, 100, 20_000, 7_001, 9_000]
        with client.consume(id_, auto_ack=False) as found:
            assert take(300, found) == ids(0, 300)
            world.append(50)
            assert take(50, found) == ids(300, 350)
        assert not cut.cuts
        with client.consume(id_) as again:
            assert take(1, again) == ids(0, 1)


def test_changes_are_told_and_a_removal_is_the_end(world: World) -> None:
    told: list[Notice] = []
    with Client(world.url) as client:
        id_ = made(client, filter="speed < 3")
        world.append(10)
        with client.consume(id_, on_notice=told.append) as found:
            assert take(3, found) == ids(0, 3)
            client.change_subscription(id_, filter="speed > 12", format="plain")
            world.append(10)
            assert next(found).data["speed"] == 13.0
            assert [(each.kind, each.said["filter"]) for each in told] == [("changed", "speed > 12")]
            client.delete_subscription(id_)
            with pytest.raises((SubscriptionEnded, Refused)):
                take(100, found)


def test_the_newest_of_each_key_first(world: World) -> None:
    world.append(100)
    told: list[Notice] = []
    with Client(world.url) as client:
        with client.subscribe("gps", latest="vid", on_notice=told.append) as found:
            assert take(10, found) == ids(90, 100)
            world.append(1)
            assert take(1, found) == ids(100, 101)
        with client.consume(made(client), latest="vid", on_notice=told.append) as found:
            assert take(10, found) == ids(91, 101)
            world.append(1)
            assert take(1, found) == ids(101, 102)
        assert [(each.kind, each.said["events"]) for each in told] == [("latest", 10), ("latest", 10)]
        page = client.events("gps", latest="vid")
        assert (len(page.events), page.latest) == (10, {"events": 10, "complete": True})
        for key in ("vid", None):
            page = client.events("gps", since="beginning", every=1.0, key=key)
            assert [each.id for each in page.events] == ids(92, 102)
        with client.subscribe("gps", since="beginning", every=0.05, key="vid") as found:
            assert take(10, found) == ids(92, 102)


def test_an_ad_hoc_subscription_keeps_no_place(world: World) -> None:
    with Client(world.url) as client:
        with pytest.raises(ClientError, match="a subscription to 'gps' keeps no place"):
            client.subscribe("gps").ack("c")
        with pytest.raises(ClientError, match="expected an event with a cursor"):
            client.consume("sub_1").ack()
        with pytest.raises(Refused, match="sub_1"):
            next(client.consume("sub_1"))


class Still:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def durable(clock: Callable[[], float]) -> course.Course:
    wanted = course.Wanted.of_durable("s", None, acks=True)
    return course.Course(wanted, course.Reconnect(), None, lambda: 1.0, clock)


def test_while_events_come_without_a_pause_they_are_acknowledged_from_time_to_time() -> None:
    clock = Still()
    found = durable(clock)
    found.opened()
    found.feed(b"".join(b'id: c%d\ndata: {"_id":"e%d","_time":null}\n\n' % (n, n) for n in range(9)))
    assert found.ack_due() is None
    found.next()
    assert found.ack_due() is None
    clock.now_s += course.ACK_S
    due = found.ack_due()
    assert due is not None
    assert due.body == b'{"cursor": "c0"}'
    found.not_acked(ClientError("lost"))
    found.next()
    assert found.ack_due() is None
    clock.now_s += course.ACK_S
    due = found.ack_due()
    assert due is not None
    assert due.body == b'{"cursor": "c1"}'
    found.acked()
    assert found.ack_rest() is None
    with pytest.raises(Refused):
        found.not_acked(Refused("gone", 404))
