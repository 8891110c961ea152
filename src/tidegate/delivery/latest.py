"""Snapshots: the latest event of each key in the log, for subscribers that need the current state first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from tidegate.delivery.batch import Batch, ahead, distance, reaches
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.notices import gap
from tidegate.delivery.subscriber import DeliveryNotice
from tidegate.logs import Cursor, EventLog

MAX_EVENTS = 1_000_000
"""About how many events a snapshot reads, which takes a few seconds. Older ones are not read."""
MAX_KEYS = 100_000
"""Keys of one snapshot. With more, those that were updated longest ago are left out."""
MAX_BYTES = 32 * 1024 * 1024
"""Maximum size of the records of one snapshot, so that its memory is bounded."""
READ_EVENTS = 1_000
"""Events of one read."""
PAUSE_S = 0.001
"""After each read, so that the live workers run."""
BISECTIONS = 45
"""Halvings of the time since 1970 in the search for a start: to a tenth of a millisecond."""


class Entry(NamedTuple):
    """One event of a snapshot or of a page of history."""

    number: int
    """Its index in the order of reading."""
    cursor: str
    """The cursor behind it, in that order."""
    record: bytes
    time: str

    @property
    def size_bytes(self) -> int:
        """Return about how much memory it takes."""
        return len(self.record) + len(self.cursor)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The latest event of each key, in the order of the log."""

    entries: list[Entry]
    end: Cursor
    """Where the read ended; delivery continues there."""
    is_complete: bool
    """True if all events that the stream keeps were read, and no key was left out."""
    missed: DeliveryNotice | None
    """The gap notice for events that retention removed before they were read."""


class Piece:
    """Some events of a snapshot or of history, for one subscriber. Sinks render it as they do a `Batch`."""

    def __init__(self, service: str, entries: list[Entry], missed: DeliveryNotice | None = None) -> None:
        """`missed` is the notice of a gap before the events."""
        self.service, self.missed = service, missed
        self.records = [entry.record for entry in entries]
        self.events: list[dict[str, Any]] = [orjson.loads(record) for record in self.records]
        self._cursors = [entry.cursor for entry in entries]

    def __len__(self) -> int:
        return len(self.records)

    def encoded(self, event: int, encoding: Encoding) -> bytes:
        """Return an event in an encoding."""
        return encoding.encode(self.service, self.records[event], self.events[event])

    def render_cache(self, transport: str, encoding: Encoding) -> dict[int, bytes]:  # noqa: ARG002 - nothing is shared
        """Return an empty cache, as the events are for one subscriber."""
        return {}

    def cursor(self, event: int, skip_below: Mapping[str, int] | None = None) -> str:  # noqa: ARG002 - it is in no lane
        """Return the cursor behind an event."""
        return self._cursors[event]


class Latest:
    """The request for a snapshot, and how much of it was sent. Used on the event loop."""

    __slots__ = ("at", "is_complete", "key", "sent", "snapshot")

    def __init__(self, key: str) -> None:
        """`key` is the attribute whose values are the keys."""
        self.key = key
        self.snapshot: Snapshot | None = None
        self.at = 0
        """Number of events of this snapshot that were sent."""
        self.sent = 0
        """Number of events that were sent, also of earlier snapshots."""
        self.is_complete = True

    def begin(self, snapshot: Snapshot) -> None:
        """Start to send a snapshot."""
        self.snapshot, self.at = snapshot, 0
        self.is_complete = self.is_complete and (snapshot.is_complete or self.sent > 0)

    def discard_snapshot(self) -> None:
        """Drop the snapshot. The next one starts at the subscriber's cursor."""
        self.snapshot, self.at = None, 0

    def piece(self, service: str, max_events: int) -> Piece:
        """Return the next events of the snapshot."""
        assert self.snapshot is not None
        return Piece(service, self.snapshot.entries[self.at : self.at + max_events])

    def advance(self, count: int) -> Cursor | None:
        """Note that `count` more events were sent, and return the cursor behind them; None if `count` is 0."""
        assert self.snapshot is not None
        self.at += count
        self.sent += count
        return Cursor.from_text(self.snapshot.entries[self.at - 1].cursor) if count else None

    @property
    def is_sent(self) -> bool:
        """True if the whole snapshot was sent."""
        return self.snapshot is not None and self.at == len(self.snapshot.entries)

    def notice(self, cursor: Cursor | None) -> DeliveryNotice:
        """Return the notice `latest`, which follows the last event of the snapshot."""
        details = {"events": self.sent, "complete": self.is_complete}
        return DeliveryNotice("latest", "" if cursor is None else cursor.text, details)


