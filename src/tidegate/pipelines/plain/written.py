"""Recognises events that an output partition has already: by its last record, or by its keys since a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidegate.logs.files import Partition, Segment, whole

_MAX_KEYS = 2_000_000
_ID = b'{"_id":'
_SOURCE = b'"_src":"'
_BLOCK_RECORDS = 10_000

SourcePlace = tuple[int, int]
"""Position of an event in its source, and number among the events that were derived from it."""


@dataclass(frozen=True, slots=True)
class EventIdentity:
    """Identifies an event: by key and revision, or without a key by its place in the source: `revision`, `child`."""

    key: str | None
    revision: int
    child: int = 0


class Written(Protocol):
    """The events that an output partition has."""

    def has(self, event: EventIdentity) -> bool:
        """True if the event is there."""

    def add(self, event: EventIdentity) -> None:
        """Add an event that was written."""


class ByPosition:
    """For output partitions with the order of one source partition: all events up to the last one are there."""

    def __init__(self, last: SourcePlace | None) -> None:
        self._last = last if last is not None else (-1, 0)

    def has(self, event: EventIdentity) -> bool:
        """True if an event with this place or a later one was written."""
        return (event.revision, event.child) <= self._last

    def add(self, event: EventIdentity) -> None:
        """Set the last event."""
        self._last = event.revision, event.child


class ByKey:
    """The keys that a stateful service has written since its checkpoint, each with its last revision.

    Beyond `_MAX_KEYS`, more than any replay repeats, old keys are removed.
    """

    def __init__(self) -> None:
        self._recent: dict[str, int] = {}
        self._older: dict[str, int] = {}

    def has(self, event: EventIdentity) -> bool:
        """True if the key was written with this revision or a later one."""
        assert event.key is not None
        last = self._recent.get(event.key, self._older.get(event.key))
        return last is not None and last >= event.revision

    def add(self, event: EventIdentity) -> None:
        """Set the last revision of a key."""
        assert event.key is not None
        if len(self._recent) >= _MAX_KEYS // 2:
            self._older, self._recent = self._recent, {}
        self._recent[event.key] = event.revision

    @classmethod
    def of(cls, folder: Path, since_micros: int, floor: int, *, revised: bool) -> ByKey:
        """Read the keys of a partition that were written since a time and after the offset `floor`.

        The id of an event with revisions is `key#revision`, that of others is the key.
        """
        written = cls()
        for record in _records(folder, since_micros, floor):
            if record.startswith(_ID):
                id_, _ = json.JSONDecoder().raw_decode(record.decode("utf-8", "replace"), len(_ID))
                key, mark, revision = id_.rpartition("#") if revised else ("", "", "")
                written.add(EventIdentity(key, int(revision)) if mark else EventIdentity(id_, 0))
        return written


def _records(folder: Path, since_micros: int, floor: int) -> Iterator[bytes]:
    partition = Partition(folder)
    at = min(max(floor, partition.since(since_micros)), partition.end())
    while (block := partition.read(at, _BLOCK_RECORDS)).records:
        yield from block.records
        at = block.start + sum(len(record) + 1 for record in block.records)


def last_place(folder: Path) -> SourcePlace | None:
    """Return the place in the source of the last record of an output partition; None if there is none."""
    if not folder.is_dir():
        return None
    for segment in reversed(Partition(folder).segments()):
        line = _last_line(segment)
        if line:
            return _place(line)
    return None


def _last_line(segment: Segment) -> bytes:
    with open(segment.path, "rb") as file:
        end = whole(file.fileno(), segment.size())
        begin = whole(file.fileno(), max(0, end - 1))
        file.seek(begin)
        return file.read(end - begin)


def _place(line: bytes) -> SourcePlace | None:
    """Read `"_src":"stream/partition:position"`, with `.child` if there are several.

    >>> _place(b'{"_id":"x","_src":"gps/0:4096.2","_time":null}')
    (4096, 2)
    """
    _, separator, rest = line.partition(_SOURCE)
    if not separator:
        return None
    position, _, child = rest.partition(b'"')[0].rpartition(b":")[2].partition(b".")
    return int(position), int(child or 0)


# Marks ----------------------------------------------------------------


def save_mark(folder: Path, position: int) -> None:
    """Save next to an output partition how far its source was processed, including events without an output.

    The mark also has the end of the output: if it is shorter later, its last events were lost.
    """
    temporary = folder / "mark.new"
    temporary.write_text(f"{position} {Partition(folder).end()}")
    temporary.replace(folder / "mark")


def resume(folder: Path) -> int | None:
    """Return where to resume reading the source of an output partition: no event that it lacks is before that."""
    mark = (folder / "mark").read_text().split() if (folder / "mark").exists() else []
    is_whole = len(mark) < 2 or Partition(folder).end() >= int(mark[1])
    marked = int(mark[0]) if mark and is_whole else None
    last = last_place(folder)
    return max((position for position in (marked, last and last[0]) if position is not None), default=None)
