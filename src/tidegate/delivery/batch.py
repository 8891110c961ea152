"""A batch of events of a service's output, shared by all subscribers: parsed once, encoded once per encoding."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import orjson

from tidegate.delivery.encoding import Encoding
from tidegate.logs import Cursor, Read
from tidegate.logs.cursor import encoded
from tidegate.logs.gap_records import with_gaps
from tidegate.model import ServiceName


class Events(Protocol):
    """Events as sinks render them: a `Batch` of the log, or a `Piece` of a snapshot or history."""

    @property
    def service(self) -> str:
        """The service whose events they are."""

    @property
    def records(self) -> Sequence[bytes]:
        """The events as bytes of the log."""

    @property
    def events(self) -> Sequence[dict[str, Any]]:
        """The records, parsed from JSON."""

    def encoded(self, event: int, encoding: Encoding) -> bytes:
        """Return an event in an encoding."""

    def render_cache(self, transport: str, encoding: Encoding) -> dict[int, bytes]:
        """Return the rendered events of a transport by index; the transport reads and fills it."""

    def cursor(self, event: int, skip_below: Mapping[str, int] | None = None) -> str:
        """Return the cursor behind an event, moved to `skip_below` where that is further."""


class Batch:
    """The events of one read of the log. Used by the thread that read it, then by the event loop."""

    def __init__(self, service: str, start: Cursor, read: Read) -> None:
        read = (
            with_gaps(read) if ServiceName.parse(service).is_remote else read
        )  # of others' services it may have been lost before it came
        self.service, self.records, self._places = service, read.records, read.places
        self.events: list[dict[str, Any]] = [orjson.loads(record) for record in read.records]
        self.start, self.end, self.gaps = start, read.cursor, read.gaps
        self._cursors: dict[int, str] = {}
        self._encoded: dict[Encoding, dict[int, bytes]] = {}
        self._rendered: dict[tuple[str, Encoding], dict[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self.records)

    def encoded(self, event: int, encoding: Encoding) -> bytes:
        """Return an event in an encoding."""
        cache = self._encoded.setdefault(encoding, {})
        data = cache.get(event)
        if data is None:
            data = cache[event] = encoding.encode(self.service, self.records[event], self.events[event])
        return data

    def render_cache(self, transport: str, encoding: Encoding) -> dict[int, bytes]:
        """Return the rendered events of a transport by index; the transport reads and fills it."""
        return self._rendered.setdefault((transport, encoding), {})

    def cursor(self, event: int, skip_below: Mapping[str, int] | None = None) -> str:
        """Return the cursor behind an event, moved to `skip_below` where that is further."""
        if skip_below:
            return ahead(self._behind(event), skip_below).text
        text = self._cursors.get(event)
        if text is None:
            firsts, _ = self._runs
            head, tail = self._texts[bisect_right(firsts, event) - 1]
            text = self._cursors[event] = encoded(b"%s%d%s" % (head, self._ends[event], tail))
        return text

    @cached_property
    def _texts(self) -> list[tuple[bytes, bytes]]:
        """Per run, the JSON of its cursors before and after the offset in which they differ."""
        texts = []
        for first in self._runs[0]:
            json = self._behind(first).json()
            key = orjson.dumps(self._places[first][0]) + b":"
            at = json.index(key, json.index(b"{")) + len(key)
            texts.append((json[:at], json[at + len(str(self._ends[first])) :]))
        return texts

    def is_below(self, event: int, offsets: Mapping[str, int]) -> bool:
        """Return True if an event is before the offset of its partition."""
        partition, offset = self._places[event]
        return offset < offsets.get(partition, 0)

    def partition(self, event: int) -> str:
        """Return the partition of an event."""
        return self._places[event][0]

    def before(self, event: int) -> Cursor:
        """Return the cursor from which an event is the next to be read."""
        firsts, before = self._runs
        partition, offset = self._places[event]
        offsets = {**before[bisect_right(firsts, event) - 1], partition: offset}
        return Cursor(self.start.generation, offsets, self.start.marks)

    def _behind(self, event: int) -> Cursor:
        """Return the cursor from which the event after this one is the next to be read."""
        firsts, before = self._runs
        run = bisect_right(firsts, event) - 1
        partition = self._places[event][0]
        return Cursor(self.start.generation, {**before[run], partition: self._ends[event]}, self.start.marks)

    @cached_property
    def _ends(self) -> list[int]:
        """The end offset of each event, which is the offset of the next one in its partition."""
        following = dict(self.end.offsets)
        ends = [0] * len(self._places)
        for n in range(len(ends) - 1, -1, -1):
            partition, offset = self._places[n]
            ends[n] = following[partition]
            following[partition] = offset
        return ends

    @cached_property
    def _runs(self) -> tuple[list[int], list[Mapping[str, int]]]:
        """Index of the first event of each run of one partition, and the offsets of all partitions before it."""
        firsts: list[int] = []
        before: list[Mapping[str, int]] = []
        offsets = dict(self.start.offsets)
        last = None
        for n, (partition, _) in enumerate(self._places):
            if partition != last:
                if n:
                    offsets[self._places[n - 1][0]] = self._ends[n - 1]
                firsts.append(n)
                before.append(dict(offsets))
                last = partition
        return firsts, before


def ahead(cursor: Cursor, minimum: Mapping[str, int]) -> Cursor:
    """Return a cursor whose offsets are at least those of `minimum`."""
    offsets = dict(cursor.offsets)
    for partition, offset in minimum.items():
        offsets[partition] = max(offset, offsets.get(partition, 0))
    return Cursor(cursor.generation, offsets, cursor.marks)


def reaches(cursor: Cursor, other: Cursor) -> bool:
    """Return True if a cursor is at or after another in every partition."""
    return all(cursor.offsets.get(partition, -1) >= offset for partition, offset in other.offsets.items())


def distance(begin: Cursor, end: Cursor) -> int:
    """Return how much is between two cursors, in the units of the log's offsets: bytes or records.

    >>> distance(Cursor("a", {"0": 5}), Cursor("a", {"0": 8, "1": 2}))
    5
    """
    return sum(max(0, at - begin.offsets.get(partition, 0)) for partition, at in end.offsets.items())
