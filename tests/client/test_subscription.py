"""Subscriptions against a real gateway: nothing is missed, nothing comes twice."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.proxy import proxy
from tests.gateway.running import World
from tidegate import Filter
from tidegate.client import AsyncClient, Client, Event, Missed, Notice, Reconnect, Refused, Unreachable

SOON = Reconnect(most_s=0.001)


def ids(begin: int, end: int) -> list[str]:
    return [f"gps_taxi:0:{n}" for n in range(begin, end)]


def take(count: int, subscription: Any) -> list[str]:
    return [each.id for each in islice(subscription, count)]


def test_what_matches_comes_with_its_place(world: World) -> None:
    with Client(world.url) as client, client.subscribe("gps", "speed > %0", params=[97], select=["vid"]) as found:
        world.append(100)
        first = next(found)
        assert first == Event(
            "gps_taxi:0:98",
            found.cursor,
            {"vid": "B8"},
            "2026-01-01T00:00:00.000000Z",
            {
                "specversion": "1.0",
                "id": "gps_taxi:0:98",
                "source": "/v1/services/gps",
                "type": "tidegate.event",
                "time": "2026-01-01T00:00:00.000000Z",
                "datacontenttype": "application/json",
            },
        )
        with client.subscribe("gps", Filter("speed > 97"), cursor=first.cursor, format="plain") as other:
            assert next(other) == Event(
                "gps_taxi:0:99",
                other.cursor,
                {"vid": "B9", "speed": 99.0, "time": "2026-01-01T00:00:00.000000Z"},
                "2026-01-01T00:00:00.000000Z",
            )


async def test_awaited(world: World) -> None:
    async with AsyncClient(world.url) as client, client.subscribe("gps") as found:
        world.append(3)
        assert [(await anext(found)).id for _ in range(3)] == ids(0, 3)
        # A wait that is given up loses nothing.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(found), 0.02)
        world.append(2)
        assert [(await anext(found)).id for _ in range(2)] == ids(3, 5)
        await found.close()
        assert [each async for each in found] == []
        page = await client.events("gps", since="beginning", most=2)
        assert [each.id for each in page.events] == ids(0, 2)
        assert (await client.service("gps"))["name"] == "gps"
        assert [each["name"] for each in await client.services()] == ["gps", "fast"]
        with pytest.raises(Refused, match="no service 'gsp'; did you mean 'gps'"):
            await client.status("gsp")


def test_without_a_with_it_connects_when_asked(world: World) -> None:
    world.append(2)
    with Client(world.url) as client:
        found = client.subscribe("gps", since="beginning")
        assert take(2, found) == ids(0, 2)
        found.close()
        assert list(found) == []


def test_a_gateway_that_is_started_again(tmp_path: Path) -> None:
    world, lost = World(tmp_path), []
    with world.running():
        client = Client(world.url, reconnect=Reconnect(most_s=0.05))
        found = client.subscribe("gps", on_notice=lost.append)
        with found:
            world.append(5)
    with client, found:
        pytest.fail("it was closed")


@pytest.mark.parametrize("since", ["beginning", "now"])
@given(cuts=st.lists(st.integers(0, 3_000), max_size=8))
@settings(max_examples=15)
def test_connections_that_are_cut_anywhere(since: str, cuts: list[int], tmp_path_factory: Any) -> None:
    world = _shared(tmp_path_factory)
    with proxy(world.port) as between, Client(between.url, reconnect=SOON) as client:
        between.cuts = cuts
        first = world.sent if since == "now" else 0
        with client.subscribe("gps", since=since) as found:
            world.append(10)
            assert take(world.sent - first, found) == ids(first, world.sent)
            world.append(1)  # what came twice would come before it
            assert take(1, found) == ids(world.sent - 1, world.sent)
