"""Server-sent events: a subscriber on one response that never ends."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidegate.delivery.batch import Events
from tidegate.delivery.hub import Hub
from tidegate.delivery.subscriber import Notice, Pick, Sink, Subscriber
from tidegate.gateway.telemetry.metrics import Tally
from tidegate.gateway.transports.protocol import Socket, socket_of
from tidegate.gateway.transports.timers import Clock, Idle

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

    kind = "sse"

    def __init__(self, socket: Socket, tally: Tally) -> None:
        super().__init__()
        self._socket, self._tally = socket, tally
        self.written = 0
        """Events."""

    def render(self, batch: Events, picks: Sequence[Pick]) -> tuple[int, bytes]:
        """One chunk of all events; whoever gets the same of an event, from the same place on, shares its block."""
        encoding = picks[0][1].encoding  # a response has one subscriber
        blocks = batch.render_cache("sse", encoding)
        parts = []
        for n, to in picks:
            block = None if to.skip_below else blocks.get(n)
            if block is None:
                block = b"id: %s\ndata: %s\n\n" % (batch.cursor(n, to.skip_below).encode(), batch.encoded(n, encoding))
                if not to.skip_below:
                    blocks[n] = block
            parts.append(block)
        return len(parts), chunk(b"".join(parts))

    def write(self, rendered: Any) -> bool:
        """Write a chunk."""
        count, data = rendered
        self.written += count
        self._tally.add(count)
        return self._socket.write(data)

    async def drain(self) -> None:
        """Return when the socket's buffer is nearly empty."""
        await self._socket.room()

    def send_notice(self, subscriber: Subscriber, notice: Notice) -> None:  # noqa: ARG002 - there is just one
        """Write a notice as an event with a name; where it began is the reader's first place."""
        if notice.kind == "began":
            self.beat(notice.cursor or None)
            return
        self._socket.write(chunk(event(notice.kind, dict(notice.details), notice.cursor)))
        if notice.kind == "error":
            self.end()

    def end(self) -> None:
        """End the response: a browser will come again."""
        self._socket.write(chunk(b""))
        self._socket.close()

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
        self,
        hub: Hub,
        make: Callable[[Sink], Subscriber],
        tally: Tally,
        *,
        now: bool = False,
        idle_s: float | None = None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`make` gives the subscriber of a sink; `now`: it begins with what comes next.

        `idle_s`: tell when nothing has come for so long. `ended` is called, once, when it is served no more.
        """
        self._hub, self._make, self._tally, self._now, self._idle_s = hub, make, tally, now, idle_s
        self._ended = ended
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - nobody reads
        """Send the head by ASGI, then events to the socket itself, which outlives the request."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": b"retry: %d\n\n" % RETRY_MS, "more_body": True})
            socket = socket_of(scope)
            sink = SseSink(socket, self._tally)
            subscriber = self._make(sink)
            self._hub.subscribe(subscriber, now=self._now)
        except BaseException:
            self._ended()
            raise
        socket.when_lost(self._ended)
        clocks: list[Clock] = [_Heart(sink, subscriber)]
        if self._idle_s is not None:
            clocks.append(Idle(self._idle_s, lambda: sink.written, sink.tell_idle))
        socket.when_lost(partial(_end, self._hub, subscriber, clocks))
        socket.keep()


def _end(hub: Hub, subscriber: Subscriber, clocks: Sequence[Clock]) -> None:
    hub.unsubscribe(subscriber)
    subscriber.sink.close()
    for each in clocks:
        each.stop()


class _Heart(Clock):
    """Shows that the connection is alive, and how far the reader has come where nothing matched."""

    __slots__ = ("_last", "_sink", "_subscriber")

    def __init__(self, sink: SseSink, subscriber: Subscriber) -> None:
        self._sink, self._subscriber, self._last = sink, subscriber, subscriber.position
        super().__init__()

    def _pause_s(self) -> float:
        return HEARTBEAT_S * random.uniform(0.8, 1.0)  # not all at once

    def _strike(self) -> None:
        place = self._subscriber.position if self._subscriber.sink.is_flushed else self._last
        self._sink.beat(None if place is None or place == self._last else place.text)
        self._last = place
