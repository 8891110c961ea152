"""The records of a quarantine: each has a reason, and is identified by its position in the log."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tidegate.errors import CursorError, StreamNotFound
from tidegate.logs import Cursor, EventLog

MAX_EVENTS = 1_000
"""Events of one page, and of one replay request."""
MAX_SCANNED = 10_000
"""Records that are scanned for one page. A page of a rare selection may be empty and still have a cursor."""
MAX_PAGE_BYTES = 4 * 1024 * 1024
"""Approximate size of a page: one quarantined event may have a megabyte."""
_RECORDS_PER_READ = 50

WHOLE_EVENT = "event"
"""The rule that a record violates as a whole, because it is not a JSON object."""

_METADATA = ("_id", "_src", "_time", "_reason", "_raw", "_raw64")


@dataclass(frozen=True, slots=True)
class QuarantinePosition:
    """The position of a record in a quarantine stream. Its text identifies the record, and is the id of its replay.

    >>> QuarantinePosition.from_text(str(QuarantinePosition("gps.quarantine", "1f2e3d4c", "gps_taxi.0", 4096))).offset
    4096
    """

    stream: str
    generation: str
    """The generation of the stream: a stream that is created again reuses offsets for other records."""
    partition: str
    offset: int

    def __str__(self) -> str:
        return f"{self.stream}:{self.generation}:{self.partition}:{self.offset}"

    @classmethod
    def from_text(cls, text: str) -> QuarantinePosition | None:
        """Parse the text of a position; None if the text is not one."""
        parts = text.split(":")
        if len(parts) != 4 or not (parts[3].isascii() and parts[3].isdigit() and len(parts[3]) < 19):
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]))


@dataclass(frozen=True, slots=True)
class QuarantinedEvent:
    """One record of a quarantine."""

    position: QuarantinePosition
    record: Mapping[str, Any]

    @property
    def reason(self) -> str:
        """Why the event was quarantined."""
        return str(self.record.get("_reason") or "")

    def rules(self, known: Collection[str]) -> list[str]:
        """Return the paths of the attributes that the reason names; `event` if it names none.

        `known` are the attributes that a reason may name.

        >>> reason = "speed: -1.0 violates speed >= 0; pos.x: expected float64"
        >>> position = QuarantinePosition("gps.quarantine", "1f2e3d4c", "0", 0)
        >>> QuarantinedEvent(position, {"_reason": reason}).rules(["speed", "pos"])
        ['speed', 'pos.x']
        """
        paths = dict.fromkeys(part.partition(": ")[0] for part in self.reason.split("; "))
        return [path for path in paths if _root(path) in known or _root(path) in self.record] or [WHOLE_EVENT]

    def to_json(self, known: Collection[str], *, shows_raw: bool, replayed: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the record as the API shows it. `shows_raw` adds the text of an event that could not be parsed."""
        record = self.record
        document: dict[str, Any] = {
            "id": str(self.position),
            "event_id": record.get("_id"),
            "time": record.get("_time"),
            "reason": self.reason,
            "rules": self.rules(known),
            "source": record.get("_src"),
            "event": {name: value for name, value in record.items() if name not in _METADATA} or None,
            "replayed": None if replayed is None else dict(replayed),
        }
        if shows_raw:
            document |= {name.removeprefix("_"): record[name] for name in ("_raw", "_raw64") if name in record}
        return document


@dataclass(frozen=True, slots=True)
class QuarantineQuery:
    """Selects records of a quarantine."""

    cursor: Cursor | None = None
    since_micros: int | None = None
    """Only records that were quarantined at this time or later; a few earlier ones may be included."""
    until_micros: int | None = None
    rule: str | None = None
    """Only records that violate this rule: an attribute, or a path in it."""
    replayed: bool | None = None
    """True: only replayed records. False: only those that were not replayed."""
    limit: int = 100


@dataclass(frozen=True, slots=True)
class QuarantinePage:
    """A page of a quarantine."""

    events: tuple[QuarantinedEvent, ...]
    cursor: str | None
    """Where the next page starts; None if the quarantine does not exist yet."""
    more: bool
    """True if the quarantine had more records when the page was read."""


def read_page(
    log: EventLog, stream: str, query: QuarantineQuery, known: Collection[str] = (), replayed: Collection[str] = ()
) -> QuarantinePage:
    """Read one page of a quarantine, each partition in order. Blocks: reads the log.

    `known` are the attributes that reasons may name, `replayed` the ids of replayed events.
    """
    if stream not in log.streams():
        return QuarantinePage((), None, more=False)
    cursor = query.cursor or (
        log.begin(stream) if query.since_micros is None else log.since(stream, query.since_micros)
    )
    end = log.end(stream) if query.until_micros is None else log.since(stream, query.until_micros)
    events: list[QuarantinedEvent] = []
    scanned = size = 0
    while not (is_done := _has_reached(cursor, end)):
        if len(events) >= query.limit or scanned >= MAX_SCANNED or size >= MAX_PAGE_BYTES:
            break
        read = log.read(stream, cursor, min(query.limit - len(events), _RECORDS_PER_READ))
        cursor = read.cursor
        if not read.records:
            is_done = True
            break
        for (partition, offset), record in zip(read.places, read.records, strict=True):
            scanned += 1
            if offset >= end.offsets.get(partition, 0):
                continue
            event = QuarantinedEvent(
                QuarantinePosition(stream, cursor.generation, partition, offset), orjson.loads(record)
            )
            if _is_selected(event, query, known, replayed):
                events.append(event)
                size += len(record)
    return QuarantinePage(tuple(events), cursor.text, more=not is_done)


def _has_reached(cursor: Cursor, end: Cursor) -> bool:
    return all(cursor.offsets.get(name, -1) >= offset for name, offset in end.offsets.items())


def _is_selected(
    event: QuarantinedEvent, query: QuarantineQuery, known: Collection[str], replayed: Collection[str]
) -> bool:
    if query.replayed is not None and (str(event.position) in replayed) != query.replayed:
        return False
    return query.rule is None or any(_is_in(query.rule, path) for path in event.rules(known))


def _is_in(rule: str, path: str) -> bool:
    """True if a path is the attribute of a rule, or is inside it."""
    return path == rule or path.startswith((f"{rule}.", f"{rule}["))


def _root(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def record_at(log: EventLog, stream: str, partition: str, offset: int, generation: str | None = None) -> bytes | None:
    """Return the record at a position; None if it has expired or never existed. Blocks: reads the log."""
    try:
        end = log.end(stream)
        if generation not in (None, end.generation) or not 0 <= offset < end.offsets.get(partition, 0):
            return None
        read = log.read(stream, end.moved(partition, offset), 1)
    except (CursorError, StreamNotFound):
        return None
    return read.records[0] if read.places[:1] == ((partition, offset),) else None
