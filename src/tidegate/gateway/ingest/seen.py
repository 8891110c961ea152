"""Which ids a stream had lately, so that an event that is sent again is not appended again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import orjson

from tidegate.logs import Cursor, EventLog

_FIRST_LOOK_S = 1.0
"""Whoever sends again after a failure does it soon: the first look back is short."""

_LOOK_FACTOR = 4

_READ = 10_000


class Seen:
    """The newest ids of a stream, not more than a number and none older than an age."""

    def __init__(self, most: int, age_s: float) -> None:
        self._most, self._age_s = most, age_s
        self._ids: set[str] = set()
        self._order: deque[str] = deque()
        self._moments: deque[float] = deque()

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, id_: str, now: float) -> bool:
        """Note an id, and say whether it is new. Moments never go back; `expire` lets go of the old."""
        if id_ in self._ids:
            return False
        self._ids.add(id_)
        self._order.append(id_)
        self._moments.append(now)
        if len(self._order) > self._most:
            self._forget()
        return True

    def expire(self, now: float) -> None:
        """Forget what is older than the age."""
        while self._moments and now - self._moments[0] >= self._age_s:
            self._forget()

    def _forget(self) -> None:
        self._moments.popleft()
        self._ids.discard(self._order.popleft())


def recent_ids(log: EventLog, stream: str, most: int, age_s: float, now: int) -> list[str]:
    """The producers' ids at the end of a stream, oldest first: of an age at most, found in `most` records.

    Looks back in steps, each four times as far as the one before, so that what is
    newest is found however much there is.
    """
    found: list[list[str]] = []
    behind = log.end(stream)
    look_s = min(_FIRST_LOOK_S, age_s)
    while True:
        begin = log.since(stream, now - round(look_s * 1e6))
        ids, count = _between(log, stream, begin, behind, most)
        most -= count
        found.append(ids)
        if most <= 0 or look_s >= age_s:
            return [id_ for each in reversed(found) for id_ in each]
        behind, look_s = begin, min(look_s * _LOOK_FACTOR, age_s)


def _between(log: EventLog, stream: str, begin: Cursor, behind: Cursor, most: int) -> tuple[list[str], int]:
    """The ids of the records from one cursor to another, or of the first of them, and how many records these are."""
    ids: list[str] = []
    count = 0
    cursor = begin
    while count < most and any(cursor.offsets.get(name, 0) < end for name, end in behind.offsets.items()):
        read = log.read(stream, cursor, min(_READ, most - count))
        if not read.records:
            break
        places = zip(read.places, read.records, strict=True)
        records = [record for (name, at), record in places if at < behind.offsets.get(name, 0)]
        ids += _ids(records)
        count += len(records)
        cursor = read.cursor
    return ids, count


def _ids(records: Iterable[bytes]) -> Iterable[str]:
    for record in records:
        if b'"_id"' in record:
            id_ = orjson.loads(record).get("_id")
            if isinstance(id_, str):
                yield id_
