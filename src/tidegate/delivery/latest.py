"""The newest event of each key among those that are there already: how things are, before what happens next."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from tidegate.delivery.batch import Batch, ahead, distance, reaches
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.subscriber import Notice
from tidegate.delivery.worker import gap
from tidegate.logs import Cursor, EventLog

MOST_EVENTS = 1_000_000
"""How far back is looked, about: a few seconds' reading. What is older is not looked at."""
MOST_KEYS = 100_000
"""Keys of one snapshot; those whose newest event is the oldest are left out."""
MOST_BYTES = 32 * 1024 * 1024
"""Of what one snapshot holds, so that its memory is bounded whatever keys and events there are."""
READ = 1_000
"""Events that are read at a time."""
PAUSE_S = 0.001
"""After each read: those who are live run meanwhile."""
MOMENTS = 45
"""Halvings of the time since 1970 until the moment where to begin is known: to a tenth of a millisecond."""


class Entry(NamedTuple):
    """One event of a snapshot."""

    number: int
    """Its place in the order in which it was read."""
    cursor: str
    """The place right behind it, in that order."""
    record: bytes
    time: str

    @property
    def size_bytes(self) -> int:
        """What it takes, about."""
        return len(self.record) + len(self.cursor)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The newest event of each key, in the order of the log."""

    entries: list[Entry]
    end: Cursor
    """What comes behind it is not among them."""
    is_complete: bool
    """Whether all that the stream keeps was looked at, and no key left out."""
    missed: Notice | None
    """What was gone when it was to be read."""


class Piece:
    """Some events of a snapshot, as sinks render those of a `Batch`."""

    def __init__(self, service: str, entries: list[Entry], missed: Notice | None = None) -> None:
        """`missed` is what should be before them, and is gone."""
        self.service, self.missed = service, missed
        self.records = [each.record for each in entries]
        self.events: list[dict[str, Any]] = [orjson.loads(record) for record in self.records]
        self._cursors = [each.cursor for each in entries]

    def __len__(self) -> int:
        return len(self.records)

    def encoded(self, event: int, encoding: Encoding) -> bytes:
        """An event as it is sent."""
        return encoding.encode(self.service, self.records[event], self.events[event])

    def made(self, transport: str, encoding: Encoding) -> dict[int, bytes]:  # noqa: ARG002 - it is one subscriber's
        """What a transport has made of events so far."""
        return {}

    def cursor(self, event: int, floor: Mapping[str, int] | None = None) -> str:  # noqa: ARG002 - nobody has one here
        """Where to go on behind an event."""
        return self._cursors[event]


class Latest:
    """What a subscriber that begins with the newest of each key has yet to be given."""

    __slots__ = ("at", "is_complete", "key", "sent", "snapshot")

    def __init__(self, key: str) -> None:
        """`key` is the attribute whose values are told apart."""
        self.key = key
        self.snapshot: Snapshot | None = None
        self.at = 0
        """How much of the snapshot was given."""
        self.sent = 0
        self.is_complete = True

    def begin(self, snapshot: Snapshot) -> None:
        """Give a snapshot from its first event on."""
        self.snapshot, self.at = snapshot, 0
        self.is_complete = self.is_complete and (snapshot.is_complete or self.sent > 0)

    def forget(self) -> None:
        """Let go of the snapshot: another is taken from the subscriber's place on."""
        self.snapshot, self.at = None, 0

    def piece(self, service: str, most: int) -> Piece:
        """The next events."""
        assert self.snapshot is not None
        return Piece(service, self.snapshot.entries[self.at : self.at + most])

    def gave(self, count: int) -> Cursor | None:
        """So many more were given: the place behind them; None: none was."""
        assert self.snapshot is not None
        self.at += count
        self.sent += count
        return Cursor.from_text(self.snapshot.entries[self.at - 1].cursor) if count else None

    @property
    def is_given(self) -> bool:
        """Whether all of the snapshot was given."""
        return self.snapshot is not None and self.at == len(self.snapshot.entries)

    def told(self, place: Cursor | None) -> Notice:
        """What the subscriber is told behind the last of them."""
        said = {"events": self.sent, "complete": self.is_complete}
        return Notice("latest", "" if place is None else place.text, said)


def newest(
    log: EventLog,
    service: str,
    place: Cursor,
    wants: Callable[[Mapping[str, Any]], bool],
    key: str,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Snapshot:
    """The newest event of each key from a place on that a subscriber wants.

    A key that is in several partitions has one event, the one that happened last. Reads until where the log ended
    when it began, or a little further. Blocks: it is called in a thread. It ends early when it is not wanted any more.
    """
    begin, end = log.begin(service), log.end(service)
    earliest = stretch(log, service, begin, end, MOST_EVENTS)
    looks_at_all = reaches(ahead(begin, place.offsets), earliest)
    start = place if looks_at_all else ahead(earliest, place.offsets)
    held = _Held()
    position, missed = start, None
    while is_wanted() and not reaches(position, end):
        batch = Batch(service, position, log.read(service, position, READ))
        if batch.gaps and missed is None:
            missed = gap(batch)
        if not batch.records and not batch.gaps:
            break
        held.take(batch, wants, key)
        position = batch.end
        time.sleep(PAUSE_S)
    return Snapshot(held.of_each_key(), position, looks_at_all and not held.has_dropped, missed)


def stretch(log: EventLog, service: str, begin: Cursor, end: Cursor, most: int) -> Cursor:
    """Where about so many events, the newest, begin; never much fewer, unless there are no more.

    Offsets are bytes or records, as the log has it: how much an event takes is seen from the first.
    """
    first = log.read(service, begin, READ)
    if not first.records:
        return begin
    each = max(1.0, distance(begin, first.cursor) / len(first.records))
    if distance(begin, end) <= most * each:
        return begin
    too_old, new_enough = 0, time.time_ns() // 1_000
    found = begin
    for _ in range(MOMENTS):
        moment = (too_old + new_enough) // 2
        cursor = log.since(service, moment)
        if distance(cursor, end) <= most * each:
            new_enough = moment
        else:
            too_old, found = moment, cursor
    return found


class _Held:
    """The newest event of each key in each partition, the longest unchanged first."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, bytes], Entry] = {}
        self._size_bytes = self._read = 0
        self.has_dropped = False

    def take(self, batch: Batch, wants: Callable[[Mapping[str, Any]], bool], key: str) -> None:
        """Put what is new in the place of what was."""
        newest: dict[tuple[str, bytes], int] = {}
        for n in range(len(batch) - 1, -1, -1):  # so that an event behind which is a newer one is not matched
            event = batch.events[n]
            name = batch.partition(n), orjson.dumps(event.get(key))
            if name not in newest and wants(event):
                newest[name] = n
        for name, n in reversed(newest.items()):
            old = self._entries.pop(name, None)
            if old is not None:
                self._size_bytes -= old.size_bytes
            time_ = batch.events[n].get("_time")
            entry = Entry(self._read + n, batch.cursor(n), bytes(batch.records[n]), str(time_ or ""))
            self._entries[name] = entry
            self._size_bytes += entry.size_bytes
        self._read += len(batch)
        while len(self._entries) > MOST_KEYS or self._size_bytes > MOST_BYTES:
            self._size_bytes -= self._entries.pop(next(iter(self._entries))).size_bytes
            self.has_dropped = True

    def of_each_key(self) -> list[Entry]:
        found: dict[bytes, Entry] = {}
        for (_, key), entry in self._entries.items():
            other = found.get(key)
            if other is None or (other.time, other.number) < (entry.time, entry.number):
                found[key] = entry
        return sorted(found.values())
