"""Shared by tests of feeds: a clock that is advanced by waits, a log that crashes, and readers of streams."""

from __future__ import annotations

import json
from collections.abc import Sequence
from threading import Event
from typing import Any

from tests.polling import until as until
from tidegate.logs import EventLog, SegmentLog
from tidegate.testing import ManualClock


class HandClock(ManualClock):
    """A clock that is advanced by hand or by a wait. At `end_s` it stops the waiting thread."""

    def __init__(self, end_s: float = float("inf")) -> None:
        super().__init__()
        self.end_s = end_s

    def wait(self, stop: Event, seconds: float) -> bool:
        super().wait(stop, seconds)
        if self.monotonic() >= self.end_s:
            stop.set()
        return stop.is_set()


def raw(log: EventLog, stream: str) -> list[bytes]:
    """All records of a stream; none while there is no such stream."""
    if stream not in log.streams():
        return []
    cursor, found = log.begin(stream), list[bytes]()
    while (read := log.read(stream, cursor, 10_000)).records:
        found += read.records
        cursor = read.cursor
    return found


def events(log: EventLog, stream: str) -> list[dict[str, Any]]:
    """All records of a stream, decoded."""
    return [json.loads(record) for record in raw(log, stream)]


class CrashError(Exception):
    """Ends a feed as a crash does."""


class FragileLog(SegmentLog):
    """Crashes before or after the append that `fuse` counts down to."""

    fuse = 10**9

    def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
        self.fuse -= 1
        if self.fuse == 0:
            raise CrashError
        end = super().append(stream, partition, records)
        self.fuse -= 1
        if self.fuse == 0:
            raise CrashError
        return end
