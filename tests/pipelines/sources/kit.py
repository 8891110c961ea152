"""A clock that only moves when it is waited for, and how to read a stream back."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Event
from typing import Any

from tidegate.logs import EventLog


class HandClock:
    """Waiting is over at once, and later by what was waited for; at `end_s` it stops whoever waits."""

    def __init__(self, start: int = 1_767_225_600_000_000, end_s: float = float("inf")) -> None:
        self.start, self.passed_s, self.end_s = start, 0.0, end_s
        self.waits: list[float] = []

    def now(self) -> int:
        return self.start + round(self.passed_s * 1e6)

    def monotonic(self) -> float:
        return self.passed_s

    def wait(self, stop: Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.passed_s += max(0.0, seconds)
        if self.passed_s >= self.end_s:
            stop.set()
        return stop.is_set()


def raw(log: EventLog, stream: str) -> list[bytes]:
    """All records of a stream."""
    cursor, found = log.begin(stream), list[bytes]()
    while (read := log.read(stream, cursor, 10_000)).records:
        found += read.records
        cursor = read.cursor
    return found


def events(log: EventLog, stream: str) -> list[dict[str, Any]]:
    """All records of a stream, decoded."""
    return [json.loads(record) for record in raw(log, stream)]


def until(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    """Wait for something that another thread or process does."""
    never = Event()
    for _ in range(int(timeout_s / 0.01)):
        if condition():
            return
        never.wait(0.01)
    raise AssertionError(f"not within {timeout_s} s")
