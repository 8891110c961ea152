"""Many SSE subscribers in a process of their own: `python -m benchmarks.delivery.listeners`.

The first line on standard input says what they want, as JSON; it prints `connected` when all are live. Then it
answers each line: an empty one with what came since the last, `stop` and `go` (no reading meanwhile) with nothing
new, `ids` with which events came.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlencode

import orjson
import uvloop

from benchmarks.measure import percentile
from tidegate.filters import Filter

_SENT = re.compile(rb'"t":([0-9]+)')
_ID = re.compile(rb'"_id":"[^"]*:([0-9]+)"')
_LIVE = re.compile(rb"\n(?:id: [^\n]+|:)\n\n")
SMALL_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """One subscription: what the server is asked for, and what is left for the subscriber to do."""

    service: str
    filter: str = ""
    select: str = ""
    own_filter: str = ""
    """What the subscriber has to filter by itself."""
    own_select: str = ""
    """The attributes that it has to pick by itself."""


@dataclass(slots=True)
class Came:
    """What came to all of a process together."""

    ages: list[float] = field(default_factory=list)
    """In milliseconds, since they were last asked for."""
    total: int = 0
    """Events that were wanted, from the beginning on."""
    received: int = 0
    """All of them."""
    bytes: int = 0
    ids: list[int] = field(default_factory=list)


class Listener(asyncio.Protocol):
    """One connection: asks, then notes how old each event is."""

    def __init__(self, request: bytes, came: Came, live: asyncio.Future[None], ids: bool) -> None:
        self._request, self._came, self._live, self._ids = request, came, live, ids
        self._rest = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for events."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods
        self.transport.write(self._request)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - why is not asked
        """Let nobody wait for what never comes."""
        if not self._live.done():
            self._live.set_exception(RuntimeError(f"not served: {self._rest[-500:].decode(errors='replace')}"))

    def data_received(self, data: bytes) -> None:
        """Note the ages of all whole events."""
        now = time.time_ns() / 1e3
        self._came.bytes += len(data)
        if self._rest:
            data = self._rest + data
        if not self._live.done():
            if not _LIVE.search(data):
                self._rest = data
                return
            self._live.set_result(None)
        end = data.rfind(b"\n\n")
        if end < 0:
            self._rest = data
            return
        self._rest = data[end + 2 :]
        self.take(data, end, now)

    def take(self, data: bytes, end: int, now: float) -> None:
        """Note what came up to `end`."""
        ages = [(now - int(sent)) / 1e3 for sent in _SENT.findall(data, 0, end)]
        self._came.ages += ages
        self._came.total += len(ages)
        self._came.received += len(ages)
        if self._ids:
            self._came.ids += [int(found) for found in _ID.findall(data, 0, end)]


class Worker(Listener):
    """A subscriber that has to filter and to shape by itself what it gets."""

    def __init__(self, request: bytes, came: Came, live: asyncio.Future[None], ids: bool, wanted: Wanted) -> None:
        super().__init__(request, came, live, ids)
        self._filter = Filter(wanted.own_filter) if wanted.own_filter else None
        self._names = wanted.own_select.split(",") if wanted.own_select else None
        self.last: dict[str, Any] = {}
        """The newest event, as it was wanted."""

    def take(self, data: bytes, end: int, now: float) -> None:  # noqa: ARG002 - its own clock says when it is done
        """Parse every event, drop what is not wanted, pick what is."""
        came = self._came
        for block in data[:end].split(b"\n\n"):
            at = block.find(b"\ndata: ")
            if at < 0:
                continue
            event = orjson.loads(block[at + 7 :])
            came.received += 1
            if self._filter is None or self._filter.matches(event):
                self.last = event if self._names is None else {name: event[name] for name in self._names}
                came.ages.append((time.time_ns() / 1e3 - event["t"]) / 1e3)
                came.total += 1


def request(wanted: Wanted) -> bytes:
    """What a subscriber asks for, with the API key of TIDEGATE_KEY if the environment has one."""
    query = {"format": "plain", "filter": wanted.filter, "select": wanted.select}
    target = f"/v1/services/{wanted.service}/events?{urlencode({k: v for k, v in query.items() if v})}"
    key = os.environ.get("TIDEGATE_KEY")
    shown = f"Authorization: Bearer {key}\r\n" if key else ""
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{shown}\r\n".encode()


def unverified() -> ssl.SSLContext:
    """TLS to a server of our own on loopback, whose certificate nobody has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def listen(said: dict[str, Any], hear: Callable[[], str]) -> None:
    """Connect all, then answer."""
    loop = asyncio.get_running_loop()
    came = Came()
    context = unverified()
    all_: list[tuple[Listener, asyncio.Future[None]]] = []
    for given in said["wanted"]:
        wanted = Wanted(**given)
        made: Listener
        live = loop.create_future()
        if wanted.own_filter or wanted.own_select:
            made = Worker(request(wanted), came, live, said["ids"], wanted)
        else:
            made = Listener(request(wanted), came, live, said["ids"])
        link = socket.socket()
        if said["small"]:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
        link.setblocking(False)
        await loop.sock_connect(link, ("127.0.0.1", said["port"]))
        secure: dict[str, Any] = {"ssl": context, "server_hostname": "localhost"} if said.get("tls") else {}
        await loop.create_connection(lambda made=made: made, sock=link, **secure)  # type: ignore[misc]
        all_.append((made, live))
    await asyncio.gather(*(live for _, live in all_))
    print("connected", flush=True)
    while line := await loop.run_in_executor(None, hear):
        for made, _ in all_:
            assert made.transport is not None
            if line == "stop\n":
                made.transport.pause_reading()
            elif line == "go\n":
                made.transport.resume_reading()
        print(json.dumps({"ids": came.ids} if line == "ids\n" else summary(came)), flush=True)


def summary(came: Came) -> dict[str, Any]:
    """What came since this was last asked, and so far; ages begin anew."""
    found, came.ages = came.ages, []
    said = {"count": len(found), "total": came.total, "received": came.received, "bytes": came.bytes}
    ages = {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99), "longest": max(found)} if found else {}
    return {**said, "cpu_s": time.process_time(), **ages}


if __name__ == "__main__":
    uvloop.run(listen(json.loads(sys.stdin.readline()), sys.stdin.readline))
