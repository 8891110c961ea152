"""Sync points: the position after which a mirror has all events of a filter, and the same position at the origin.

A mirror has the events that were requested, from the moment of the request. For each filter the origin states the
position at which it starts to forward; all earlier events are history. A sync point is that position in both streams.
After a sync point, each record of the mirror states its position at the origin. So a subscriber can continue in the
origin's history with a cursor of the mirror.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tidegate.errors import CursorError, StreamNotFound
from tidegate.federation.link.forwarder import reaches
from tidegate.federation.link.history import BEGINNING, MAX_PAGE_RECORDS, SIGN
from tidegate.federation.link.records import origin_position
from tidegate.logs import Cursor, EventLog
from tidegate.logs.gap_records import SYNC_RECORD, is_gap_record

MAX_SYNC_POINTS = 16
"""Sync points per mirror: the first, which precedes all others, and the newest, from which the least is read."""


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """The same position in a mirror and at its origin."""

    mirror: Cursor
    origin: Cursor | None
    """None: the origin had no stream yet."""

    def to_json(self) -> list[str | None]:
        """Return both cursors as texts."""
        return [self.mirror.text, None if self.origin is None else self.origin.text]

    @classmethod
    def from_json(cls, document: Sequence[Any]) -> SyncPoint:
        """Read what `to_json` returned. Raises a `CursorError` if a text is no cursor."""
        mirror, origin = document
        return cls(Cursor.from_text(mirror), None if origin is None else Cursor.from_text(origin))

    def is_before(self, cursor: Cursor) -> bool:
        """True if a cursor of the mirror is at or after this point, in the same generation of the mirror."""
        return self.mirror.generation == cursor.generation and reaches(cursor, self.mirror)


class SyncPoints:
    """The sync points of one mirror, the oldest first."""

    def __init__(self, points: Sequence[SyncPoint] = ()) -> None:
        self._points = list(points)

    def add(self, point: SyncPoint) -> bool:
        """Add a point. Returns False if the newest one is at the same position. A new generation clears all others."""
        if self._points and self._points[-1].mirror == point.mirror:
            return False
        if self._points and self._points[-1].mirror.generation != point.mirror.generation:
            self._points.clear()
        self._points.append(point)
        del self._points[1:-MAX_SYNC_POINTS]
        return True

    def before(self, cursor: Cursor) -> SyncPoint | None:
        """Return the newest point at or before a cursor of the mirror."""
        return next((point for point in reversed(self._points) if point.is_before(cursor)), None)

    def to_json(self) -> str:
        """Return all points as a JSON text."""
        return orjson.dumps([point.to_json() for point in self._points]).decode()

    @classmethod
    def from_json(cls, text: str) -> SyncPoints:
        """Read what `to_json` returned. Raises a `CursorError` if a text is no cursor."""
        return cls([SyncPoint.from_json(document) for document in orjson.loads(text)])


def at_origin(log: EventLog, mirror: str, point: SyncPoint | None, cursor: Cursor) -> Cursor | None:
    """Return the position in history of a cursor of a mirror. Reads the mirror from a sync point up to the cursor.

    None if there is no sync point, or if a part of the mirror in between has expired and no record after it shows how
    far it was. Reads the log: call it in a thread. Raises `LogUnreachable`.
    """
    if point is None:
        return None
    generation = "" if point.origin is None else point.origin.generation
    offsets = {} if point.origin is None else dict(point.origin.offsets)
    marks: dict[str, int] = {}
    unknown: set[str] = set()
    """Partitions of the mirror with an expired part and no record after it yet."""
    at = point.mirror
    try:
        while not reaches(at, cursor):
            read = log.read(mirror, at, MAX_PAGE_RECORDS)
            unknown.update(gap.partition for gap in read.gaps)
            for record, (partition, offset) in zip(read.records, read.places, strict=True):
                if offset >= cursor.offsets.get(partition, 0) or record == SYNC_RECORD:
                    continue
                source, origin_partition, origin_offset = origin_position(record)
                if source.split("/")[1] != generation:  # the origin's stream was deleted and created again
                    generation, offsets, marks = source.split("/")[1], {}, {}
                offsets[origin_partition], marks[origin_partition] = origin_offset + 1, origin_offset
                if is_gap_record(record):  # no record was there, so there is none to check at this offset
                    del marks[origin_partition]
                unknown.discard(partition)
            if not read.records and not read.gaps:
                break
            at = read.cursor
    except (StreamNotFound, CursorError):
        return None
    if unknown:
        return None
    return Cursor(SIGN + generation, offsets, marks) if generation else BEGINNING
