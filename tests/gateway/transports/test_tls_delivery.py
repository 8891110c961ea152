"""Delivery over TLS: the same events in the same order as without, by each way, to many and to slow readers."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.certificates import Authority
from tests.gateway.running import World
from tests.gateway.transports.test_browser import PATIENCE_MS, chromium  # noqa: F401 - a fixture
from tests.pipelines.running import until
from tidegate import Client
from tidegate.client.tls import client_context
from tidegate.gateway.settings import TlsSettings
from tidegate.gateway.transports.outbox import MIN_SOCKETS

MOST = 200_000
"""Events before which a reader that does not read must be behind."""
MANY = 4 * (MIN_SOCKETS - 1)
"""Subscribers: more than are written to one by one."""


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[World]:
    authority = Authority(tmp_path / "ca")
    server = authority.server()
    world = World(tmp_path / "data")
    world.tls, world.ca = TlsSettings(server.cert, server.key), authority.cert
    with world.running():
        yield world


def live(world: World) -> int:
    return world.counts().get("gps", {}).get("live", 0)


def ids(count: int) -> list[str]:
    return [f"gps_taxi:0:{n}" for n in range(count)]


def test_many_subscribers_get_all_events_in_order(secure: World) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(Client(secure.url, verify=str(secure.ca)))
        subscriptions = [stack.enter_context(client.subscribe("gps")) for _ in range(MANY)]
        until(lambda: live(secure) == MANY, "all to listen")
        for _ in range(20):
            secure.append(5)
        for each in subscriptions:
            assert [next(each).id for _ in range(100)] == ids(100)


def test_slow_reader_gets_all_events_later(secure: World) -> None:
    context = client_context(str(secure.ca))
    with (
        socket.create_connection(("127.0.0.1", secure.port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as slow,
    ):
        slow.sendall(b"GET /v1/services/gps/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n")
        slow.recv(1)
        until(lambda: live(secure) == 1, "the reader to listen")
        while not secure.counts()["gps"]["behind"]:  # the system holds megabytes for it
            assert secure.sent < MOST, "the reader never falls behind"
            secure.append(1_000)
        found, last = bytearray(), b'"id":"gps_taxi:0:%d"' % (secure.sent - 1)
        while last not in found[-200_000:]:
            data = slow.recv(65_536)
            assert data, "the connection has ended"
            found += data
    seen = [
        json.loads(line[6:])["id"] for line in found.split(b"\n") if line.startswith(b"data: ") and line[-1:] == b"}"
    ]
    assert seen == ids(secure.sent)


def test_websocket_and_page_over_tls(secure: World) -> None:
    with connect(secure.url.replace("https", "wss") + "/v1/events", ssl=client_context(str(secure.ca))) as websocket:
        websocket.send(json.dumps({"op": "subscribe", "id": "a", "service": "gps"}))
        assert json.loads(websocket.recv(timeout=30))["op"] == "subscribed"
        secure.append(3)
        found = [json.loads(websocket.recv(timeout=30)) for _ in range(3)]
        assert [each["event"]["id"] for each in found] == ids(3)
    with secure.client() as client:
        page = client.get("/v1/services/gps/events?from=beginning").json()
        assert [each["id"] for each in page["events"]] == ids(3)


def test_shutdown_ends_connections_that_do_not_answer(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    server = authority.server()
    world = World(tmp_path / "data")
    world.tls, world.ca = TlsSettings(server.cert, server.key), authority.cert
    with ExitStack() as stack:
        with world.running():
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", world.port)))
            silent = stack.enter_context(client_context(str(world.ca)).wrap_socket(plain, server_hostname="localhost"))
            silent.sendall(
                b"GET /v1/services/gps/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
            )
            until(lambda: live(world) == 1, "the reader to listen")
        with pytest.raises(httpx.TransportError):
            world.client().get("/livez")


@pytest.mark.browser
def test_console_works_over_tls(secure: World, chromium: str) -> None:  # noqa: F811 - the fixture
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        try:
            page: Any = browser.new_context(ignore_https_errors=True).new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.goto(f"{secure.url}/#/services/gps")
            page.get_by_role("heading", name="gps").first.wait_for()
            got = page.evaluate(
                """async () => {
                    const source = new EventSource("/v1/services/gps/events?from=beginning");
                    await new Promise((opened) => { source.onopen = opened; });
                    source.close();
                    return location.protocol;
                }"""
            )
            assert got == "https:"
        finally:
            browser.close()
