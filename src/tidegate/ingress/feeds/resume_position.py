"""Finds where a feed resumes: exactly after the records that its raw stream holds.

The log decides. The `_id` of each record is its position in the source. Reading the whole log at each start would take
long, so a small file next to the log stores a position in the source, and the cursor of the log at that time. The feed
reads the log from that cursor, and skips inputs that are already there. The file is only a shortcut: if it is missing,
old, or ahead of a log that lost its end in a power failure, the whole raw stream is read instead.
"""

from __future__ import annotations

import json
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from tidegate.errors import CursorError
from tidegate.ingress.raw_streams import Input, RawStreamWriter
from tidegate.logs import Cursor, EventLog

SAVE_INTERVAL_S = 1.0
"""How often a position is saved. After a crash, a feed reads up to this much again, and compares it with the log."""
_READ_RECORDS = 10_000


class StoredIds:
    """The ids of records that a raw stream holds after the saved position.

    Ids that end in a number are stored as ranges: `taxis.csv:1` to `taxis.csv:9000` takes two numbers. Others are
    stored one by one.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, array[int]] = {}
        self._ranges: dict[str, tuple[list[int], list[int]]] = {}
        self._others: set[str] = set()
        self.remaining = 0
        """How many of the records the source has not sent again yet."""

    def add(self, id_: str) -> None:
        """Add the id of a record."""
        self.remaining += 1
        prefix, number = _split(id_)
        if number is None:
            self._others.add(id_)
        else:
            self._numbers.setdefault(prefix, array("q")).append(number)
            self._ranges.pop(prefix, None)

    def has(self, id_: str) -> bool:
        """True if the id was added."""
        prefix, number = _split(id_)
        if number is None:
            return id_ in self._others
        if prefix not in self._numbers:
            return False
        starts, ends = self._ranges_of(prefix)
        index = bisect_right(starts, number) - 1
        return index >= 0 and number <= ends[index]

    def first_missing(self, prefix: str) -> int | None:
        """Return the number after the first range of ids with this prefix; None if there are no such ids."""
        return self._ranges_of(prefix)[1][0] + 1 if prefix in self._numbers else None

    def _ranges_of(self, prefix: str) -> tuple[list[int], list[int]]:
        ranges = self._ranges.get(prefix)
        if ranges is None:
            starts: list[int] = []
            ends: list[int] = []
            for number in sorted(self._numbers[prefix]):
                if ends and number <= ends[-1] + 1:
                    ends[-1] = number
                else:
                    starts.append(number)
                    ends.append(number)
            ranges = self._ranges[prefix] = starts, ends
        return ranges


def _split(id_: str) -> tuple[str, int | None]:
    prefix, _, number = id_.rpartition(":")
    # Only numbers as we write them: 007 is a different id than 7.
    is_numbered = prefix and number.isascii() and number.isdecimal() and len(number) < 19 and str(int(number)) == number
    return (prefix, int(number)) if is_numbered else (id_, None)


class ResumePosition:
    """Loads and saves the position of one feed. Used by the thread of the feed only."""

    def __init__(self, writer: RawStreamWriter, source: str, folder: Path | None) -> None:
        """`source` names the input: a position that was saved for another one is ignored."""
        self._log, self._streams, self._source = writer.log, (writer.stream.name, writer.quarantine), source
        self._path = None if folder is None else folder / f"{writer.stream.name}.json"
        self._cursors: dict[str, Cursor] = {}
        self.stored = StoredIds()
        """Records after the position that are in the log."""

    def load(self) -> dict[str, Any]:
        """Return a position in the source; everything before it is in the log. Empty: read from the start."""
        try:
            position, self._cursors = self._read_file()
            self.stored = self._read_stored()
        except (OSError, ValueError, KeyError, TypeError, CursorError):
            position, self._cursors = {}, {stream: self._log.begin(stream) for stream in self._streams}
            self.stored = self._read_stored()
        return position

    def without_stored(self, inputs: Iterable[Input]) -> list[Input]:
        """Return the inputs that are not in the log yet. Cheap once all stored records were seen again."""
        if not self.stored.remaining:
            return list(inputs)
        new = []
        for item in inputs:
            id_ = producer_id(item.raw) or item.id
            if id_ is not None and self.stored.has(id_):
                self.stored.remaining -= 1
            else:
                new.append(item)
        return new

    def clear_stored(self) -> None:
        """Forget the stored records. Called when the source can't send any of them again."""
        self.stored = StoredIds()

    def save(self, position: dict[str, Any]) -> None:
        """Save a position. Everything before it must be in the log."""
        if self._path is None:
            return
        if self.stored.remaining <= 0:  # otherwise the end of the log is ahead of the position
            self._cursors = {stream: self._log.end(stream) for stream in self._streams}
        cursors = {stream: cursor.text for stream, cursor in self._cursors.items()}
        text = json.dumps({"source": self._source, "position": position, "cursors": cursors})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".new")
        temporary.write_text(text)
        os.replace(temporary, self._path)

    def _read_file(self) -> tuple[dict[str, Any], dict[str, Cursor]]:
        if self._path is None:
            raise FileNotFoundError
        document = json.loads(self._path.read_text())
        if document["source"] != self._source or not isinstance(document["position"], dict):
            raise ValueError("the position of another source")
        return document["position"], {stream: Cursor.from_text(document["cursors"][stream]) for stream in self._streams}

    def _read_stored(self) -> StoredIds:
        stored = StoredIds()
        for stream, cursor in self._cursors.items():
            _add_ids(self._log, stream, cursor, stored)
        return stored


def _add_ids(log: EventLog, stream: str, cursor: Cursor, stored: StoredIds) -> None:
    """Add the ids of the records behind a cursor. Raises CursorError if records are lost that have not expired."""
    begin = log.begin(stream).offsets
    while True:
        read = log.read(stream, cursor, _READ_RECORDS)
        if cursor.offsets != begin and any(gap.resumed_at > begin.get(gap.partition, 0) for gap in read.gaps):
            raise CursorError(f"records of {stream!r} are lost: what a source has sent is looked up from the beginning")
        if not read.records:
            return
        cursor = read.cursor
        for record in read.records:
            id_ = orjson.loads(record).get("_id")
            if isinstance(id_, str):
                stored.add(id_)


def producer_id(raw: bytes) -> str | None:
    """Return the id that a producer gave its event; None if there is none."""
    if b"_id" not in raw and b"\\" not in raw:
        return None
    try:
        event = orjson.loads(raw)
    except ValueError:
        return None
    id_ = event.get("_id") if isinstance(event, dict) else None
    return id_ if isinstance(id_, str) else None
