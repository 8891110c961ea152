"""What of a quarantine was sent again: a stream of marks beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal

import orjson

from tidegate.errors import LogError
from tidegate.logs import Cursor, EventLog
from tidegate.model import timestamps

State = Literal["begun", "done"]

SKEW_MICROS = 60_000_000
"""How far the clocks of a gateway and of a log may differ."""


@dataclass(frozen=True, slots=True)
class Mark:
    """That a refused event is being sent again, or was."""

    id: str
    state: State
    stream: str
    """The raw stream that it went to."""
    time: str
    by: str | None = None
    """The name of the key that was shown."""

    def to_json(self) -> dict[str, Any]:
        """As the API shows it."""
        return {"at": self.time, "stream": self.stream, "by": self.by}

    def record(self) -> bytes:
        """As the log has it."""
        said = {"_id": self.id, "_time": self.time, "state": self.state, "stream": self.stream, "by": self.by}
        return orjson.dumps(said)


@dataclass(slots=True)
class _Read:
    cursor: Cursor
    marks: dict[str, Mark] = field(default_factory=dict)


class Marks:
    """The marks of all quarantines. Memory only saves reading them again; any thread may ask."""

    def __init__(self, log: EventLog) -> None:
        self._log, self._lock = log, Lock()
        self._read: dict[str, _Read] = {}

    def of(self, stream: str) -> Mapping[str, Mark]:
        """By id: how far each refused event has come that somebody sent again; `stream` holds the marks."""
        with self._lock:
            if stream not in self._log.streams():
                self._read.pop(stream, None)
                return {}
            try:
                return dict(self._read_on(stream))
            except LogError:  # made anew
                self._read.pop(stream, None)
                return dict(self._read_on(stream))

    def done(self, stream: str) -> Mapping[str, Mark]:
        """Of those that were sent again."""
        return {id_: mark for id_, mark in self.of(stream).items() if mark.state == "done"}

    def note(self, stream: str, marks: Iterable[Mark]) -> None:
        """Write marks."""
        records = [mark.record() for mark in marks]
        if records:
            self._log.create(stream)
            self._log.append(stream, "0", records)

    def _read_on(self, stream: str) -> Mapping[str, Mark]:
        known = self._read.get(stream)
        if known is None:
            known = self._read[stream] = _Read(self._log.begin(stream))
        while (read := self._log.read(stream, known.cursor, 1_000)).records:
            for record in read.records:
                mark = _mark(orjson.loads(record))
                # The first that was begun, until one is done: what it sent is not older than itself.
                if mark.state == "done" or mark.id not in known.marks:
                    known.marks[mark.id] = mark
            known.cursor = read.cursor
        return known.marks


def _mark(said: Mapping[str, Any]) -> Mark:
    return Mark(said["_id"], said["state"], said["stream"], said["_time"], said["by"])


def arrived(log: EventLog, stream: str, marks: Iterable[Mark]) -> set[str]:
    """Which events whose sending was begun are in their raw stream: for whoever sends again after a crash."""
    begun = {mark.id: timestamps.from_text(mark.time) or 0 for mark in marks}
    found: set[str] = set()
    if not begun or stream not in log.streams():
        return found
    cursor = log.since(stream, min(begun.values()) - SKEW_MICROS)
    while (read := log.read(stream, cursor, 5_000)).records:
        for record in read.records:
            if b".quarantine:" in record and (id_ := orjson.loads(record).get("_id")) in begun:
                found.add(id_)
        cursor = read.cursor
    return found
