"""Marks of replayed events: a stream beside each quarantine that says which of its events were replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal

import orjson

from tidegate.errors import CursorError, StreamNotFound
from tidegate.logs import Cursor, EventLog
from tidegate.model import timestamps

ReplayState = Literal["begun", "done"]

SKEW_MICROS = 60_000_000
"""The largest difference between the clocks of a gateway and of a log that is tolerated."""


@dataclass(frozen=True, slots=True)
class ReplayMark:
    """Says that the replay of a quarantined event has begun, or is done."""

    id: str
    state: ReplayState
    stream: str
    """The raw stream that the event is replayed to."""
    time: str
    by: str | None = None
    """The name of the caller; None if callers are not identified."""

    def to_json(self) -> dict[str, Any]:
        """Return the mark as the API shows it."""
        return {"at": self.time, "stream": self.stream, "by": self.by}

    def record(self) -> bytes:
        """Return the mark as a record of the log."""
        document = {"_id": self.id, "_time": self.time, "state": self.state, "stream": self.stream, "by": self.by}
        return orjson.dumps(document)


@dataclass(slots=True)
class _Read:
    cursor: Cursor
    marks: dict[str, ReplayMark] = field(default_factory=dict)


class ReplayMarks:
    """The replay marks of all quarantines, read from the log and cached. Thread-safe."""

    def __init__(self, log: EventLog) -> None:
        self._log, self._lock = log, Lock()
        self._read: dict[str, _Read] = {}

    def marks_of(self, stream: str) -> Mapping[str, ReplayMark]:
        """Return the newest state of each replay by event id. `stream` holds the marks. Blocks: reads the log."""
        with self._lock:
            if stream not in self._log.streams():
                self._read.pop(stream, None)
                return {}
            try:
                return dict(self._read_new(stream))
            except (CursorError, StreamNotFound):  # the stream was deleted and created again
                self._read.pop(stream, None)
                return dict(self._read_new(stream))

    def completed(self, stream: str) -> Mapping[str, ReplayMark]:
        """Return the marks of events whose replay is done, by id. Blocks: reads the log."""
        return {id_: mark for id_, mark in self.marks_of(stream).items() if mark.state == "done"}

    def append(self, stream: str, marks: Iterable[ReplayMark]) -> None:
        """Append marks to their stream, which is created if needed. Blocks: writes the log."""
        records = [mark.record() for mark in marks]
        if records:
            self._log.create(stream)
            self._log.append(stream, "0", records)

    def _read_new(self, stream: str) -> Mapping[str, ReplayMark]:
        cached = self._read.get(stream)
        if cached is None:
            cached = self._read[stream] = _Read(self._log.begin(stream))
        while (read := self._log.read(stream, cached.cursor, 1_000)).records:
            for record in read.records:
                mark = _mark(orjson.loads(record))
                # Keep the first "begun": the events of that replay have been appended after it. "done" replaces it.
                if mark.state == "done" or mark.id not in cached.marks:
                    cached.marks[mark.id] = mark
            cached.cursor = read.cursor
        return cached.marks


def _mark(record: Mapping[str, Any]) -> ReplayMark:
    return ReplayMark(record["_id"], record["state"], record["stream"], record["_time"], record["by"])


def arrived(log: EventLog, stream: str, marks: Iterable[ReplayMark]) -> set[str]:
    """Return the ids of marked events that are in their raw stream: they were sent before a crash.

    `marks` are those with the state "begun". Blocks: reads the raw stream from the time of the oldest mark.
    """
    begun = {mark.id: timestamps.from_text(mark.time) or 0 for mark in marks}
    arrived_ids: set[str] = set()
    if not begun or stream not in log.streams():
        return arrived_ids
    cursor = log.since(stream, min(begun.values()) - SKEW_MICROS)
    while (read := log.read(stream, cursor, 5_000)).records:
        for record in read.records:
            if b".quarantine:" in record and (id_ := orjson.loads(record).get("_id")) in begun:
                arrived_ids.add(id_)
        cursor = read.cursor
    return arrived_ids
