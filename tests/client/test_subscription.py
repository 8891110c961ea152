"""Subscriptions against a real gateway: nothing is missed, nothing comes twice."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.proxy import proxy
from tests.gateway.running import CITY, World
from tests.pipelines.running import until
from tidegate import Filter
from tidegate.client import AsyncClient, Client, Event, Missed, Notice, Reconnect, Refused, Unreachable
from tidegate.errors import ClientError
from tidegate.gateway import server
from tidegate.logs import Cursor
from tidegate.services import loads

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


def test_awaited(world: World) -> None:
    asyncio.run(awaited(world))


async def awaited(world: World) -> None:
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
        assert [each["name"] for each in await client.services()] == ["fast", "gps"]
        with pytest.raises(Refused, match="no service 'gsp'; did you mean 'gps'"):
            await client.status("gsp")


def test_without_a_with_it_connects_when_asked(world: World) -> None:
    world.append(2)
    with Client(world.url) as client:
        found = client.subscribe("gps", since="beginning")
        assert take(2, found) == ids(0, 2)
        found.close()
        assert list(found) == []


def test_a_gateway_that_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DRAIN_S", 0)  # it need not wait for us
    world = World(tmp_path)
    kinds: list[str] = []
    with ExitStack() as left:
        with world.running():
            client = left.enter_context(Client(world.url, reconnect=Reconnect(most_s=0.05)))
            found = left.enter_context(client.subscribe("gps", on_notice=lambda notice: kinds.append(notice.kind)))
            quiet = left.enter_context(client.subscribe("gps", "speed > 10"))
            world.append(5)
            assert take(3, found) == ids(0, 3)
        world.append(5)  # while there is none
        with world.running():
            world.append(5)
            assert take(12, found) == ids(3, 15)
            assert take(4, quiet) == ids(11, 15)
    assert set(kinds) == {"lost"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway for many examples."""
    with World(tmp_path_factory.mktemp("world")).running() as found:
        yield found


def fail_rather_than_wait(notice: Notice) -> None:
    if notice.kind != "lost":
        pytest.fail(f"an event is missing: {notice}")


cuts_of_connections = st.lists(st.integers(0, 3_000), max_size=8)


@pytest.mark.parametrize("since", ["beginning", "now", "10m"])
@given(cuts=cuts_of_connections)
@settings(max_examples=8)
def test_connections_that_are_cut_anywhere(shared: World, since: str, cuts: list[int]) -> None:
    with proxy(shared.port) as between, Client(between.url, reconnect=SOON) as client:
        between.cuts = cuts
        first = shared.sent if since == "now" else 0
        with client.subscribe("gps", since=since, idle=10, on_notice=fail_rather_than_wait) as found:
            shared.append(10)
            assert take(shared.sent - first, found) == ids(first, shared.sent)
            shared.append(1)  # what came twice would come before it
            assert take(1, found) == ids(shared.sent - 1, shared.sent)


@given(cuts=cuts_of_connections)
@settings(max_examples=8)
def test_connections_that_are_cut_anywhere_awaited(shared: World, cuts: list[int]) -> None:
    async def run(url: str) -> None:
        async with (
            AsyncClient(url, reconnect=SOON) as client,
            client.subscribe("gps", idle=10, on_notice=fail_rather_than_wait) as found,
        ):
            first = shared.sent
            shared.append(20)
            assert [(await anext(found)).id for _ in range(20)] == ids(first, first + 20)
            shared.append(1)
            assert [(await anext(found)).id] == ids(first + 20, first + 21)

    with proxy(shared.port) as between:
        between.cuts = cuts
        asyncio.run(run(between.url))


def test_leaving_closes_the_connection(world: World) -> None:
    with Client(world.url) as client:
        with client.subscribe("gps"):
            until(lambda: client.status("gps")["subscribers"].get("live") == 1, "it to listen")
        until(lambda: client.status("gps")["subscribers"] == {}, "it to be gone")


