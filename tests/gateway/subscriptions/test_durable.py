"""A change between reading a subscription and connecting to it, which HTTP can't time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.delivery.sinks import Recording
from tests.gateway.running import World
from tidegate.delivery.encoding import encoding_of
from tidegate.delivery.subscriber import Subscriber
from tidegate.subscriptions import SubscriptionRecord, compiled


def test_change_before_connecting_reaches_the_subscriber(tmp_path: Path) -> None:
    async def work() -> None:
        world = World(tmp_path)
        gateway = world.gateway()
        await gateway.start()
        try:
            old = SubscriptionRecord("s", "gps", "speed > 1")
            found = await gateway.durable.change(lambda registry: registry.subscribe(old, None))
            new = replace(old, filter="speed > 2", select=("vid",))
            await gateway.durable.change(lambda registry: registry.change_subscription(new))
            late = Subscriber(
                "s#0", "gps", compiled(old, gateway.hub.schema("gps")), Recording(), encoding_of(old), None
            )
            gateway.durable.connect(found, late)
            assert late.filter is not None
            assert (late.filter.text, late.encoding.select) == ("speed > 2", ("vid",))
            assert gateway.durable.connected("s") == [late]
            gateway.hub.unsubscribe(late)
            assert gateway.durable.connected("s") == []
        finally:
            await gateway.close()

    asyncio.run(work())
