"""Remembers the newest event ids of a stream, so that a repeated event is not appended again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import orjson

from tidegate.logs import Cursor, EventLog

_FIRST_LOOKBACK_S = 1.0
"""Producers retry soon after a failure, so the first lookback is short."""

_LOOKBACK_FACTOR = 4

_READ_RECORDS = 10_000


class RecentIds:
    """The newest ids of a stream: at most `max_ids`, and none older than `max_age_s`.

    The `StreamIngestor` of the stream fills it from the log, and asks it for each event with an id. Not thread-safe.
    """

    def __init__(self, max_ids: int, max_age_s: float) -> None:
        self._max_ids, self._max_age_s = max_ids, max_age_s
        self._ids: set[str] = set()
        self._order: deque[str] = deque()
        self._times: deque[float] = deque()

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, id_: str, now: float) -> bool:
        """Add an id. Returns False if it was there already. `now` must not decrease between calls."""
        if id_ in self._ids:
            return False
        self._ids.add(id_)
        self._order.append(id_)
        self._times.append(now)
        if len(self._order) > self._max_ids:
            self._remove_oldest()
        return True

    def expire(self, now: float) -> None:
        """Remove ids older than the maximum age."""
        while self._times and now - self._times[0] >= self._max_age_s:
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        self._times.popleft()
        self._ids.discard(self._order.popleft())


class SharedIds:
    """The newest ids of a stream that several processes append to, as the log has them.

    `catch_up` reads what the other processes have appended since. So an event that one of them has acknowledged is
    known here before an event with the same id is appended. Not thread-safe.
    """

    def __init__(self, log: EventLog, stream: str, recent: RecentIds, end: Cursor) -> None:
        """`recent` has the ids of the records before `end`."""
        self._log, self._stream, self._recent, self._seen = log, stream, recent, end

    def catch_up(self, max_records: int, now: float) -> bool:
        """Add the ids of records that were appended since. Returns False if there are too many, or another stream."""
        end = self._log.end(self._stream)
        if end.generation != self._seen.generation:
            return False
        if end.offsets == self._seen.offsets:
            return True
        ids, count = _ids_between(self._log, self._stream, self._seen, end, max_records)
        for id_ in ids:
            self._recent.add(id_, now)
        self._seen = end
        return count < max_records

    def appended(self, counts: Mapping[str, int], ends: Mapping[str, int]) -> None:
        """Skip records that this process has appended itself: their number, and the offset after them, by partition.

        If records of another process are between them, all are read by the next `catch_up`.
        """
        offsets = dict(self._seen.offsets)
        for partition, end in ends.items():
            if offsets.get(partition, 0) + counts[partition] == end:
                offsets[partition] = end
        self._seen = Cursor(self._seen.generation, offsets)


def read_recent_ids(log: EventLog, stream: str, end: Cursor, max_records: int, max_age_s: float, now: int) -> list[str]:
    """Return the ids of the newest records of a stream before `end`, oldest first; reads at most `max_records`.

    Looks back in steps, each four times as far as the previous one, so that the newest ids are found even if the stream
    has more than `max_records` in the maximum age.
    """
    steps: list[list[str]] = []
    lookback_s = min(_FIRST_LOOKBACK_S, max_age_s)
    while True:
        start = log.since(stream, now - round(lookback_s * 1e6))
        ids, count = _ids_between(log, stream, start, end, max_records)
        max_records -= count
        steps.append(ids)
        if max_records <= 0 or lookback_s >= max_age_s:
            return [id_ for step in reversed(steps) for id_ in step]
        end, lookback_s = start, min(lookback_s * _LOOKBACK_FACTOR, max_age_s)


def _ids_between(log: EventLog, stream: str, start: Cursor, end: Cursor, max_records: int) -> tuple[list[str], int]:
    """Return the ids of the first `max_records` records between two cursors, and the number of records read."""
    ids: list[str] = []
    count = 0
    cursor = start
    while count < max_records and any(cursor.offsets.get(name, 0) < offset for name, offset in end.offsets.items()):
        read = log.read(stream, cursor, min(_READ_RECORDS, max_records - count))
        if not read.records:
            break
        places = zip(read.places, read.records, strict=True)
        records = [record for (name, offset), record in places if offset < end.offsets.get(name, 0)]
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
