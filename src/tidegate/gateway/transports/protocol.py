"""The one place that reaches under ASGI: the sockets that responses and WebSocket frames are written to.

An event that goes to a thousand sockets must not wake a thousand tasks: the
delivery path writes to transports itself, and to many of them together (see `outbox`).
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
from tidegate.gateway.http.problems import MEDIA_TYPE, Problem
from tidegate.gateway.http.tls import ServerTls
from tidegate.gateway.settings import LimitSettings
from tidegate.gateway.transports.outbox import HIGH_WATER, Outbox, Wire

EXTENSION = "tidegate.socket"

MOST_HEAD_BYTES = 256 * 1024
"""Of a request's line and headers."""
MOST_EVENTS_BYTES = 16 * 1024 * 1024
"""Of a body that is events."""
MAX_RAW_BODY_BYTES = 2 * MOST_EVENTS_BYTES
"""Of a body as it comes, with the sizes and extensions of its chunks."""
MIN_CHUNK_BYTES, MAX_SMALL_CHUNKS = 64, 4_096
"""A body may have so many chunks of any size; beyond, they must have this size on average."""
MAX_TRAILERS = 50
MAX_PIPELINED = 100
"""Requests that a peer may send before the first of them is answered."""
BODY_BYTES_PER_S = 1_000

