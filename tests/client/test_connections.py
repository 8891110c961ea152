"""Clients against servers that fall silent, refuse, hang up in the middle, or are not gateways."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidegate.client import AsyncClient, Client, Notice, Reconnect, Refused

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
FAST_RECONNECT = Reconnect(most_s=0.001, silence_s=2.0)


def event(n: int) -> bytes:
    return b'id: c%d\ndata: {"_id":"e%d","_time":null}\n\n' % (n, n)


class ScriptedServer:
    """Sends each connection the next answer, then closes it, or keeps it open without another byte."""

    def __init__(self, *answers: tuple[bytes, str]) -> None:
        self.answers = answers
        self.heads: list[str] = []
        self.url = ""
        self.open: list[socket.socket] = []

    @contextmanager
    def running(self) -> Iterator[ScriptedServer]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.url = f"http://127.0.0.1:{server.getsockname()[1]}"
            thread = threading.Thread(target=self._run, args=(server,))
            thread.start()
            try:
                yield self
            finally:
                thread.join()
                for connection in self.open:
                    connection.close()

    def _run(self, server: socket.socket) -> None:
        for answer, ending in self.answers:
            connection, _ = server.accept()
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(65_536)
            self.heads.append(head.decode().lower())
            connection.sendall(answer)
            if ending == "silent":
                self.open.append(connection)
            else:
                connection.close()


BUSY = b"HTTP/1.1 503 Busy\r\nretry-after: 0\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
SCRIPT = (
    (BUSY, "close"),
    (HEAD + event(1) + b"id: c2\ndata: {", "silent"),
    (b"HTTP/1.1 200 OK\r\ncont", "close"),
    (HEAD + b"id: c4\n\n", "close"),
    (b"", "close"),
    (HEAD + event(5), "silent"),
)


def test_subscription_survives_every_kind_of_failure() -> None:
    notices: list[Notice] = []
    with ScriptedServer(*SCRIPT).running() as server, Client(server.url, reconnect=FAST_RECONNECT) as client:
        subscription = client.subscribe("gps", since="beginning", format="plain", on_notice=notices.append)
        assert [next(subscription).id, next(subscription).id] == ["e1", "e5"]
        subscription.close()
    check_reconnects(server, notices)


def test_async_subscription_survives_every_kind_of_failure() -> None:
    notices: list[Notice] = []

    async def run(url: str) -> list[str]:
        async with AsyncClient(url, reconnect=FAST_RECONNECT) as client:
            subscription = client.subscribe("gps", since="beginning", format="plain", on_notice=notices.append)
            async with subscription:
                return [(await anext(subscription)).id, (await anext(subscription)).id]

    with ScriptedServer(*SCRIPT).running() as server:
        assert asyncio.run(run(server.url)) == ["e1", "e5"]
    check_reconnects(server, notices)


def check_reconnects(server: ScriptedServer, notices: list[Notice]) -> None:
    cursors = [
        head.split("last-event-id: ")[1].split()[0] if "last-event-id" in head else None for head in server.heads
    ]
    assert cursors == [None, None, "c1", "c1", "c4", "c4"]
    assert ["from=beginning" in head for head in server.heads] == [True, True, False, False, False, False]
    reasons = [notice.said["reason"] for notice in notices]
    assert [notice.kind for notice in notices] == ["lost"] * 5
    assert reasons[0].endswith("answered 503 Busy")
    assert reasons[1].endswith("has not answered in time")
    assert reasons[3].endswith("has ended the connection")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi",
            "text/html, not text/event-stream",
        ),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", "content type none, not text/event-stream"),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "answered 404 Not Found"),
        (b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", "answered 302 Found"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "answered 204 No Content"),
        (b"HTTP/1.1 501 No\r\ncontent-length: 0\r\n\r\n", "answered 501 No"),
    ],
)
def test_server_that_is_not_a_gateway_is_not_retried(answer: bytes, message: str) -> None:
    with ScriptedServer((answer, "close")).running() as server, Client(server.url, reconnect=FAST_RECONNECT) as client:
        subscription = client.subscribe("gps", since="beginning")
        with pytest.raises(Refused, match=message):
            next(subscription)
        assert list(subscription) == []
