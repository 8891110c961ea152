"""Where a feed goes on: exactly behind what its raw stream holds.

The log itself says what was taken: every record bears the position that it came
from as its `_id`. To read all of it at each start would take long, so a small
file beside the log says from where on: a position in the source and the log's
cursor of the same moment. What the log holds behind that cursor is left out
when it comes again. So the file is never a promise, only a short cut: if it is
lost, old, or ahead of a log that lost its tail with the power, the whole stream
is read instead.
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
from tidegate.logs import Cursor, EventLog
from tidegate.logs.intake import Input, Intake

EVERY_S = 1.0
"""How often a position is noted: so much is read again after a crash, and compared."""


class Seen:
    """What a stream holds already, by the ids of its records.

    Ids that end in a number are kept as runs: `taxis.csv:1` to `taxis.csv:9000`
    takes two numbers. Others are kept one by one.
    """

    def __init__(self) -> None:
        self._gathered: dict[str, array[int]] = {}
        self._runs: dict[str, tuple[list[int], list[int]]] = {}
        self._others: set[str] = set()
        self.left = 0
        """How many of its records did not come again yet."""

    def add(self, id_: str) -> None:
        """Note a record's id."""
        self.left += 1
        unit, number = _parts(id_)
        if number is None:
            self._others.add(id_)
        else:
            self._gathered.setdefault(unit, array("q")).append(number)
            self._runs.pop(unit, None)

    def has(self, id_: str) -> bool:
        """Whether a record is there."""
        unit, number = _parts(id_)
        if number is None:
            return id_ in self._others
        if unit not in self._gathered:
            return False
        begins, ends = self._settled(unit)
        at = bisect_right(begins, number) - 1
        return at >= 0 and number <= ends[at]

    def first_missing(self, unit: str) -> int | None:
        """The number behind the first run of a unit's records; None where it has none."""
        return self._settled(unit)[1][0] + 1 if unit in self._gathered else None

    def _settled(self, unit: str) -> tuple[list[int], list[int]]:
        found = self._runs.get(unit)
        if found is None:
            begins: list[int] = []
            ends: list[int] = []
            for number in sorted(self._gathered[unit]):
                if ends and number <= ends[-1] + 1:
                    ends[-1] = number
                else:
                    begins.append(number)
                    ends.append(number)
            found = self._runs[unit] = begins, ends
        return found


def _parts(id_: str) -> tuple[str, int | None]:
    unit, _, number = id_.rpartition(":")
    # As we write numbers, no other way: 007 is another id than 7.
    plain = unit and number.isascii() and number.isdecimal() and len(number) < 19 and str(int(number)) == number
    return (unit, int(number)) if plain else (id_, None)


class Resume:
    """Finds and notes the position of one stream's feed."""

    def __init__(self, intake: Intake, source: str, folder: Path | None) -> None:
        self._log, self._streams, self._source = intake.log, (intake.stream.name, intake.quarantine), source
        self._path = None if folder is None else folder / f"{intake.stream.name}.json"
        self._cursors: dict[str, Cursor] = {}
        self.seen = Seen()
        """What the log holds of what follows the position."""

    def load(self) -> dict[str, Any]:
        """A position in the source: all before it is in the log."""
        try:
            position, self._cursors = self._noted()
            self.seen = self._since()
        except (OSError, ValueError, KeyError, TypeError, CursorError):
            position, self._cursors = {}, {stream: self._log.begin(stream) for stream in self._streams}
            self.seen = self._since()
        return position

    def fresh(self, inputs: Iterable[Input]) -> list[Input]:
        """Those that are not in the log yet; until all that was behind the position has come again."""
        if not self.seen.left:
            return list(inputs)
        found = []
        for each in inputs:
            id_ = own_id(each.raw) or each.id
            if id_ is not None and self.seen.has(id_):
                self.seen.left -= 1
            else:
                found.append(each)
        return found

    def caught_up(self) -> None:
        """Say that nothing of what was behind the position can come again."""
        self.seen = Seen()

    def save(self, position: dict[str, Any]) -> None:
        """Note a position, all before which is in the log."""
        if self._path is None:
            return
        if self.seen.left <= 0:  # else the log's end is ahead of the position
            self._cursors = {stream: self._log.end(stream) for stream in self._streams}
        cursors = {stream: cursor.text for stream, cursor in self._cursors.items()}
        said = json.dumps({"source": self._source, "position": position, "cursors": cursors})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_text(said)
        os.replace(fresh, self._path)

    def _noted(self) -> tuple[dict[str, Any], dict[str, Cursor]]:
        if self._path is None:
            raise FileNotFoundError
        said = json.loads(self._path.read_text())
        if said["source"] != self._source or not isinstance(said["position"], dict):
            raise ValueError("of another source")
        return said["position"], {stream: Cursor.from_text(said["cursors"][stream]) for stream in self._streams}

    def _since(self) -> Seen:
        seen = Seen()
        for stream, cursor in self._cursors.items():
            _gather(self._log, stream, cursor, seen)
        return seen


def _gather(log: EventLog, stream: str, cursor: Cursor, seen: Seen) -> None:
    while (read := log.read(stream, cursor, 10_000)).records:
        cursor = read.cursor
        for record in read.records:
            id_ = orjson.loads(record).get("_id")
            if isinstance(id_, str):
                seen.add(id_)


def own_id(raw: bytes) -> str | None:
    """The id that a producer gave its event."""
    if b"_id" not in raw and b"\\" not in raw:
        return None
    try:
        event = orjson.loads(raw)
    except ValueError:
        return None
    found = event.get("_id") if isinstance(event, dict) else None
    return found if isinstance(found, str) else None
