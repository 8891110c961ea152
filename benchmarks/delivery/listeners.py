"""Many SSE subscribers in one process: `python -m benchmarks.delivery.listeners`.

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
    """One subscription: the request to the server, and the work that is left to the subscriber."""

    service: str
    filter: str = ""
    select: str = ""
    own_filter: str = ""
    """The filter that the subscriber applies itself."""
    own_select: str = ""
    """The attributes that the subscriber selects itself."""


@dataclass(slots=True)
class Came:
    """Counters of all subscribers of the process."""

    ages: list[float] = field(default_factory=list)
    """Ages in milliseconds, since the last report."""
    total: int = 0
    """Matching events since the start."""
    received: int = 0
    """All received events since the start."""
    bytes: int = 0
    ids: list[int] = field(default_factory=list)


class Listener(asyncio.Protocol):
    """One connection: sends the request, then records the age of each event."""

    def __init__(self, request: bytes, came: Came, live: asyncio.Future[None], ids: bool) -> None:
        self._request, self._came, self._live, self._ids = request, came, live, ids
        self._rest = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transport has the same methods
        self.transport.write(self._request)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - why is not asked
        """Release the tasks that wait for this connection."""
        if not self._live.done():
            self._live.set_exception(RuntimeError(f"not served: {self._rest[-500:].decode(errors='replace')}"))

    def data_received(self, data: bytes) -> None:
        """Record the ages of all complete events."""
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
        """Record the events up to `end`."""
        ages = [(now - int(sent)) / 1e3 for sent in _SENT.findall(data, 0, end)]
        self._came.ages += ages
        self._came.total += len(ages)
        self._came.received += len(ages)
        if self._ids:
            self._came.ids += [int(found) for found in _ID.findall(data, 0, end)]


class Worker(Listener):
    """A subscriber that filters and projects the events itself."""

    def __init__(self, request: bytes, came: Came, live: asyncio.Future[None], ids: bool, wanted: Wanted) -> None:
        super().__init__(request, came, live, ids)
        self._filter = Filter(wanted.own_filter) if wanted.own_filter else None
        self._names = wanted.own_select.split(",") if wanted.own_select else None
        self.last: dict[str, Any] = {}
        """The newest event, projected."""

    def take(self, data: bytes, end: int, now: float) -> None:  # noqa: ARG002 - its own clock says when it is done
        """Parse every event, apply the filter and the projection."""
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
    """Return the request of a subscriber, with the API key of TIDEGATE_KEY if it is set."""
    query = {"format": "plain", "filter": wanted.filter, "select": wanted.select}
    target = f"/v1/services/{wanted.service}/events?{urlencode({k: v for k, v in query.items() if v})}"
    key = os.environ.get("TIDEGATE_KEY")
    shown = f"Authorization: Bearer {key}\r\n" if key else ""
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{shown}\r\n".encode()


def unverified() -> ssl.SSLContext:
    """Return a TLS context for a server on loopback with a self-signed certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def listen(said: dict[str, Any], hear: Callable[[], str]) -> None:
    """Connect all subscribers, then answer standard input."""
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
    """Return the counters, and the ages since the last report; resets the ages."""
    found, came.ages = came.ages, []
    said = {"count": len(found), "total": came.total, "received": came.received, "bytes": came.bytes}
    ages = {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99), "longest": max(found)} if found else {}
    return {**said, "cpu_s": time.process_time(), **ages}


if __name__ == "__main__":
    uvloop.run(listen(json.loads(sys.stdin.readline()), sys.stdin.readline))
