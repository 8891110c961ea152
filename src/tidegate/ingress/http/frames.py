"""Frames of the socket between the gateway and the ingest process: numbered messages with a length."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_HEADER = struct.Struct("<QQ")

CONTROL = 0
"""Number of messages without an answer: settings and definitions, and "ready" in the other direction. Requests count
from 1."""


def frame(number: int, payload: bytes) -> bytes:
    """Return the bytes of a message."""
    return _HEADER.pack(number, len(payload)) + payload


class FrameDecoder:
    """Splits received bytes into messages.

    >>> decoder = FrameDecoder()
    >>> data = frame(1, b"one") + frame(2, b"two")
    >>> list(decoder.feed(data[:30])), list(decoder.feed(data[30:]))
    ([(1, b'one')], [(2, b'two')])
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Add received bytes, and yield the messages that are complete."""
        self._buffer += data
        start, end = 0, len(self._buffer)
        while end - start >= _HEADER.size:
            number, length = _HEADER.unpack_from(self._buffer, start)
            next_start = start + _HEADER.size + length
            if next_start > end:
                break
            yield number, bytes(memoryview(self._buffer)[start + _HEADER.size : next_start])
            start = next_start
        del self._buffer[:start]