def newest(
    log: EventLog,
    service: str,
    start: Cursor,
    wants: Callable[[Mapping[str, Any]], bool],
    key: str,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Snapshot:
    """Return the latest event of each key among the matching events behind a cursor.

    If a key is in several partitions, the event with the latest time counts. Reads up to the end of the log at the time
    of the call, or a little further. Blocks, so it runs on a thread. Ends early, with an unusable result, as soon as
    `is_wanted` returns False.
    """
    begin, end = log.begin(service), log.end(service)
    earliest = stretch(log, service, begin, end, MAX_EVENTS)
    reads_all = reaches(ahead(begin, start.offsets), earliest)
    position = start if reads_all else ahead(earliest, start.offsets)
    entries, missed = _LatestEntries(), None
    while is_wanted() and not reaches(position, end):
        batch = Batch(service, position, log.read(service, position, READ_EVENTS))
        if batch.gaps and missed is None:
            missed = gap(batch)
        if not batch.records and not batch.gaps:
            break
        entries.add(batch, wants, key)
        position = batch.end
        time.sleep(PAUSE_S)
    return Snapshot(entries.one_per_key(), position, reads_all and not entries.has_dropped, missed)


def stretch(log: EventLog, service: str, begin: Cursor, end: Cursor, events: int) -> Cursor:
    """Return a cursor with about `events` events behind it, or more; `begin` if there are fewer.

    Offsets are bytes or records, depending on the log: the size of an event is estimated from the first ones.
    """
    first = log.read(service, begin, READ_EVENTS)
    if not first.records:
        return begin
    max_distance = events * max(1.0, distance(begin, first.cursor) / len(first.records))
    if distance(begin, end) <= max_distance:
        return begin
    too_old, recent = 0, time.time_ns() // 1_000
    start = begin
    for _ in range(BISECTIONS):
        middle = (too_old + recent) // 2
        cursor = log.since(service, middle)
        if distance(cursor, end) <= max_distance:
            recent = middle
        else:
            too_old, start = middle, cursor
    return start


class _LatestEntries:
    """The latest event of each key in each partition, the least recently updated first."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, bytes], Entry] = {}
        self._size_bytes = self._read = 0
        self.has_dropped = False

    def add(self, batch: Batch, wants: Callable[[Mapping[str, Any]], bool], key: str) -> None:
        """Replace the entries of the keys that a batch has matching events of."""
        newest: dict[tuple[str, bytes], int] = {}
        for n in range(len(batch) - 1, -1, -1):  # backwards, so that the filter runs only until it matches a key
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
        while len(self._entries) > MAX_KEYS or self._size_bytes > MAX_BYTES:
            self._size_bytes -= self._entries.pop(next(iter(self._entries))).size_bytes
            self.has_dropped = True

    def one_per_key(self) -> list[Entry]:
        """Return the entry with the latest time of each key, in the order of reading."""
        latest: dict[bytes, Entry] = {}
        for (_, key), entry in self._entries.items():
            other = latest.get(key)
            if other is None or (other.time, other.number) < (entry.time, entry.number):
                latest[key] = entry
        return sorted(latest.values())
