"""Subscriptions against a real gateway: no event is lost or repeated."""

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

FAST_RECONNECT = Reconnect(most_s=0.001)


def ids(begin: int, end: int) -> list[str]:
    return [f"gps_taxi:0:{n}" for n in range(begin, end)]


def take(count: int, subscription: Any) -> list[str]:
    return [event.id for event in islice(subscription, count)]


def test_matching_events_carry_their_cursor(world: World) -> None:
    with (
        Client(world.url) as client,
        client.subscribe("gps", "speed > %0", params=[97], select=["vid"]) as subscription,
    ):
        world.append(100)
        first = next(subscription)
        assert first == Event(
            "gps_taxi:0:98",
            subscription.cursor,
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


def test_async_client_subscribes_and_gets_pages_and_services(world: World) -> None:
    asyncio.run(use_async_client(world))


async def use_async_client(world: World) -> None:
    async with AsyncClient(world.url) as client, client.subscribe("gps") as subscription:
        world.append(3)
        assert [(await anext(subscription)).id for _ in range(3)] == ids(0, 3)
        # A cancelled wait loses no event.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(subscription), 0.02)
        world.append(2)
        assert [(await anext(subscription)).id for _ in range(2)] == ids(3, 5)
        await subscription.close()
        assert [event async for event in subscription] == []
        page = await client.events("gps", since="beginning", most=2)
        assert [event.id for event in page.events] == ids(0, 2)
        assert (await client.service("gps"))["name"] == "gps"
        assert [service["name"] for service in await client.services()] == ["fast", "gps"]
        with pytest.raises(Refused, match="no service 'gsp'; did you mean 'gps'"):
            await client.status("gsp")


def test_subscription_outside_with_connects_at_the_first_event(world: World) -> None:
    world.append(2)
    with Client(world.url) as client:
        subscription = client.subscribe("gps", since="beginning")
        assert take(2, subscription) == ids(0, 2)
        subscription.close()
        assert list(subscription) == []


def test_subscription_survives_a_restart_of_the_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DRAIN_TIMEOUT_S", 0)  # do not wait for open subscriptions
    world = World(tmp_path)
    kinds: list[str] = []
    with ExitStack() as stack:
        with world.running():
            client = stack.enter_context(Client(world.url, reconnect=Reconnect(most_s=0.05)))
            subscription = stack.enter_context(
                client.subscribe("gps", on_notice=lambda notice: kinds.append(notice.kind))
            )
            quiet = stack.enter_context(client.subscribe("gps", "speed > 10"))
            world.append(5)
            assert take(3, subscription) == ids(0, 3)
        world.append(5)  # while no gateway runs
        with world.running():
            world.append(5)
            assert take(12, subscription) == ids(3, 15)
            assert take(4, quiet) == ids(11, 15)
    assert set(kinds) == {"lost"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway for many examples."""
    with World(tmp_path_factory.mktemp("world")).running() as running:
        yield running


def fail_if_events_are_missing(notice: Notice) -> None:
    if notice.kind != "lost":
        pytest.fail(f"an event is missing: {notice}")


cuts_of_connections = st.lists(st.integers(0, 3_000), max_size=8)


@pytest.mark.parametrize("since", ["beginning", "now", "10m"])
@given(cuts=cuts_of_connections)
@settings(max_examples=8)
def test_subscription_survives_connections_cut_anywhere(shared: World, since: str, cuts: list[int]) -> None:
    with proxy(shared.port) as lossy, Client(lossy.url, reconnect=FAST_RECONNECT) as client:
        lossy.cuts = cuts
        first = shared.sent if since == "now" else 0
        with client.subscribe("gps", since=since, idle=10, on_notice=fail_if_events_are_missing) as subscription:
            shared.append(10)
            assert take(shared.sent - first, subscription) == ids(first, shared.sent)
            shared.append(1)  # a repeated event would come before this one
            assert take(1, subscription) == ids(shared.sent - 1, shared.sent)


@given(cuts=cuts_of_connections)
@settings(max_examples=8)
def test_async_subscription_survives_connections_cut_anywhere(shared: World, cuts: list[int]) -> None:
    async def run(url: str) -> None:
        async with (
            AsyncClient(url, reconnect=FAST_RECONNECT) as client,
            client.subscribe("gps", idle=10, on_notice=fail_if_events_are_missing) as subscription,
        ):
            first = shared.sent
            shared.append(20)
            assert [(await anext(subscription)).id for _ in range(20)] == ids(first, first + 20)
            shared.append(1)
            assert [(await anext(subscription)).id] == ids(first + 20, first + 21)

    with proxy(shared.port) as lossy:
        lossy.cuts = cuts
        asyncio.run(run(lossy.url))


def test_end_of_with_closes_the_connection(world: World) -> None:
    with Client(world.url) as client:
        with client.subscribe("gps"):
            until(lambda: client.status("gps")["subscribers"].get("live") == 1, "the subscriber to be live")
        until(lambda: client.status("gps")["subscribers"] == {}, "the subscriber to leave")


def test_gap_is_raised_and_the_next_events_follow(world: World) -> None:
    world.append(2)
    foreign_cursor = Cursor("another", {"gps_taxi.0": 0}).text
    with Client(world.url) as client, client.subscribe("gps", cursor=foreign_cursor) as subscription:
        with pytest.raises(
            Missed, match="events of 'gps' were missed: the cursor is not valid in this stream"
        ) as caught:
            next(subscription)
        assert caught.value.notice.kind == "gap"
        assert subscription.cursor == caught.value.notice.cursor != foreign_cursor
        assert take(2, subscription) == ids(0, 2)


def test_on_notice_gets_gaps_and_idle_notices(world: World) -> None:
    notices: list[Notice] = []
    foreign_cursor = Cursor("another", {"gps_taxi.0": 0}).text
    with Client(world.url) as client:

        def on_notice(notice: Notice) -> None:
            notices.append(notice)
            if notice.kind == "idle":
                world.append(1)

        subscription = client.subscribe("gps", cursor=foreign_cursor, idle=0.02, on_notice=on_notice)
        with subscription:
            assert take(1, subscription) == ids(0, 1)
    assert [notice.kind for notice in notices[:2]] == ["gap", "idle"]
    assert notices[1].said == {"seconds": 0.02}


def test_removed_service_ends_the_subscription(world: World) -> None:
    with Client(world.url) as client, client.subscribe("fast") as subscription:
        world.registry.apply(
            loads(CITY.replace("  fast: {from: gps, pipeline: [{filter: speed > 60}]}\n", "")), prune=True
        )
        with pytest.raises(ClientError, match="no service 'fast'"):
            next(subscription)
        assert list(subscription) == []


def test_invalid_filter_is_shown_with_its_position(world: World) -> None:
    with Client(world.url) as client:
        for call in (lambda: next(client.subscribe("gps", "sped > 3")), lambda: client.events("gps", "sped > 3")):
            with pytest.raises(Refused) as caught:
                call()
            assert "\n  sped > 3\n  ^^^^ unknown field 'sped'; did you mean 'speed'?" in str(caught.value)
            assert caught.value.status == 400
            assert caught.value.document["type"] == "urn:tidegate:problem:bad-filter"


def test_unknown_service_is_refused_with_a_suggestion(world: World) -> None:
    with Client(world.url) as client:
        with pytest.raises(Refused, match="no service 'gsp'; did you mean 'gps'") as caught, client.subscribe("gsp"):
            pytest.fail("the service does not exist")
        assert caught.value.status == 404


def test_unreachable_gateway_is_an_error_with_advice() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # without listening
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with Client(url) as client:
            for call in (lambda: next(client.subscribe("gps")), client.services):
                with pytest.raises(
                    Unreachable, match=rf"can't reach a gateway at {url}: .*\nstart one with `tidegate up`"
                ):
                    call()


@pytest.mark.parametrize("url", ["localhost:8080", "", "ftp://x", "http://", "http://x:99999999", "http://x:y"])
def test_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ClientError, match="expected the URL of a gateway, such as"):
        Client(url)


@pytest.mark.parametrize("cursor", ["a\nb", "ä", "\0"])
def test_cursor_and_key_must_fit_into_a_header(cursor: str) -> None:
    with Client() as client, pytest.raises(ClientError, match="cursor: expected printable ASCII"):
        client.subscribe("gps", cursor=cursor)
    with pytest.raises(
        ClientError, match=r"key: expected printable ASCII; pass it exactly as the gateway returned it$"
    ):
        Client(key=cursor)


def test_pages_continue_at_cursors_and_start_times(world: World) -> None:
    world.append(5)
    with Client(f"{world.url}/") as client:
        page = client.events("gps", since="beginning", most=3, select="vid")
        assert [event.id for event in page.events] == ids(0, 3)
        assert [event.cursor for event in page.events] == [None, None, page.cursor]
        page = client.events("gps", "speed > %0", params=[3], cursor=page.cursor, wait=10)
        assert [event.data["speed"] for event in page.events] == [4.0]
        foreign_cursor = Cursor("another", {"gps_taxi.0": 0}).text
        gap = client.events("gps", cursor=foreign_cursor).gap
        assert gap is not None
        assert "the cursor is not valid" in gap["reason"]
        assert len(client.events("gps", since=datetime(2026, 1, 1, tzinfo=UTC)).events) == 5
        assert len(client.events("gps", since=timedelta(minutes=10)).events) == 5
        with pytest.raises(ClientError, match="with a time zone"):
            client.events("gps", since=datetime(2026, 1, 1))  # noqa: DTZ001 - the missing time zone is the error


def test_arguments_of_a_wrong_type_are_refused_before_a_request() -> None:
    wrong: Any = 60
    with Client("http://127.0.0.1:9") as client:
        for call in (client.events, client.subscribe, client.create_subscription):
            with pytest.raises(ClientError, match=r"params: expected a list of values such as \[60\], not 60"):
                call("gps", "speed > %0", params=wrong)
            with pytest.raises(ClientError, match=r"params: expected a list of values such as \[60\], not '60'"):
                call("gps", "speed > %0", params="60")
            with pytest.raises(ClientError, match=r"since: expected a datetime, a timedelta, or text .*, not 60"):
                call("gps", since=wrong)
        with pytest.raises(ClientError, match="params: expected a list of values"):
            client.change_subscription("s", params=wrong)
