"""Limits the size of a decoded Arrow stream before it is decoded, by reading the headers of its IPC messages.

Arrow reports the contents of a batch only after decoding it. The headers are flatbuffers with few fields
(https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format). Arrow has verified them before they are read
here; every access is checked against the end of the header anyway.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidegate.errors import BodyError, BodyTooLarge

MAX_BATCHES = 4_096
"""Batches of one stream, including dictionaries: each costs time even if it has few rows."""
MIN_BYTES_PER_VALUE = 16
"""Least size of a value as a Python object and as JSON; limits the number of values by the allowed bytes."""
MAX_NODES = 10_000
"""Columns and nested columns of one batch."""

_SCHEMA, _DICTIONARY, _BATCH = "schema", "dictionary", "record batch"


@dataclass(frozen=True, slots=True)
class ArrowBounds:
    """Limits of an Arrow stream."""

    rows: int
    decoded_bytes: int


class _Table:
    """A table of a flatbuffer, with fields by number. Raises struct.error for offsets outside of the data."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._vtable = at - self._int("<i", at)
        self._size = self._int("<H", self._vtable)

    def _int(self, kind: str, at: int) -> int:
        if at < 0:
            raise struct.error
        number: int = struct.unpack_from(kind, self._data, at)[0]
        return number

    def _offset(self, field: int) -> int | None:
        slot = 4 + 2 * field
        offset = self._int("<H", self._vtable + slot) if slot < self._size else 0
        return self._at + offset if offset else None

    def number(self, field: int, kind: str) -> int:
        """Return a number; 0 if the field is missing."""
        place = self._offset(field)
        return 0 if place is None else self._int(kind, place)

    def table(self, field: int) -> _Table | None:
        """Return a nested table; None if the field is missing."""
        place = self._offset(field)
        return None if place is None else _Table(self._data, place + self._int("<I", place))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Yield the structs of a vector; each consists of two 64-bit numbers."""
        place = self._offset(field)
        if place is None:
            return
        start = place + self._int("<I", place)
        count = self._int("<I", start)
        if count > MAX_NODES:
            raise BodyTooLarge(f"expected at most {MAX_NODES:,} columns and buffers in an Arrow batch, not {count:,}")
        yield from struct.iter_unpack("<qq", self._data[start + 4 : start + 4 + 16 * count])


def check_stream(data: bytes, bounds: ArrowBounds) -> None:
    """Raise `BodyError` if a stream is larger than allowed, or would be after decoding. Decodes nothing."""
    batches = rows = values = size_bytes = 0
    for kind, header in _headers(data):
        batches += kind != _SCHEMA
        if batches > MAX_BATCHES:
            raise BodyTooLarge(f"expected at most {MAX_BATCHES:,} batches in an Arrow stream: use larger ones")
        batch = _batch(kind, header)
        if batch is None:
            continue
        length = batch.number(0, "<q")
        rows += length if kind == _BATCH else 0
        _need("rows", rows, bounds.rows, length)
        for length, _ in batch.pairs(1):
            values += length
            _need("values", values, bounds.decoded_bytes // MIN_BYTES_PER_VALUE, length)
        for _, length in batch.pairs(2):
            size_bytes += length
            _need("bytes", size_bytes, bounds.decoded_bytes, length)


def _headers(data: bytes) -> Iterator[tuple[str, _Table]]:
    """Yield type and header of each message."""
    messages = pa.ipc.MessageReader.open_stream(data)
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return
        metadata = memoryview(message.metadata)
        root = _Table(metadata, struct.unpack_from("<I", metadata, 0)[0])
        header = root.table(2)
        if header is None:
            raise BodyError("expected an Arrow IPC stream: a message has no header")
        yield message.type, header


def _batch(kind: str, header: _Table) -> _Table | None:
    """Return the record batch of a message; None for a schema. Raises `BodyError` for what we don't support."""
    if kind == _SCHEMA:
        if header.number(0, "<h"):
            raise BodyError("expected a little-endian Arrow stream, not a big-endian one")
        return None
    if kind == _DICTIONARY:
        if header.number(2, "<B"):
            raise BodyError("expected whole dictionaries, not delta dictionaries, in an Arrow stream")
        inner = header.table(1)
        if inner is None:
            raise BodyError("expected an Arrow IPC stream: a dictionary has no values")
        header = inner
    elif kind != _BATCH:
        raise BodyError(f"expected record batches in an Arrow stream, not a message of type {kind!r}")
    if header.table(3) is not None:
        raise BodyError("expected an Arrow stream whose buffers are not compressed: write it with compression=None")
    return header


def _need(unit: str, total: int, max_total: int, length: int) -> None:
    if length < 0:
        raise BodyError(f"expected an Arrow IPC stream: a batch states {length} {unit}")
    if total > max_total:
        raise BodyTooLarge(
            f"expected at most {max_total:,} {unit} in one Arrow body, not {total:,} or more: send several"
        )
