"""Server-sent events: a subscriber on one response that never ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidegate.delivery.batch import Batch
from tidegate.delivery.hub import Hub
from tidegate.delivery.subscriber import Notice, Pick, Sink, Subscriber
from tidegate.gateway.protocol import Socket, socket_of

HEARTBEAT_S = 15.0
RETRY_MS = 1_000
"""How long a browser waits before it connects again."""

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class SseSink(Sink):
    """Writes events as they are to be read by an EventSource, in chunks of HTTP/1.1."""

    def __init__(self, socket: Socket) -> None:
        super().__init__()
        self._socket = socket
        self.written = 0
        """Events."""
        self.ended = asyncio.Event()
        """Set when the subscriber can't go on."""

    def render(self, batch: Batch, picks: Sequence[Pick]) -> tuple[int, bytes]:
        """One chunk of all events."""
        parts = [
            b"id: %s\ndata: %s\n\n" % (batch.cursor(n, to.floor).encode(), batch.encoded(n, to.encoding))
            for n, to in picks
        ]
        return len(parts), chunk(b"".join(parts))

    def write(self, rendered: Any) -> bool:
        """Write a chunk."""
        count, data = rendered
        self.written += count
        return self._socket.write(data)

    async def room(self) -> None:
        """Return when the socket's buffer is nearly empty."""
        await self._socket.room()

    def tell(self, subscriber: Subscriber, notice: Notice) -> None:  # noqa: ARG002 - there is just one
        """Write a notice as an event with a name; where it began is the reader's first place."""
        if notice.kind == "began":
            self.beat(notice.cursor or None)
            return
        self._socket.write(chunk(event(notice.kind, dict(notice.said), notice.cursor)))
        if notice.kind == "error":
            self.ended.set()

    def tell_idle(self, idle_s: float) -> None:
        """Say that nothing has come for so long."""
        self._socket.write(chunk(event("idle", {"seconds": idle_s})))

    def beat(self, cursor: str | None) -> None:
        """Show that the connection is alive; a cursor without data moves the reader's place."""
        self._socket.write(chunk(b":\n\n" if cursor is None else b"id: %s\n\n" % cursor.encode()))


def chunk(data: bytes) -> bytes:
    """A part of a body whose length nobody knows."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(name: str, said: dict[str, Any], cursor: str = "") -> bytes:
    """An event with a name.

    >>> event("idle", {"seconds": 30})
    b'event: idle\\ndata: {"seconds":30}\\n\\n'
    """
    place = b"id: %s\n" % cursor.encode() if cursor else b""
    return b"%sevent: %s\ndata: %s\n\n" % (place, name.encode(), orjson.dumps(said))


class EventStream(Response):
    """Serves one subscriber until it hangs up."""

    def __init__(
        self, hub: Hub, make: Callable[[Sink], Subscriber], *, now: bool = False, idle_s: float | None = None
    ) -> None:
        """`make` gives the subscriber of a sink; `now`: it begins with what comes next.

        `idle_s`: tell when nothing has come for so long.
        """
        self._hub, self._make, self._now, self._idle_s = hub, make, now, idle_s
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head by ASGI, then events to the socket itself."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": b"retry: %d\n\n" % RETRY_MS, "more_body": True})
        sink = SseSink(socket_of(scope))
        subscriber = self._make(sink)
        self._hub.subscribe(subscriber, now=self._now)
        clocks = [asyncio.ensure_future(each) for each in self._clocks(sink, subscriber)]
        gone = asyncio.ensure_future(_hung_up(receive))
        ended = asyncio.ensure_future(sink.ended.wait())
        try:
            await asyncio.wait((gone, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._hub.unsubscribe(subscriber)
            for each in (gone, ended, *clocks):
                each.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _clocks(self, sink: SseSink, subscriber: Subscriber) -> list[Any]:
        found = [self._beat(sink, subscriber)]
        if self._idle_s is not None:
            found.append(self._tell_idle(sink, self._idle_s))
        return found

    async def _beat(self, sink: SseSink, subscriber: Subscriber) -> None:
        last = None
        while True:
            await asyncio.sleep(HEARTBEAT_S * random.uniform(0.8, 1.0))  # not all at once
            place = subscriber.position
            now = None if place is None else place.text
            sink.beat(None if now == last else now)
            last = now

    async def _tell_idle(self, sink: SseSink, idle_s: float) -> None:
        before = sink.written
        while True:
            await asyncio.sleep(idle_s)
            if sink.written == before:
                sink.tell_idle(idle_s)
            before = sink.written


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
