"""What goes between the gateway and the process that appends: numbered messages over a socket."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_HEADER = struct.Struct("<QQ")

CONTROL = 0
"""The number of messages that nobody answers: how to begin, definitions, and back "ready". Requests count from 1."""


def frame(number: int, payload: bytes) -> bytes:
    """A message as it travels."""
    return _HEADER.pack(number, len(payload)) + payload


class Frames:
    """Finds messages in what has arrived so far.

    >>> frames = Frames()
    >>> data = frame(1, b"one") + frame(2, b"two")
    >>> list(frames.feed(data[:30])), list(frames.feed(data[30:]))
    ([(1, b'one')], [(2, b'two')])
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Add what has arrived, and give the messages that are whole by now."""
        self._buffer += data
        at, end = 0, len(self._buffer)
        while end - at >= _HEADER.size:
            number, length = _HEADER.unpack_from(self._buffer, at)
            behind = at + _HEADER.size + length
            if behind > end:
                break
            yield number, bytes(memoryview(self._buffer)[at + _HEADER.size : behind])
            at = behind
        del self._buffer[:at]
