"""What a pass writes to many sockets, handed to the system in one call that holds up no other thread.

To write to a socket takes the system some ten microseconds, and all of Python stands still meanwhile: with hundreds
of sockets a pass, whoever matches the next one waits. Here one loop without the GIL writes to all of them.
"""

from __future__ import annotations

import asyncio
import socket
from types import TracebackType
from typing import Any

import numpy as np
from numba import njit, types

HIGH_WATER = 64 * 1024
"""Bytes that wait for a slow reader before it has to catch up from the log."""
FEW = 3
"""So many sockets are written to one by one: to prepare the call would take longer."""

_FLAGS = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)
_send: Any = types.ExternalFunction("send", types.int64(types.int32, types.int64, types.int64, types.int32))


@njit(nogil=True, cache=True, boundscheck=False)
def send_all(files: Any, sizes: Any, data: Any, flags: int) -> Any:
    """Write to each file the next so many bytes of `data`; give how many it has taken, none where that failed."""
    taken, at = np.zeros(files.shape[0], np.int64), data.ctypes.data
    for n in range(files.shape[0]):
        taken[n] = max(0, _send(files[n], at, sizes[n], flags))
        at += sizes[n]
    return taken


def warm_up() -> None:
    """Compile, or load what was compiled: no event waits for it."""
    _sent([], [])


def _sent(files: list[int], data: list[bytes]) -> list[int]:
    sizes = np.array([len(each) for each in data], np.int64)
    joined = np.frombuffer(b"".join(data) or b"\0", np.uint8)
    found: list[int] = send_all(np.array(files, np.int32), sizes, joined, _FLAGS).tolist()
    return found


class Outbox:
    """Within its block holds what is written to wires, and sends all of it at the end. The event loop's own."""

    def __init__(self) -> None:
        self._held: dict[Wire, bytes] | None = None

    def __enter__(self) -> None:
        self._held = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held = self._held or {}, None
        wires = [each for each in held if not each.transport.is_closing()]
        plain = [each for each in wires if each.file is not None]
        if len(plain) <= FEW:
            plain = []
        if len(plain) < len(wires):
            together = set(plain)
            for each in wires:
                if each not in together:
                    each.transport.write(held[each])
        if not plain:
            return
        data, files = [held[each] for each in plain], [each.file for each in plain if each.file is not None]
        for wire, whole, taken in zip(plain, data, _sent(files, data), strict=True):
            if taken < len(whole):  # its transport waits for room, or finds out what is wrong
                wire.transport.write(whole[taken:])

    def put(self, wire: Wire, data: bytes) -> bool:
        """Hold what is for a wire; false: it is to be written now."""
        if self._held is None:
            return False
        before = self._held.get(wire, b"")
        if len(before) + len(data) > HIGH_WATER:  # written at once, so that it is known whether there is room
            wire.transport.write(self.take(wire))
            return False
        if not before and wire.transport.get_write_buffer_size():  # it must not overtake what waits there
            return False
        self._held[wire] = before + data
        return True

    def take(self, wire: Wire) -> bytes:
        """What is held for a wire, from now on no more."""
        return b"" if self._held is None else self._held.pop(wire, b"")


class Wire:
    """A socket's transport, and the outbox that may write to it."""

    __slots__ = ("_box", "file", "transport")

    def __init__(self, transport: asyncio.Transport, box: Outbox) -> None:
        self.transport, self._box = transport, box
        is_plain = transport.get_extra_info("ssl_object") is None
        self.file: int | None = transport.get_extra_info("socket").fileno() if is_plain else None
        """The socket's descriptor; None: what is written has to be encrypted first, which the transport does."""

    def write(self, data: bytes) -> None:
        """Write, now or with what others get."""
        if not self.transport.is_closing() and not self._box.put(self, data):
            self.transport.write(data)

    def close(self) -> None:
        """Close when what was written has been sent."""
        held = self._box.take(self)
        if held and not self.transport.is_closing():
            self.transport.write(held)
        self.transport.close()