_PHRASES = {
    400: "Bad Request",
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
_AUTHORITY = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
GOING_AWAY = 1001
FAREWELL_S = 1.0
"""How long a peer may take to answer a close of ours before the connection is cut."""


class Config(uvicorn.Config):
    """What uvicorn's protocols are made with, ours for HTTP among them, and the outbox of all sockets."""

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
    """Where the bytes of one response go."""

    __slots__ = ("_protocol",)

    def __init__(self, protocol: SocketProtocol) -> None:
        self._protocol = protocol

    def write(self, data: bytes) -> bool:
        """Write to the socket's buffer; say whether there is room for more."""
        self._protocol.wire.write(data)
        return not self._protocol.flow.write_paused

    async def room(self) -> None:
        """Return when the buffer is nearly empty, or the socket closed."""
        await self._protocol.flow.drain()

    def close(self) -> None:
        """Close when what was written has been sent."""
        self._protocol.wire.close()

    def establish(self) -> None:
        """Let the connection stay: its request was let in."""
        self._protocol.config.connections.established(self._protocol)

    def keep(self) -> None:
        """Keep the connection though the request ends: from now on there is just what is written here.

        A request holds some twenty frames and contexts of the framework, 20 KB of them; a reader that listens for
        days does not need one.
        """
        self._protocol.keep()

    @property
    def is_kept(self) -> bool:
        """Whether it outlives its request."""
        return self._protocol.is_kept

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call when the connection is gone, or soon where it is already."""
        self._protocol.when_lost(call)


class Phase(Enum):
    """What a connection waits for."""

    HEAD = "head"
    BODY = "body"
    IDLE = "idle"


class _RefusedError(Exception):
    """Ends parsing: the answer is in the protocol."""


class SocketProtocol(HttpToolsProtocol):
    """HTTP as uvicorn speaks it; every request's scope has its socket, which may outlive the request.

    A peer that is slow with a head or a body is cut off by `Connections`, which asks for `overdue`.
    """

    config: Config

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=HIGH_WATER)
        self.wire = Wire(transport, self.config.outbox)
        self._certificate = None if self.config.tls is None else self.config.tls.peer(self)
        self.address = self.client[0] if self.client else ""
        self._phase, self._since = Phase.HEAD, self.loop.time()
        self._raw_bytes = self._chunks = self._body_bytes = self._trailers = 0
        self._refusal: Problem | None = None
        self.is_kept, self._is_lost = False, False
        self._lost: list[Callable[[], None]] = []
        self.config.connections.opened(self)
        self.config.connections.watch(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits for it."""
        self.config.connections.lost(self)
        super().connection_lost(exc)
        self._is_lost = True
        for call in self._lost:
            self.loop.call_soon(call)
        self._lost.clear()

    def data_received(self, data: bytes) -> None:
        """Read, but no head or body that never ends. What comes behind a kept request is dropped."""
        if self.is_kept or self.transport.is_closing():
            return
        if self._phase is Phase.IDLE:
            self._begin(Phase.HEAD)
        before = self._phase
        super().data_received(data)
        if self._phase is Phase.IDLE or self.is_kept:
            self.config.connections.unwatch(self)
            return
        # A head shares its last chunk of data with the body, and is not counted by it.
        if self._phase is before:
            self._raw_bytes += len(data)
            self._need_end()
        self.config.connections.watch(self)

    def _need_end(self) -> None:
        if self._phase is Phase.HEAD and self._raw_bytes > MOST_HEAD_BYTES:
            self._answer(_head_too_large(f"expected at most {MOST_HEAD_BYTES:,} bytes of request line and headers"))
        elif self._phase is Phase.BODY and self._raw_bytes > MAX_RAW_BODY_BYTES:
            self._answer(_unreadable(413, f"expected at most {MAX_RAW_BODY_BYTES:,} bytes of chunks"))

    def _begin(self, phase: Phase) -> None:
        self._phase, self._since, self._raw_bytes = phase, self.loop.time(), 0

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._begin(Phase.HEAD)
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: Socket(self)}  # type: ignore[dict-item]
        if self._certificate is not None:
            self.scope["extensions"][certificates.EXTENSION] = self._certificate  # type: ignore[assignment]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers behind a body are dropped."""
        if self._phase is Phase.BODY:
            self._trailers += 1
            if self._trailers > MAX_TRAILERS:
                self._refuse(_head_too_large(f"expected at most {MAX_TRAILERS} trailers"))
            return
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Go on with the body."""
        most = self.config.limits.headers
        if len(self.headers) > most:
            self._refuse(_head_too_large(f"expected at most {most} headers, not {len(self.headers):,}"))
        if len(self.pipeline) >= MAX_PIPELINED:
            self._refuse(_unreadable(400, f"expected at most {MAX_PIPELINED} requests before the first is answered"))
        self._need_one_host()
        self._begin(Phase.BODY)
        self._chunks = self._body_bytes = self._trailers = 0
        super().on_headers_complete()

    def _need_one_host(self) -> None:
        """Refuse a target in absolute form that names another host than `Host`: which of the two is meant?"""
        if self.url.startswith(b"/"):
            return
        absolute = _AUTHORITY.match(self.url)
        if absolute is None:
            return
        hosts = [value for name, value in self.headers if name == b"host"]
        if hosts != [absolute[1]]:
            self._refuse(_unreadable(400, f"the target {self.url[:200]!r} names another host than the Host header"))

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
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
        """Say what the peer has taken too long for; None: nothing."""
        limits = self.config.limits
        if self._phase is Phase.HEAD:
            return "head" if now > self._since + limits.head_timeout_s else None
        if self._phase is Phase.BODY:
            if self.flow.read_paused:  # the peer waits for us
                self._since = now
                return None
            allowed_s = limits.body_timeout_s + self._body_bytes / BODY_BYTES_PER_S
            return "body" if now > self._since + allowed_s else None
        return None

    def expire(self, status: int, detail: str) -> None:
        """Close, with an answer where none has begun."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self._answer(_unreadable(status, detail))
        else:
            self.transport.abort()

    def _refuse(self, problem: Problem) -> NoReturn:
        """End the connection from within the parser."""
        self._refusal = problem
        raise _RefusedError

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn calls it
        """Answer what is no HTTP, or what was refused while it was parsed, and close."""
        self._answer(self._refusal or _unreadable(400, "expected a request of HTTP/1.1"))

    def _answer(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        body = bytes(problem.response().body)
        status = problem.status
        head = f"HTTP/1.1 {status} {_PHRASES[status]}\r\ncontent-type: {MEDIA_TYPE}\r\n"
        head += f"connection: close\r\nretry-after: 1\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to the WebSocket protocol."""
        self._phase = Phase.IDLE
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        if isinstance(protocol, WebSocketProtocol):
            self.config.connections.replaced(self, protocol)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._under_way = cycle
        super()._start_asgi_task(cycle, app)

    def keep(self) -> None:
        """Let the request that is under way end without its response, and forget all of it."""
        self._under_way.disconnected = True  # so nobody misses the rest of the response
        self.is_kept = True
        self.flow.resume_reading()  # or nobody would see that the peer is gone
        self.pipeline.clear()
        del self._under_way
        self.cycle = self.scope = self.headers = self.parser = None  # type: ignore[assignment]

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call when the connection is gone, or soon where it is already."""
        if self._is_lost:
            self.loop.call_soon(call)
        else:
            self._lost.append(call)


def _head_too_large(detail: str) -> Problem:
    return Problem(431, "too-large", "The request's head is too large", detail)


def _unreadable(status: int, detail: str) -> Problem:
    kind, title = ("busy", "The gateway is full") if status == 503 else ("bad-request", "The request can't be read")
    return Problem(status, kind, title, detail)


def establish(scope: Any) -> None:
    """Let the connection of a request stay, as the request was let in."""
    socket = scope.get("extensions", {}).get(EXTENSION)
    if isinstance(socket, Socket | FrameSocket):
        socket.establish()


def socket_of(scope: Any) -> Socket:
    """The socket of a request that our own server has taken."""
    found: Socket = scope["extensions"][EXTENSION]
    return found


def kept_of(scope: Any) -> Socket | None:
    """The socket of a request that it outlives."""
    found = scope.get("extensions", {}).get(EXTENSION)
    return found if isinstance(found, Socket) and found.is_kept else None


class FrameSocket:
    """Where the frames of one WebSocket go.

    What is written must be whole frames, unmasked and not compressed: the
    library's own (pong, close) then stand between them, never inside one.
    """

    __slots__ = ("_protocol",)

    def __init__(self, protocol: WebSocketProtocol) -> None:
        self._protocol = protocol

    @property
    def is_open(self) -> bool:
        """Whether frames may be written: the handshake is done, and nobody has closed."""
        protocol = self._protocol
        return protocol.handshake_complete and not protocol.close_sent and not protocol.transport.is_closing()

    def write(self, frames: bytes) -> bool:
        """Write to the socket's buffer; say whether there is room for more."""
        if self.is_open:
            self._protocol.wire.write(frames)
        return self._protocol.writable.is_set()

    async def room(self) -> None:
        """Return when the buffer is nearly empty, or the socket closed."""
        await self._protocol.writable.wait()

    def establish(self) -> None:
        """Let the connection stay: its request was let in."""
        self._protocol.config.connections.established(self._protocol)

    def abort(self) -> None:
        """Close the socket, whatever is still to be written."""
        self._protocol.transport.abort()


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """WebSocket as uvicorn speaks it; every scope has its socket, and every close of ours is heard.

    To close a connection with unread bytes resets it, and the peer may never
    see the close frame: so wait a little for its answer.
    """

    config: Config

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection."""
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER)
        self.wire = Wire(self.transport, self.config.outbox)
        self._certificate = None if self.config.tls is None else self.config.tls.peer(self)
        self.address = self.client[0] if self.client else ""

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        self.config.connections.lost(self)
        super().connection_lost(exc)

    def overdue(self, now: float) -> str | None:  # noqa: ARG002 - see SocketProtocol
        """Say that nothing is late: the handshake is done, and pings watch over what follows."""
        return None

    def expire(self, status: int, detail: str) -> None:  # noqa: ARG002 - see SocketProtocol
        """Close at once."""
        self.transport.abort()

    def handle_connect(self, event: Request) -> None:
        """Begin."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][EXTENSION] = FrameSocket(self)  # type: ignore[assignment]
            if self._certificate is not None:
                self.scope["extensions"][certificates.EXTENSION] = self._certificate  # type: ignore[assignment]

    async def send(self, message: Any) -> None:
        """Send; what was refused has been answered, which uvicorn would take for a fault of ours, and log."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def handle_parser_exception(self) -> None:
        """Close for what the peer has sent: a message too big, or no WebSocket at all."""
        if self.close_sent or self.conn.close_sent is None:
            return
        said = self.conn.close_sent
        self._farewell(said.code, said.reason)

    def shutdown(self) -> None:
        """Close because the server ends."""
        if not self.handshake_complete or self.close_sent or self.transport.is_closing():
            super().shutdown()
            return
        self.conn.send_close(GOING_AWAY, "the gateway ends")
        self._farewell(GOING_AWAY, "")

    def _farewell(self, code: int, reason: str) -> None:
        """Send the close frame that the library has made, and wait for the answer."""
        self.stop_keepalive()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(FAREWELL_S, self.transport.close)


def frame_socket_of(scope: Any) -> FrameSocket:
    """The socket of a WebSocket that our own server has taken."""
    found: FrameSocket = scope["extensions"][EXTENSION]
    return found
