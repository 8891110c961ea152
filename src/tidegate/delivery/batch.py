"""Some events of a service's output, as all who deliver them share them: parsed once, encoded once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import orjson

from tidegate.delivery.encoding import Encoding
from tidegate.logs import Cursor, Read
from tidegate.logs.cursor import encoded
from tidegate.logs.lost import told
from tidegate.model import ServiceName


class Events(Protocol):
    """Some events, as sinks render them."""

    @property
    def service(self) -> str:
        """Whose they are."""

    @property
    def records(self) -> Sequence[bytes]:
        """As they are in the log."""

    @property
    def events(self) -> Sequence[dict[str, Any]]:
        """The records, parsed."""

    def encoded(self, event: int, encoding: Encoding) -> bytes:
        """An event as it is sent."""

    def made(self, transport: str, encoding: Encoding) -> dict[int, bytes]:
        """What a transport has made of events so far, for all who get the same: it puts there what it makes."""

    def cursor(self, event: int, floor: Mapping[str, int] | None = None) -> str:
        """Where to go on behind an event."""


class Batch:
    """What one read of a log gave."""

    def __init__(self, service: str, start: Cursor, read: Read) -> None:
        read = (
            told(read) if ServiceName.parse(service).is_remote else read
        )  # of others' services it may have been lost before it came
        self.service, self.records, self._places = service, read.records, read.places
        self.events: list[dict[str, Any]] = [orjson.loads(record) for record in read.records]
        self.start, self.end, self.gaps = start, read.cursor, read.gaps
        self._cursors: dict[int, str] = {}
        self._encoded: dict[Encoding, dict[int, bytes]] = {}
        self._made: dict[tuple[str, Encoding], dict[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self.records)

    def encoded(self, event: int, encoding: Encoding) -> bytes:
        """An event as it is sent."""
        known = self._encoded.setdefault(encoding, {})
        found = known.get(event)
        if found is None:
            found = known[event] = encoding.encode(self.service, self.records[event], self.events[event])
        return found

    def made(self, transport: str, encoding: Encoding) -> dict[int, bytes]:
        """What a transport has made of events so far, for all who get the same: it puts there what it makes."""
        return self._made.setdefault((transport, encoding), {})

    def cursor(self, event: int, floor: Mapping[str, int] | None = None) -> str:
        """Where to go on behind an event; `floor` is what a subscriber has seen beyond the batch's start."""
        if floor:
            return ahead(self._behind(event), floor).text
        found = self._cursors.get(event)
        if found is None:
            firsts, _ = self._runs
            before, behind = self._texts[bisect_right(firsts, event) - 1]
            found = self._cursors[event] = encoded(b"%s%d%s" % (before, self._ends[event], behind))
        return found

    @cached_property
    def _texts(self) -> list[tuple[bytes, bytes]]:
        """What cursors say around the one offset that is another from event to event, run by run."""
        found = []
        for first in self._runs[0]:
            said = self._behind(first).json()
            key = orjson.dumps(self._places[first][0]) + b":"
            at = said.index(key, said.index(b"{")) + len(key)
            found.append((said[:at], said[at + len(str(self._ends[first])) :]))
        return found

    def is_below(self, event: int, floor: Mapping[str, int]) -> bool:
        """Whether a subscriber that has seen so much has seen an event."""
        partition, offset = self._places[event]
        return offset < floor.get(partition, 0)

    def partition(self, event: int) -> str:
        """Where an event is."""
        return self._places[event][0]

    def before(self, event: int) -> Cursor:
        """Where to go on to read an event and what comes behind it."""
        firsts, before = self._runs
        partition, offset = self._places[event]
        offsets = {**before[bisect_right(firsts, event) - 1], partition: offset}
        return Cursor(self.start.generation, offsets, self.start.marks)

    def _behind(self, event: int) -> Cursor:
        firsts, before = self._runs
        run = bisect_right(firsts, event) - 1
        partition = self._places[event][0]
        return Cursor(self.start.generation, {**before[run], partition: self._ends[event]}, self.start.marks)

    @cached_property
    def _ends(self) -> list[int]:
        """The offset behind each event: where the next of its partition begins."""
        following = dict(self.end.offsets)
        found = [0] * len(self._places)
        for n in range(len(found) - 1, -1, -1):
            partition, offset = self._places[n]
            found[n] = following[partition]
            following[partition] = offset
        return found

    @cached_property
    def _runs(self) -> tuple[list[int], list[Mapping[str, int]]]:
        """Where events of another partition begin, and all offsets there."""
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


def ahead(cursor: Cursor, floor: Mapping[str, int]) -> Cursor:
    """A cursor with each partition where it is, or where a floor is beyond."""
    offsets = dict(cursor.offsets)
    for partition, offset in floor.items():
        offsets[partition] = max(offset, offsets.get(partition, 0))
    return Cursor(cursor.generation, offsets, cursor.marks)


def reaches(cursor: Cursor, other: Cursor) -> bool:
    """Whether a cursor is nowhere before another."""
    return all(cursor.offsets.get(partition, -1) >= offset for partition, offset in other.offsets.items())


def distance(begin: Cursor, end: Cursor) -> int:
    """What is between two places, in the log's own measure.

    >>> distance(Cursor("a", {"0": 5}), Cursor("a", {"0": 8, "1": 2}))
    5
    """
    return sum(max(0, at - begin.offsets.get(partition, 0)) for partition, at in end.offsets.items())
