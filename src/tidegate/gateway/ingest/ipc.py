"""Reads the heads of Arrow IPC messages, to bound what a stream expands to before any of it is decoded.

Arrow tells what a batch holds only by decoding it. The heads are flatbuffers with few fields
(https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format); Arrow has verified them by the time that they
are read here, and every access here is checked against the end of the head all the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidegate.errors import BodyError, BodyTooLarge

MAX_BATCHES = 4_096
"""Of one stream, dictionaries counted: each costs time however few rows it has."""
BYTES_PER_VALUE = 16
"""What a value takes as a Python object and as JSON, at least: bounds values by bytes."""
MAX_NODES = 10_000
"""Columns and nested columns of one batch."""

_SCHEMA, _DICTIONARY, _BATCH = "schema", "dictionary", "record batch"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an Arrow stream may hold."""

    rows: int
    decoded_bytes: int


class _Table:
    """A table of a flatbuffer: fields by their number."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._vtable = at - self._int("<i", at)
        self._size = self._int("<H", self._vtable)

    def _int(self, kind: str, at: int) -> int:
        if at < 0:
            raise struct.error
        found: int = struct.unpack_from(kind, self._data, at)[0]
        return found

    def _place(self, field: int) -> int | None:
        slot = 4 + 2 * field
        offset = self._int("<H", self._vtable + slot) if slot < self._size else 0
        return self._at + offset if offset else None

    def number(self, field: int, kind: str) -> int:
        """A number; 0 where it is not given."""
        place = self._place(field)
        return 0 if place is None else self._int(kind, place)

    def table(self, field: int) -> _Table | None:
        """A table inside this one."""
        place = self._place(field)
        return None if place is None else _Table(self._data, place + self._int("<I", place))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structs that are two 64-bit numbers each."""
        place = self._place(field)
        if place is None:
            return
        start = place + self._int("<I", place)
        count = self._int("<I", start)
        if count > MAX_NODES:
            raise BodyTooLarge(f"expected at most {MAX_NODES:,} columns and buffers in an Arrow batch, not {count:,}")
        yield from struct.iter_unpack("<qq", self._data[start + 4 : start + 4 + 16 * count])


def check_stream(data: bytes, bounds: Bounds) -> None:
    """Raise a `BodyError` if a stream holds, or would expand to, more than it may. Decodes nothing."""
    batches = rows = values = size_bytes = 0
    for kind, head in _heads(data):
        batches += kind != _SCHEMA
        if batches > MAX_BATCHES:
            raise BodyTooLarge(f"expected at most {MAX_BATCHES:,} batches in an Arrow stream: use larger ones")
        batch = _batch(kind, head)
        if batch is None:
            continue
        length = batch.number(0, "<q")
        rows += length if kind == _BATCH else 0
        _need("rows", rows, bounds.rows, length)
        for length, _ in batch.pairs(1):
            values += length
            _need("values", values, bounds.decoded_bytes // BYTES_PER_VALUE, length)
        for _, length in batch.pairs(2):
            size_bytes += length
            _need("bytes", size_bytes, bounds.decoded_bytes, length)


def _heads(data: bytes) -> Iterator[tuple[str, _Table]]:
    """The kind and head of each message."""
    messages = pa.ipc.MessageReader.open_stream(data)
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return
        metadata = memoryview(message.metadata)
        root = _Table(metadata, struct.unpack_from("<I", metadata, 0)[0])
        head = root.table(2)
        if head is None:
            raise BodyError("expected an Arrow IPC stream: a message has no header")
        yield message.type, head


def _batch(kind: str, head: _Table) -> _Table | None:
    """The record batch of a message; None for a schema."""
    if kind == _SCHEMA:
        if head.number(0, "<h"):
            raise BodyError("expected a little-endian Arrow stream, not a big-endian one")
        return None
    if kind == _DICTIONARY:
        if head.number(2, "<B"):
            raise BodyError("expected whole dictionaries, not delta dictionaries, in an Arrow stream")
        inner = head.table(1)
        if inner is None:
            raise BodyError("expected an Arrow IPC stream: a dictionary has no values")
        head = inner
    elif kind != _BATCH:
        raise BodyError(f"expected record batches in an Arrow stream, not a message of type {kind!r}")
    if head.table(3) is not None:
        raise BodyError("expected an Arrow stream whose buffers are not compressed: write it with compression=None")
    return head


def _need(what: str, total: int, most: int, length: int) -> None:
    if length < 0:
        raise BodyError(f"expected an Arrow IPC stream: a batch says that it has {length} {what}")
    if total > most:
        raise BodyTooLarge(f"expected at most {most:,} {what} in one Arrow body, not {total:,} or more: send several")
