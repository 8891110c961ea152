"""The one place that reaches under ASGI: the socket that a response is written to.

An event that goes to a thousand sockets must not wake a thousand tasks: the
delivery path writes to transports itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "tidegate.socket"

HIGH_WATER = 64 * 1024
"""Bytes that wait for a slow reader before it has to catch up from the log."""


class Socket:
    """Where the bytes of one response go."""

    __slots__ = ("_flow", "_transport")

    def __init__(self, transport: asyncio.Transport, flow: FlowControl) -> None:
        self._transport, self._flow = transport, flow

    def write(self, data: bytes) -> bool:
        """Write to the socket's buffer; say whether there is room for more."""
        if not self._transport.is_closing():
            self._transport.write(data)
        return not self._flow.write_paused

    async def room(self) -> None:
        """Return when the buffer is nearly empty, or the socket closed."""
        await self._flow.drain()

    def close(self) -> None:
        """Close when what was written has been sent."""
        self._transport.close()


class SocketProtocol(HttpToolsProtocol):
    """HTTP as uvicorn speaks it; every request's scope has its socket."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=HIGH_WATER)

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: Socket(self.transport, self.flow)}  # type: ignore[dict-item]


def socket_of(scope: Any) -> Socket:
    """The socket of a request that our own server has taken."""
    found: Socket = scope["extensions"][EXTENSION]
    return found
