"""The one place that reaches under ASGI: the sockets that responses and WebSocket frames are written to.

An event that goes to a thousand sockets must not wake a thousand tasks: the
delivery path writes to transports itself, and to many of them together (see `outbox`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from tidegate.gateway import certificates
from tidegate.gateway.outbox import HIGH_WATER, Outbox, Wire
from tidegate.gateway.tls import ServerTls

EXTENSION = "tidegate.socket"

MOST_HEAD_BYTES = 256 * 1024
"""Of a request's line and headers."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
GOING_AWAY = 1001
FAREWELL_S = 1.0
"""How long a peer may take to answer a close of ours before the connection is cut."""


class Config(uvicorn.Config):
    """What uvicorn's protocols are made with, ours for HTTP among them, and the outbox of all sockets."""

    def __init__(self, app: Any, outbox: Outbox, tls: ServerTls | None = None, **settings: Any) -> None:
        factory = None if tls is None else lambda *_: tls.context
        super().__init__(app, http=SocketProtocol, ssl_context_factory=factory, **settings)
        self.outbox, self.tls = outbox, tls


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


class SocketProtocol(HttpToolsProtocol):
    """HTTP as uvicorn speaks it; every request's scope has its socket, which may outlive the request."""

    config: Config

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=HIGH_WATER)
        self.wire = Wire(transport, self.config.outbox)
        self._certificate = None if self.config.tls is None else self.config.tls.peer(self)
        self._is_in_head, self._head_bytes = False, 0
        self.is_kept, self._is_lost = False, False
        self._lost: list[Callable[[], None]] = []

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits for it."""
        super().connection_lost(exc)
        self._is_lost = True
        for call in self._lost:
            self.loop.call_soon(call)
        self._lost.clear()

    def data_received(self, data: bytes) -> None:
        """Read, but no head that never ends: the parser would keep all of it. Behind a kept request nothing is."""
        if self.is_kept:
            return
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self.transport.write(_TOO_LARGE)
                self.transport.close()
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Go on with the body."""
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._is_in_head, self._head_bytes = True, 0
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: Socket(self)}  # type: ignore[dict-item]
        if self._certificate is not None:
            self.scope["extensions"][certificates.EXTENSION] = self._certificate  # type: ignore[assignment]

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
