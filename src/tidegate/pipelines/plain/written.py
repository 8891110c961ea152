"""What an output has already: as its last record tells, or its keys since the last checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidegate.logs.files import Partition, Segment, whole

_LIMIT = 2_000_000
_ID = b'{"_id":'
_SOURCE = b'"_src":"'
_BLOCK = 10_000

Place = tuple[int, int]
"""Position and child: which event of a source, and which one of those that were made of it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What an event is known by: its key and revision, or the place in its source, which `revision` has then."""

    key: str | None
    revision: int
    child: int = 0


class Written(Protocol):
    """Tells whether an event is there already."""

    def has(self, event: Identity) -> bool:
        """Whether it is."""

    def note(self, event: Identity) -> None:
        """It is from now on."""


class ByPosition:
    """Events of an output partition come in the order of one source partition: the last one tells of all before."""

    def __init__(self, last: Place | None) -> None:
        self._last = last if last is not None else (-1, 0)

    def has(self, event: Identity) -> bool:
        """Whether an event of this position, or of one behind it, was written."""
        return (event.revision, event.child) <= self._last

    def note(self, event: Identity) -> None:
        """It is the last one now."""
        self._last = event.revision, event.child


class ByKey:
    """The keys that a service with a state has written since its checkpoint, each with its last revision.

    Old ones are let go of beyond a limit that no replay reaches.
    """

    def __init__(self) -> None:
        self._recent: dict[str, int] = {}
        self._older: dict[str, int] = {}

    def has(self, event: Identity) -> bool:
        """Whether the key was written with this revision or a later one."""
        assert event.key is not None
        last = self._recent.get(event.key, self._older.get(event.key))
        return last is not None and last >= event.revision

    def note(self, event: Identity) -> None:
        """It has this revision now."""
        assert event.key is not None
        if len(self._recent) >= _LIMIT // 2:
            self._older, self._recent = self._recent, {}
        self._recent[event.key] = event.revision

    @classmethod
    def of(cls, folder: Path, since_micros: int, floor: int, *, revised: bool) -> ByKey:
        """What a partition has of a version that began at `floor`, as far as it may come again.

        The id of an event that has revisions is `key#revision`, else it is the key.
        """
        found = cls()
        for record in _records(folder, since_micros, floor):
            if record.startswith(_ID):
                id_, _ = json.JSONDecoder().raw_decode(record.decode("utf-8", "replace"), len(_ID))
                key, mark, revision = id_.rpartition("#") if revised else ("", "", "")
                found.note(Identity(key, int(revision)) if mark else Identity(id_, 0))
        return found


def _records(folder: Path, since_micros: int, floor: int) -> Iterator[bytes]:
    partition = Partition(folder)
    at = min(max(floor, partition.since(since_micros)), partition.end())
    while (found := partition.read(at, _BLOCK)).records:
        yield from found.records
        at = found.start + sum(len(record) + 1 for record in found.records)


def last_place(folder: Path) -> Place | None:
    """Where the last record of an output partition comes from; None where there is none, or it does not say."""
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


def _place(line: bytes) -> Place | None:
    """Read `"_src":"stream/partition:position"`, with `.child` where there are several.

    >>> _place(b'{"_id":"x","_src":"gps/0:4096.2","_time":null}')
    (4096, 2)
    """
    _, found, rest = line.partition(_SOURCE)
    if not found:
        return None
    position, _, child = rest.partition(b'"')[0].rpartition(b":")[2].partition(b".")
    return int(position), int(child or 0)


# How far readers came ----------------------------------------------------------------


def note_mark(folder: Path, position: int) -> None:
    """Note beside an output partition how far its source is dealt with, also what left no record."""
    new = folder / "mark.new"
    new.write_text(str(position))
    new.replace(folder / "mark")


def resume(folder: Path) -> int | None:
    """Where to go on reading the source that an output partition belongs to: at or before what it lacks."""
    mark = folder / "mark"
    noted = int(mark.read_text()) if mark.exists() else None
    last = last_place(folder)
    return max((each for each in (noted, last and last[0]) if each is not None), default=None)
