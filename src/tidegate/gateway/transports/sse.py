"""Server-sent events (SSE) transport: one subscriber on one response without an end."""

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
from tidegate.delivery.subscriber import DeliveryNotice, Pick, Sink, Subscriber
from tidegate.gateway.telemetry.metrics import Tally
from tidegate.gateway.transports.protocol import Socket, socket_of
from tidegate.gateway.transports.timers import Idle, PeriodicTimer

HEARTBEAT_INTERVAL_S = 15.0
RETRY_MS = 1_000
"""How long an EventSource waits before it reconnects."""

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class SseSink(Sink):
    """Writes events as SSE blocks, in chunks of HTTP/1.1."""

    kind = "sse"

    def __init__(self, socket: Socket, tally: Tally) -> None:
        super().__init__()
        self._socket, self._tally = socket, tally
        self.written = 0
        """Number of events written."""

    def render(self, batch: Events, picks: Sequence[Pick]) -> tuple[int, bytes]:
        """Return one chunk with all events. Subscribers with the same encoding and cursor share rendered blocks."""
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

    def send_notice(self, subscriber: Subscriber, notice: DeliveryNotice) -> None:  # noqa: ARG002 - there is just one
        """Write a notice as an event with a name; where it began is the reader's first place."""
        if notice.kind == "began":
            self.beat(notice.cursor or None)
            return
        self._socket.write(chunk(event(notice.kind, dict(notice.details), notice.cursor)))
        if notice.kind == "error":
            self.end()

    def end(self) -> None:
        """End the response. An EventSource will reconnect."""
        self._socket.write(chunk(b""))
        self._socket.close()

    def tell_idle(self, idle_s: float) -> None:
        """Send an `idle` notice."""
        self._socket.write(chunk(event("idle", {"seconds": idle_s})))

    def beat(self, cursor: str | None) -> None:
        """Send a heartbeat. A cursor without data advances the reader's `Last-Event-ID`."""
        self._socket.write(chunk(b":\n\n" if cursor is None else b"id: %s\n\n" % cursor.encode()))


def chunk(data: bytes) -> bytes:
    """Return a chunk of a body with chunked transfer encoding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(name: str, content: dict[str, Any], cursor: str = "") -> bytes:
    """Return an SSE block with an event name.

    >>> event("idle", {"seconds": 30})
    b'event: idle\\ndata: {"seconds":30}\\n\\n'
    """
    id_ = b"id: %s\n" % cursor.encode() if cursor else b""
    return b"%sevent: %s\ndata: %s\n\n" % (id_, name.encode(), orjson.dumps(content))


class EventStream(Response):
    """A response that serves one subscriber until its connection is lost."""

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
        """`make` creates the subscriber for a sink; `now`: it starts at the end of the log.

        `idle_s`: send a notice after this time without an event. `ended` is called once, when the subscriber has left.
        """
        self._hub, self._make, self._tally, self._now, self._idle_s = hub, make, tally, now, idle_s
        self._ended = ended
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - reads no body
        """Send the head through ASGI, then write events to the socket directly. The connection outlives this call."""
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
        timers: list[PeriodicTimer] = [_Heartbeat(sink, subscriber)]
        if self._idle_s is not None:
            timers.append(Idle(self._idle_s, lambda: sink.written, sink.tell_idle))
        socket.when_lost(partial(_end, self._hub, subscriber, timers))
        socket.keep()


def _end(hub: Hub, subscriber: Subscriber, timers: Sequence[PeriodicTimer]) -> None:
    hub.unsubscribe(subscriber)
    subscriber.sink.close()
    for timer in timers:
        timer.stop()


class _Heartbeat(PeriodicTimer):
    """Sends heartbeats, with the new cursor if no event matched since the last one."""

    __slots__ = ("_last", "_sink", "_subscriber")

    def __init__(self, sink: SseSink, subscriber: Subscriber) -> None:
        self._sink, self._subscriber, self._last = sink, subscriber, subscriber.position
        super().__init__()

    def _interval_s(self) -> float:
        return HEARTBEAT_INTERVAL_S * random.uniform(0.8, 1.0)  # spread over time

    def _fire(self) -> None:
        position = self._subscriber.position if self._subscriber.sink.is_flushed else self._last
        self._sink.beat(None if position is None or position == self._last else position.text)
        self._last = position
