"""Durable subscriptions in Python with a real gateway: unacknowledged events are delivered again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.proxy import proxy
from tests.client.test_subscription import FAST_RECONNECT, ids, take
from tests.gateway.running import World
from tests.pipelines.running import PATIENCE_S
from tidegate import Filter
from tidegate.client import AsyncClient, Client, Notice, Refused, SubscriptionEnded
from tidegate.errors import ClientError


def create(client: Client, **more: Any) -> str:
    id_: str = client.create_subscription("gps", since="beginning", **more)["id"]
    return id_


def test_subscription_is_created_listed_changed_explained_and_deleted(world: World) -> None:
    with Client(world.url) as client:
        created = client.create_subscription(
            "gps", "speed > %0", params=[90], select="vid,speed", format="plain", every=0.5, key="vid", idle=30,
            description="the fastest",
        )  # fmt: skip
        id_ = created["id"]
        assert (created["filter"], created["params"], created["select"]) == ("speed > %0", [90], ["vid", "speed"])
        assert (created["every"], created["key"], created["idle"]) == ("500ms", "vid", "30s")
        assert client.subscription(id_)["description"] == "the fastest"
        assert [listed["id"] for listed in client.subscriptions("gps")] == [id_]
        changed = client.change_subscription(id_, filter=Filter("speed > 95"), params=None, select=["vid"], version=1)
        assert (changed["filter"], changed["version"], changed["select"]) == ("speed > 95", 2, ["vid"])
        with pytest.raises(Refused) as refused:
            client.change_subscription(id_, description="slow", version=1)
        assert refused.value.status == 412
        explained = client.explain(id_, {"vid": "B1", "speed": 96.0})
        assert (explained["subscription"], explained["canonical"]) == (id_, "speed > 95")
        assert client.explain(id_)["subscription"] == id_
        client.delete_subscription(id_)
        with pytest.raises(Refused, match=id_):
            client.subscription(id_)


def test_webhook_has_dead_letters_and_is_enabled_and_changed_to_pull(world: World) -> None:
    with Client(world.url) as client:
        webhook = {"url": "http://127.0.0.1:9/in", "handshake": False, "batch": 5}
        created = client.create_subscription("gps", webhook=webhook)
        id_ = created["id"]
        assert created["deliver"]["webhook"]["secret"].startswith("whsec_")
        assert client.dead_letters(id_) == []
        assert client.redeliver(id_) == {"delivered": [], "failed": [], "untried": []}
        with pytest.raises(Refused, match="has no dead letter 7"):
            client.redeliver(id_, [7])
        assert client.enable_subscription(id_)["state"] == "active"
        assert client.change_subscription(id_, webhook=None)["deliver"] == "pull"
        changed = client.change_subscription(id_, deliver={"webhook": webhook})
        assert changed["deliver"]["webhook"]["batch"] == 5
        other = client.create_subscription("gps", deliver={"webhook": webhook})
        assert other["deliver"]["webhook"]["url"] == webhook["url"]
        with pytest.raises(ValueError, match="expected webhook or deliver, not both"):
            client.create_subscription("gps", webhook=webhook, deliver="pull")
        with pytest.raises(ClientError, match="can't be written as JSON"):
            client.change_subscription(id_, params=[object()])


def fail_at_the_third(client: Client, id_: str) -> None:
    with client.consume(id_) as subscription:
        assert take(3, subscription) == ids(4, 7)
        raise ZeroDivisionError  # the last event was not processed


def test_processed_events_are_acknowledged_and_others_are_redelivered(world: World) -> None:
    world.append(10)
    with Client(world.url) as client:
        id_ = create(client)
        with client.consume(id_) as subscription:
            assert take(4, subscription) == ids(0, 4)
        with pytest.raises(ZeroDivisionError):
            fail_at_the_third(client, id_)
        with client.consume(id_, auto_ack=False) as subscription:
            assert take(4, subscription) == ids(6, 10)
        with client.consume(id_, auto_ack=False) as subscription:
            events = [next(subscription) for _ in range(4)]
            assert [event.id for event in events] == ids(6, 10)
            subscription.ack(events[1])
            assert client.subscription(id_)["cursor"] == events[1].cursor
            subscription.ack()
            assert client.subscription(id_)["cursor"] == events[3].cursor
        world.append(1)
        with client.consume(id_) as subscription:
            assert take(1, subscription) == ids(10, 11)


def test_event_is_acknowledged_while_the_next_is_awaited(world: World) -> None:
    async def work() -> None:
        async with AsyncClient(world.url) as client:
            id_ = (await client.create_subscription("gps"))["id"]
            async with client.consume(id_) as subscription:
                world.append(3)
                events = [await anext(subscription) for _ in range(3)]
                waiting = asyncio.ensure_future(anext(subscription))
                async with asyncio.timeout(PATIENCE_S):
                    while (await client.subscription(id_))["cursor"] != events[-1].cursor:  # noqa: ASYNC110 - the gateway changes it
                        await asyncio.sleep(0.01)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await subscription.ack(events[0])
            assert [listed["id"] for listed in await client.subscriptions("gps")] == [id_]
            await client.change_subscription(id_, filter="speed > 1")
            assert (await client.explain(id_))["subscription"] == id_
            assert await client.dead_letters(id_) == []
            await client.delete_subscription(id_)

    asyncio.run(work())


def test_lost_connections_neither_lose_repeat_nor_acknowledge_events(world: World) -> None:
    world.append(300)
    with Client(world.url) as client:
        id_ = create(client, format="plain")
    with proxy(world.port) as lossy, Client(lossy.url, reconnect=FAST_RECONNECT) as client:
        lossy.cuts = [3_000, 100, 20_000, 7_001, 9_000]
        with client.consume(id_, auto_ack=False) as subscription:
            assert take(300, subscription) == ids(0, 300)
            world.append(50)
            assert take(50, subscription) == ids(300, 350)
        assert not lossy.cuts
        with client.consume(id_) as again:
            assert take(1, again) == ids(0, 1)


def test_change_sends_a_notice_and_deletion_ends_the_subscription(world: World) -> None:
    notices: list[Notice] = []
    with Client(world.url) as client:
        id_ = create(client, filter="speed < 3")
        world.append(10)
        with client.consume(id_, on_notice=notices.append) as subscription:
            assert take(3, subscription) == ids(0, 3)
            client.change_subscription(id_, filter="speed > 12", format="plain")
            world.append(10)
            assert next(subscription).data["speed"] == 13.0
            assert [(notice.kind, notice.said["filter"]) for notice in notices] == [("changed", "speed > 12")]
            client.delete_subscription(id_)
            with pytest.raises((SubscriptionEnded, Refused)):
                take(100, subscription)


def test_latest_and_every_deliver_the_newest_event_of_each_key(world: World) -> None:
    world.append(100)
    notices: list[Notice] = []
    with Client(world.url) as client:
        with client.subscribe("gps", latest="vid", on_notice=notices.append) as subscription:
            assert take(10, subscription) == ids(90, 100)
            world.append(1)
            assert take(1, subscription) == ids(100, 101)
        with client.consume(create(client), latest="vid", on_notice=notices.append) as subscription:
            assert take(10, subscription) == ids(91, 101)
            world.append(1)
            assert take(1, subscription) == ids(101, 102)
        assert [(notice.kind, notice.said["events"]) for notice in notices] == [("latest", 10), ("latest", 10)]
        page = client.events("gps", latest="vid")
        assert (len(page.events), page.latest) == (10, {"events": 10, "complete": True})
        for key in ("vid", None):
            page = client.events("gps", since="beginning", every=1.0, key=key)
            assert [event.id for event in page.events] == ids(92, 102)
        with client.subscribe("gps", since="beginning", every=0.05, key="vid") as subscription:
            assert take(10, subscription) == ids(92, 102)


def test_ack_needs_a_durable_subscription_and_an_event(world: World) -> None:
    with Client(world.url) as client:
        with pytest.raises(ClientError, match="the subscription to 'gps' is not durable"):
            client.subscribe("gps").ack("c")
        with pytest.raises(ClientError, match="expected an event with a cursor"):
            client.consume("sub_1").ack()
        with pytest.raises(Refused, match="sub_1"):
            next(client.consume("sub_1"))
