"""Writes the output of one dispatch to many sockets in one call that does not hold the GIL.

One `send` takes about ten microseconds, during which Python holds the GIL. With hundreds of sockets per
dispatch, the thread that matches the next batch would wait. A compiled loop without the GIL writes to all of them.
"""

from __future__ import annotations

import asyncio
import socket
from types import TracebackType
from typing import Any

import numpy as np
from numba import njit, types

HIGH_WATER = 64 * 1024
"""Bytes in the buffer of a slow reader before it leaves live and catches up from the log."""
MIN_SOCKETS = 4
"""Fewer sockets are written to one by one: preparing the compiled call would take longer."""

_FLAGS = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)
_send: Any = types.ExternalFunction("send", types.int64(types.int32, types.int64, types.int64, types.int32))


@njit(nogil=True, cache=True, boundscheck=False)
def send_all(files: Any, sizes: Any, data: Any, flags: int) -> Any:
    """Send the next `sizes[n]` bytes of `data` to `files[n]`. Returns the bytes sent to each; 0 for an error."""
    sent, address = np.zeros(files.shape[0], np.int64), data.ctypes.data
    for n in range(files.shape[0]):
        sent[n] = max(0, _send(files[n], address, sizes[n], flags))
        address += sizes[n]
    return sent


def warm_up() -> None:
    """Compile the loop, or load it from the cache, so that no event waits for it."""
    _send_many([], [])


def _send_many(files: list[int], data: list[bytes]) -> list[int]:
    sizes = np.array([len(chunk) for chunk in data], np.int64)
    joined = np.frombuffer(b"".join(data) or b"\0", np.uint8)
    sent: list[int] = send_all(np.array(files, np.int32), sizes, joined, _FLAGS).tolist()
    return sent


class Outbox:
    """A context manager: collects writes to wires, and sends them together at the end. Runs on the event loop."""

    def __init__(self) -> None:
        self._pending: dict[Wire, bytes] | None = None

    def __enter__(self) -> None:
        self._pending = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pending, self._pending = self._pending or {}, None
        wires = [wire for wire in pending if not wire.transport.is_closing()]
        plain = [wire for wire in wires if wire.file is not None]
        if len(plain) < MIN_SOCKETS:
            plain = []
        if len(plain) < len(wires):
            together = set(plain)
            for wire in wires:
                if wire not in together:
                    wire.transport.write(pending[wire])
        if not plain:
            return
        data, files = [pending[wire] for wire in plain], [wire.file for wire in plain if wire.file is not None]
        for wire, whole, sent in zip(plain, data, _send_many(files, data), strict=True):
            if sent < len(whole):  # the transport sends the rest when it can, or reports the error
                wire.transport.write(whole[sent:])

    def put(self, wire: Wire, data: bytes) -> bool:
        """Collect data for a wire. Returns False if the caller has to write it now."""
        if self._pending is None:
            return False
        before = self._pending.get(wire, b"")
        if len(before) + len(data) > HIGH_WATER:  # write now, so that the transport reports a full buffer
            wire.transport.write(self.take(wire))
            return False
        if not before and wire.transport.get_write_buffer_size():  # it must not overtake data in the transport's buffer
            return False
        self._pending[wire] = before + data
        return True

    def take(self, wire: Wire) -> bytes:
        """Remove and return the data that was collected for a wire."""
        return b"" if self._pending is None else self._pending.pop(wire, b"")


class Wire:
    """The transport of a socket, and the outbox that may write to it."""

    __slots__ = ("_box", "file", "transport")

    def __init__(self, transport: asyncio.Transport, box: Outbox) -> None:
        self.transport, self._box = transport, box
        is_plain = transport.get_extra_info("ssl_object") is None
        self.file: int | None = transport.get_extra_info("socket").fileno() if is_plain else None
        """The file descriptor of the socket; None for TLS, which only the transport can write to."""

    def write(self, data: bytes) -> None:
        """Write now, or at the end of the outbox block."""
        if not self.transport.is_closing() and not self._box.put(self, data):
            self.transport.write(data)

    def close(self) -> None:
        """Close once all written data has been sent."""
        pending = self._box.take(self)
        if pending and not self.transport.is_closing():
            self.transport.write(pending)
        self.transport.close()
