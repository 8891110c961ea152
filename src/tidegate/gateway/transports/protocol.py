"""The HTTP and WebSocket protocols of the server, and direct access to their sockets below ASGI.

An event for a thousand sockets must not wake a thousand tasks. Delivery therefore writes to
transports directly, and to many of them in one call (see `outbox`). Only this module uses uvicorn internals.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from tidegate.gateway.auth import certificates
from tidegate.gateway.http.connections import Connections
from tidegate.gateway.http.problems import MEDIA_TYPE, HttpProblem
from tidegate.gateway.http.tls import ServerTls
from tidegate.gateway.settings import LimitSettings
from tidegate.gateway.transports.outbox import HIGH_WATER, Outbox, Wire

EXTENSION = "tidegate.socket"

MAX_HEAD_BYTES = 256 * 1024
"""Size of the request line and headers."""
MAX_EVENTS_BYTES = 16 * 1024 * 1024
"""Size of a request body that contains events."""
MAX_RAW_BODY_BYTES = 2 * MAX_EVENTS_BYTES
"""Size of a body on the wire, with chunk sizes and chunk extensions."""
MIN_CHUNK_BYTES, MAX_SMALL_CHUNKS = 64, 4_096
"""A body with more than `MAX_SMALL_CHUNKS` chunks must have `MIN_CHUNK_BYTES` per chunk on average."""
MAX_TRAILERS = 50
MAX_PIPELINED = 100
"""Requests that a peer may send before the first of them is answered."""
BODY_BYTES_PER_S = 1_000
"""The slowest rate at which a body may arrive, after `body_timeout_s`."""

_PHRASES = {
    400: "Bad Request",
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
_AUTHORITY = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
GOING_AWAY = 1001
CLOSE_TIMEOUT_S = 1.0
"""How long a peer may take to answer a close frame before the connection is aborted."""


class Config(uvicorn.Config):
    """The configuration of uvicorn, with our HTTP protocol and what our protocols share."""

    def __init__(
        self,
        app: Any,
        outbox: Outbox,
        connections: Connections,
        limits: LimitSettings,
        tls: ServerTls | None = None,
        **settings: Any,
    ) -> None:
        factory = None if tls is None else lambda *_: tls.context
        super().__init__(app, http=SocketProtocol, ssl_context_factory=factory, **settings)
        self.outbox, self.connections, self.limits, self.tls = outbox, connections, limits, tls


class Socket:
    """The socket of one HTTP response. All methods run on the event loop."""

    __slots__ = ("_protocol",)

    def __init__(self, protocol: SocketProtocol) -> None:
        self._protocol = protocol

    def write(self, data: bytes) -> bool:
        """Write to the socket's buffer. Returns False if the buffer is full; then await `room`."""
        self._protocol.wire.write(data)
        return not self._protocol.flow.write_paused

    async def room(self) -> None:
        """Return when the buffer is nearly empty, or the socket closed."""
        await self._protocol.flow.drain()

    def close(self) -> None:
        """Close once the buffer has been sent."""
        self._protocol.wire.close()

    def establish(self) -> None:
        """Mark the connection as authorised, so that it is not closed to make room for others."""
        self._protocol.config.connections.established(self._protocol)

    def keep(self) -> None:
        """Keep the connection open after the request ends. From then on only `write` sends data.

        The frames and contexts of a request take about 20 KB, which a subscriber that stays for days does not need.
        """
        self._protocol.keep()

    @property
    def is_kept(self) -> bool:
        """True if the connection outlives its request."""
        return self._protocol.is_kept

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call a function on the event loop after the connection is lost; soon if it is lost already."""
        self._protocol.when_lost(call)


class Phase(Enum):
    """The part of a request that a connection waits for."""

    HEAD = "head"
    BODY = "body"
    IDLE = "idle"


class _RefusedError(Exception):
    """Ends parsing. The protocol holds the response to send."""


class SocketProtocol(HttpToolsProtocol):
    """The HTTP protocol of uvicorn, with limits. The scope of every request contains its `Socket`.

    `Connections` calls `overdue` regularly, and closes connections of peers that send a head or body too slowly.
    """

    config: Config

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register a new connection."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=HIGH_WATER)
        self.wire = Wire(transport, self.config.outbox)
        self._certificate = None if self.config.tls is None else self.config.tls.peer(self)
        self.address = self.client[0] if self.client else ""
        self._phase, self._since = Phase.HEAD, self.loop.time()
        self._raw_bytes = self._chunks = self._body_bytes = self._trailers = 0
        self._refusal: HttpProblem | None = None
        self.is_kept, self._is_lost = False, False
        self._lost: list[Callable[[], None]] = []
        self.config.connections.opened(self)
        self.config.connections.watch(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Deregister the connection, and schedule the callbacks of `when_lost`."""
        self.config.connections.lost(self)
        super().connection_lost(exc)
        self._is_lost = True
        for call in self._lost:
            self.loop.call_soon(call)
        self._lost.clear()

    def data_received(self, data: bytes) -> None:
        """Parse data, within the limits of head and body. Data after a kept request is dropped."""
        if self.is_kept or self.transport.is_closing():
            return
        if self._phase is Phase.IDLE:
            self._begin(Phase.HEAD)
        before = self._phase
        super().data_received(data)
        if self._phase is Phase.IDLE or self.is_kept:
            self.config.connections.unwatch(self)
            return
        # The last chunk of a head may contain the start of the body: it does not count towards the body.
        if self._phase is before:
            self._raw_bytes += len(data)
            self._need_end()
        self.config.connections.watch(self)

    def _need_end(self) -> None:
        if self._phase is Phase.HEAD and self._raw_bytes > MAX_HEAD_BYTES:
            self._answer(_head_too_large(f"expected at most {MAX_HEAD_BYTES:,} bytes of request line and headers"))
        elif self._phase is Phase.BODY and self._raw_bytes > MAX_RAW_BODY_BYTES:
            self._answer(_unreadable(413, f"expected at most {MAX_RAW_BODY_BYTES:,} bytes of chunks"))

    def _begin(self, phase: Phase) -> None:
        self._phase, self._since, self._raw_bytes = phase, self.loop.time(), 0

    def on_message_begin(self) -> None:
        """Start a request, and put its socket and client certificate into the scope."""
        self._begin(Phase.HEAD)
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: Socket(self)}  # type: ignore[dict-item]
        if self._certificate is not None:
            self.scope["extensions"][certificates.EXTENSION] = self._certificate  # type: ignore[assignment]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Trailers after a body are counted and dropped."""
        if self._phase is Phase.BODY:
            self._trailers += 1
            if self._trailers > MAX_TRAILERS:
                self._refuse(_head_too_large(f"expected at most {MAX_TRAILERS} trailers"))
            return
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the head, then start the body."""
        max_headers = self.config.limits.headers
        if len(self.headers) > max_headers:
            self._refuse(_head_too_large(f"expected at most {max_headers} headers, not {len(self.headers):,}"))
        if len(self.pipeline) >= MAX_PIPELINED:
            self._refuse(_unreadable(400, f"expected at most {MAX_PIPELINED} requests before the first is answered"))
        self._need_one_host()
        self._begin(Phase.BODY)
        self._chunks = self._body_bytes = self._trailers = 0
        super().on_headers_complete()

    def _need_one_host(self) -> None:
        """Refuse an absolute target whose host differs from the `Host` header: proxies and checks would disagree."""
        if self.url.startswith(b"/"):
            return
        absolute = _AUTHORITY.match(self.url)
        if absolute is None:
            return
        hosts = [value for name, value in self.headers if name == b"host"]
        if hosts != [absolute[1]]:
            self._refuse(_unreadable(400, f"the target {self.url[:200]!r} names another host than the Host header"))

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body, and refuse a body of very small chunks."""
        self._chunks += 1
        self._body_bytes += len(body)
        if self._chunks > MAX_SMALL_CHUNKS and self._body_bytes < self._chunks * MIN_CHUNK_BYTES:
            self._refuse(_unreadable(400, f"expected chunks of at least {MIN_CHUNK_BYTES} bytes on average"))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for the next request."""
        self._phase = Phase.IDLE
        super().on_message_complete()

    def overdue(self, now: float) -> str | None:
        """Return the part of the request that is too slow (`head`, `body`); None if none is."""
        limits = self.config.limits
        if self._phase is Phase.HEAD:
            return "head" if now > self._since + limits.head_timeout_s else None
        if self._phase is Phase.BODY:
            if self.flow.read_paused:  # we have paused reading
                self._since = now
                return None
            allowed_s = limits.body_timeout_s + self._body_bytes / BODY_BYTES_PER_S
            return "body" if now > self._since + allowed_s else None
        return None

    def expire(self, status: int, detail: str) -> None:
        """Close the connection, with a response if none has started."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self._answer(_unreadable(status, detail))
        else:
            self.transport.abort()

    def _refuse(self, problem: HttpProblem) -> NoReturn:
        """End the connection from within the parser."""
        self._refusal = problem
        raise _RefusedError

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn calls it
        """Send the response for a malformed or refused request, and close."""
        self._answer(self._refusal or _unreadable(400, "expected a request of HTTP/1.1"))

    def _answer(self, problem: HttpProblem) -> None:
        if self.transport.is_closing():
            return
        body = bytes(problem.response().body)
        status = problem.status
        head = f"HTTP/1.1 {status} {_PHRASES[status]}\r\ncontent-type: {MEDIA_TYPE}\r\n"
        head += f"connection: close\r\nretry-after: 1\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the WebSocket protocol."""
        self._phase = Phase.IDLE
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        if isinstance(protocol, WebSocketProtocol):
            self.config.connections.replaced(self, protocol)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._current_cycle = cycle
        super()._start_asgi_task(cycle, app)

    def keep(self) -> None:
        """Detach the current request from the connection: it ends without a response, and its memory is freed."""
        self._current_cycle.disconnected = True  # so uvicorn does not complain about an unfinished response
        self.is_kept = True
        self.flow.resume_reading()  # otherwise a disconnect would go unnoticed
        self.pipeline.clear()
        del self._current_cycle
        self.cycle = self.scope = self.headers = self.parser = None  # type: ignore[assignment]

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call a function on the event loop after the connection is lost; soon if it is lost already."""
        if self._is_lost:
            self.loop.call_soon(call)
        else:
            self._lost.append(call)


def _head_too_large(detail: str) -> HttpProblem:
    return HttpProblem(431, "too-large", "The request's head is too large", detail)


def _unreadable(status: int, detail: str) -> HttpProblem:
    kind, title = ("busy", "The gateway is full") if status == 503 else ("bad-request", "The request can't be read")
    return HttpProblem(status, kind, title, detail)


def establish(scope: Any) -> None:
    """Mark the connection of a request as authorised, so that it is not closed to make room for others."""
    socket = scope.get("extensions", {}).get(EXTENSION)
    if isinstance(socket, Socket | FrameSocket):
        socket.establish()


def socket_of(scope: Any) -> Socket:
    """Return the socket of a request. Works only under our own server."""
    socket: Socket = scope["extensions"][EXTENSION]
    return socket


def kept_of(scope: Any) -> Socket | None:
    """Return the socket of a request if it outlives the request; otherwise None."""
    socket = scope.get("extensions", {}).get(EXTENSION)
    return socket if isinstance(socket, Socket) and socket.is_kept else None


class FrameSocket:
    """The socket of one WebSocket. All methods run on the event loop.

    Write only whole frames, unmasked and uncompressed, so that frames of the library
    (pong, close) are never sent inside one of ours.
    """

    __slots__ = ("_protocol",)

    def __init__(self, protocol: WebSocketProtocol) -> None:
        self._protocol = protocol

    @property
    def is_open(self) -> bool:
        """True after the handshake until either side closes."""
        protocol = self._protocol
        return protocol.handshake_complete and not protocol.close_sent and not protocol.transport.is_closing()

    def write(self, frames: bytes) -> bool:
        """Write to the socket's buffer. Returns False if the buffer is full; then await `room`."""
        if self.is_open:
            self._protocol.wire.write(frames)
        return self._protocol.writable.is_set()

    async def room(self) -> None:
        """Return when the buffer is nearly empty, or the socket closed."""
        await self._protocol.writable.wait()

    def establish(self) -> None:
        """Mark the connection as authorised, so that it is not closed to make room for others."""
        self._protocol.config.connections.established(self._protocol)

    def abort(self) -> None:
        """Close the socket at once. Buffered data is lost."""
        self._protocol.transport.abort()


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """The WebSocket protocol of uvicorn. Every scope contains its `FrameSocket`.

    Closing a TCP connection with unread bytes resets it, and the peer may never see the close
    frame. Therefore wait up to `CLOSE_TIMEOUT_S` for the peer's close frame.
    """

    config: Config

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register a new connection."""
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER)
        self.wire = Wire(self.transport, self.config.outbox)
        self._certificate = None if self.config.tls is None else self.config.tls.peer(self)
        self.address = self.client[0] if self.client else ""

    def connection_lost(self, exc: Exception | None) -> None:
        """Deregister the connection."""
        self.config.connections.lost(self)
        super().connection_lost(exc)

    def overdue(self, now: float) -> str | None:  # noqa: ARG002 - see SocketProtocol
        """Return None: the handshake is done, and pings detect a dead peer."""
        return None

    def expire(self, status: int, detail: str) -> None:  # noqa: ARG002 - see SocketProtocol
        """Close at once."""
        self.transport.abort()

    def handle_connect(self, event: Request) -> None:
        """Answer the handshake, and put the socket and client certificate into the scope."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][EXTENSION] = FrameSocket(self)  # type: ignore[assignment]
            if self._certificate is not None:
                self.scope["extensions"][certificates.EXTENSION] = self._certificate  # type: ignore[assignment]

    async def send(self, message: Any) -> None:
        """Send a message. A refused handshake counts as complete, so that uvicorn does not log it as our error."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def handle_parser_exception(self) -> None:
        """Close because of a protocol error of the peer, such as a message that is too big."""
        if self.close_sent or self.conn.close_sent is None:
            return
        close = self.conn.close_sent
        self._close_and_wait(close.code, close.reason)

    def shutdown(self) -> None:
        """Close because the server shuts down."""
        if not self.handshake_complete or self.close_sent or self.transport.is_closing():
            super().shutdown()
            return
        self.conn.send_close(GOING_AWAY, "the gateway ends")
        self._close_and_wait(GOING_AWAY, "")

    def _close_and_wait(self, code: int, reason: str) -> None:
        """Send the close frame that the library has created, and wait for that of the peer."""
        self.stop_keepalive()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(CLOSE_TIMEOUT_S, self.transport.close)


def frame_socket_of(scope: Any) -> FrameSocket:
    """Return the socket of a WebSocket. Works only under our own server."""
    socket: FrameSocket = scope["extensions"][EXTENSION]
    return socket
