"""What a quarantine holds: records with a reason, each named by its place."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tidegate.errors import CursorError, LogError
from tidegate.logs import Cursor, EventLog

MOST = 1_000
"""Refused events of one page, and of one request to send them again."""
MOST_LOOKED = 10_000
"""Records that are looked through for a page: where few are wanted of many, a page may have none, and a cursor."""
MOST_BYTES = 4 * 1024 * 1024
"""Of a page, about: what was refused may be a megabyte each."""
_READ = 50

WHOLE = "event"
"""The rule that a record breaks as a whole: it is no JSON object."""

_OWN = ("_id", "_src", "_time", "_reason", "_raw", "_raw64")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record of a quarantine stands: its name for ever, and the id of what is sent in its stead.

    >>> Place.from_text(str(Place("gps.quarantine", "1f2e3d4c", "gps_taxi.0", 4096))).offset
    4096
    """

    stream: str
    generation: str
    """Of the stream: one that is made anew has the same offsets, but not the same records."""
    partition: str
    offset: int

    def __str__(self) -> str:
        return f"{self.stream}:{self.generation}:{self.partition}:{self.offset}"

    @classmethod
    def from_text(cls, text: str) -> Place | None:
        """Read a place's own text back; None: it is none."""
        parts = text.split(":")
        if len(parts) != 4 or not (parts[3].isascii() and parts[3].isdigit() and len(parts[3]) < 19):
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]))


@dataclass(frozen=True, slots=True)
class Refused:
    """One record of a quarantine."""

    place: Place
    record: Mapping[str, Any]

    @property
    def reason(self) -> str:
        """What was wrong."""
        return str(self.record.get("_reason") or "")

    def rules(self, known: Collection[str]) -> list[str]:
        """The attributes that were wrong, as the reason names them; `event`: all of it.

        >>> reason = "speed: -1.0 violates speed >= 0; pos.x: expected float64"
        >>> Refused(Place("gps.quarantine", "1f2e3d4c", "0", 0), {"_reason": reason}).rules(["speed", "pos"])
        ['speed', 'pos.x']
        """
        found = dict.fromkeys(part.partition(": ")[0] for part in self.reason.split("; "))
        return [path for path in found if _root(path) in known or _root(path) in self.record] or [WHOLE]

    def to_json(self, known: Collection[str], *, shows_raw: bool, replayed: Mapping[str, Any] | None) -> dict[str, Any]:
        """As the API shows it; the text of what could not be read only where it `shows_raw`."""
        record = self.record
        said: dict[str, Any] = {
            "id": str(self.place),
            "event_id": record.get("_id"),
            "time": record.get("_time"),
            "reason": self.reason,
            "rules": self.rules(known),
            "source": record.get("_src"),
            "event": {name: value for name, value in record.items() if name not in _OWN} or None,
            "replayed": None if replayed is None else dict(replayed),
        }
        if shows_raw:
            said |= {name.removeprefix("_"): record[name] for name in ("_raw", "_raw64") if name in record}
        return said


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records of a quarantine."""

    cursor: Cursor | None = None
    since_micros: int | None = None
    """Refused at this moment or later, or a little before."""
    until_micros: int | None = None
    rule: str | None = None
    """An attribute, or a path in it, that was wrong."""
    replayed: bool | None = None
    """Just those that were sent again, or just those that were not."""
    most: int = 100


@dataclass(frozen=True, slots=True)
class Found:
    """A page of a quarantine."""

    refused: tuple[Refused, ...]
    cursor: str | None
    """Where to go on; None: there is no quarantine yet."""
    more: bool
    """Whether there was more when this was read."""


def select(
    log: EventLog, stream: str, wanted: Wanted, known: Collection[str] = (), replayed: Collection[str] = ()
) -> Found:
    """Read a page, each partition in order. `known`: attributes; `replayed`: ids of what was sent again."""
    if stream not in log.streams():
        return Found((), None, more=False)
    cursor = wanted.cursor or (
        log.begin(stream) if wanted.since_micros is None else log.since(stream, wanted.since_micros)
    )
    end = log.end(stream) if wanted.until_micros is None else log.since(stream, wanted.until_micros)
    found: list[Refused] = []
    looked = size = 0
    while not (is_done := _has_reached(cursor, end)):
        if len(found) >= wanted.most or looked >= MOST_LOOKED or size >= MOST_BYTES:
            break
        read = log.read(stream, cursor, min(wanted.most - len(found), _READ))
        cursor = read.cursor
        if not read.records:
            is_done = True
            break
        for (partition, offset), record in zip(read.places, read.records, strict=True):
            looked += 1
            if offset >= end.offsets.get(partition, 0):
                continue
            each = Refused(Place(stream, cursor.generation, partition, offset), orjson.loads(record))
            if _is_wanted(each, wanted, known, replayed):
                found.append(each)
                size += len(record)
    return Found(tuple(found), cursor.text, more=not is_done)


def _has_reached(cursor: Cursor, end: Cursor) -> bool:
    return all(cursor.offsets.get(name, -1) >= offset for name, offset in end.offsets.items())


def _is_wanted(each: Refused, wanted: Wanted, known: Collection[str], replayed: Collection[str]) -> bool:
    if wanted.replayed is not None and (str(each.place) in replayed) != wanted.replayed:
        return False
    return wanted.rule is None or any(_is_in(wanted.rule, path) for path in each.rules(known))


def _is_in(rule: str, path: str) -> bool:
    """Whether a path is a rule's attribute, or inside it."""
    return path == rule or path.startswith((f"{rule}.", f"{rule}["))


def _root(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def record_at(log: EventLog, stream: str, partition: str, offset: int, generation: str | None = None) -> bytes | None:
    """The record that stands at a place; None: it has expired, or there never was one."""
    try:
        end = log.end(stream)
        if generation not in (None, end.generation) or not 0 <= offset < end.offsets.get(partition, 0):
            return None
        read = log.read(stream, end.moved(partition, offset), 1)
    except (CursorError, LogError):
        return None
    return read.records[0] if read.places[:1] == ((partition, offset),) else None