def test_a_gap_is_raised_and_the_next_events_follow(world: World) -> None:
    world.append(2)
    elsewhere = Cursor("another", {"gps_taxi.0": 0}).text
    with Client(world.url) as client, client.subscribe("gps", cursor=elsewhere) as found:
        with pytest.raises(
            Missed, match="events of 'gps' were missed: the cursor is not valid in this stream"
        ) as caught:
            next(found)
        assert caught.value.notice.kind == "gap"
        assert found.cursor == caught.value.notice.cursor != elsewhere
        assert take(2, found) == ids(0, 2)


def test_notices_are_told(world: World) -> None:
    told: list[Notice] = []
    elsewhere = Cursor("another", {"gps_taxi.0": 0}).text
    with Client(world.url) as client:

        def tell(notice: Notice) -> None:
            told.append(notice)
            if notice.kind == "idle":
                world.append(1)

        found = client.subscribe("gps", cursor=elsewhere, idle=0.02, on_notice=tell)
        with found:
            assert take(1, found) == ids(0, 1)
    assert [each.kind for each in told[:2]] == ["gap", "idle"]
    assert told[1].said == {"seconds": 0.02}


def test_a_service_that_goes_away_ends_it(world: World) -> None:
    with Client(world.url) as client, client.subscribe("fast") as found:
        world.registry.apply(
            loads(CITY.replace("  fast: {from: gps, pipeline: [{filter: speed > 60}]}\n", "")), prune=True
        )
        with pytest.raises(ClientError, match="no service 'fast'"):
            next(found)
        assert list(found) == []


def test_a_bad_filter_is_shown_with_its_place(world: World) -> None:
    with Client(world.url) as client:
        for ask in (lambda: next(client.subscribe("gps", "sped > 3")), lambda: client.events("gps", "sped > 3")):
            with pytest.raises(Refused) as caught:
                ask()
            assert "\n  sped > 3\n  ^^^^ unknown field 'sped'; did you mean 'speed'?" in str(caught.value)
            assert caught.value.status == 400
            assert caught.value.document["type"] == "urn:tidegate:problem:bad-filter"


def test_an_unknown_service(world: World) -> None:
    with Client(world.url) as client:
        with pytest.raises(Refused, match="no service 'gsp'; did you mean 'gps'") as caught, client.subscribe("gsp"):
            pytest.fail("there is none")
        assert caught.value.status == 404


def test_nobody_is_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Client(url) as client:
            for ask in (lambda: next(client.subscribe("gps")), client.services):
                with pytest.raises(
                    Unreachable, match=rf"can't reach a gateway at {url}: .*\nstart one with `tidegate up`"
                ):
                    ask()


@pytest.mark.parametrize("url", ["localhost:8080", "", "ftp://x", "http://", "http://x:99999999", "http://x:y"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ClientError, match="expected the URL of a gateway, such as"):
        Client(url)


@pytest.mark.parametrize("cursor", ["a\nb", "ä", "\0"])
def test_what_is_no_cursor(cursor: str) -> None:
    with Client() as client, pytest.raises(ClientError, match="cursor: expected printable ASCII"):
        client.subscribe("gps", cursor=cursor)
    with pytest.raises(ClientError, match=r"key: expected printable ASCII, as it was given$"):
        Client(key=cursor)


def test_pages(world: World) -> None:
    world.append(5)
    with Client(f"{world.url}/") as client:
        page = client.events("gps", since="beginning", most=3, select="vid")
        assert [each.id for each in page.events] == ids(0, 3)
        assert [each.cursor for each in page.events] == [None, None, page.cursor]
        page = client.events("gps", "speed > %0", params=[3], cursor=page.cursor, wait=10)
        assert [each.data["speed"] for each in page.events] == [4.0]
        elsewhere = Cursor("another", {"gps_taxi.0": 0}).text
        gap = client.events("gps", cursor=elsewhere).gap
        assert gap is not None
        assert "the cursor is not valid" in gap["reason"]
        assert len(client.events("gps", since=datetime(2026, 1, 1, tzinfo=UTC)).events) == 5
        assert len(client.events("gps", since=timedelta(minutes=10)).events) == 5
        with pytest.raises(ClientError, match="with a time zone"):
            client.events("gps", since=datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is wrong
