"""Streams in memory: what the logs promise, without files."""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from tidegate.logs import Cursor, Gap, Read, Retention
from tidegate.logs.clock import Clock, SystemClock
from tidegate.logs.log import another_generation, beyond_end, need_names, need_records, no_partition, no_stream

_generations = count(1)


class MemoryLog:
    """A log for one process; any of its threads may read and write. An offset is the number of a record.

    >>> log = MemoryLog()
    >>> log.publish("gps", {"vid": "B17"})
    >>> log.read("gps", log.begin("gps")).records
    (b'{"vid":"B17"}',)
    """

    def __init__(self, clock: Clock | None = None) -> None:
        """`clock` says when records are appended, which `since` and `expire` go by."""
        self._clock = clock or SystemClock()
        self._streams: dict[str, _Stream] = {}
        self._changed = threading.Condition()

    # Streams -------------------------------------------------------------------

    def create(self, stream: str, partitions: Sequence[str] = ("0",)) -> None:
        """Make a stream, or add partitions to it; nothing where all are there."""
        need_names([stream, *partitions])
        with self._changed:
            found = self._streams.setdefault(stream, _Stream())
            for name in partitions:
                found.partitions.setdefault(name, _Partition())
            self._changed.notify_all()

    def streams(self) -> list[str]:
        """The names of all streams."""
        with self._changed:
            return sorted(self._streams)

    def partitions(self, stream: str) -> list[str]:
        """The names of a stream's partitions."""
        with self._changed:
            return sorted(self._stream(stream).partitions)

    def delete(self, stream: str) -> None:
        """Forget a stream and all its records."""
        with self._changed:
            self._stream(stream)
            del self._streams[stream]
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing: what was appended may still be read."""

    # Writing -------------------------------------------------------------------

    def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
        """Add records, all or none, and give the offset behind the last."""
        need_records(records)
        with self._changed:
            partitions = self._stream(stream).partitions
            if partition not in partitions:
                raise no_partition(stream, partition, partitions)
            found = partitions[partition]
            found.records += records
            found.times += [self._clock.now()] * len(records)
            self._changed.notify_all()
            return found.end

    def publish(self, stream: str, *events: Mapping[str, Any], partition: str = "0") -> None:
        """Append events, each a dict; the stream and its partition are made where they are not there."""
        self.create(stream, [partition])
        written = [json.dumps(dict(each), ensure_ascii=False, separators=(",", ":")).encode() for each in events]
        self.append(stream, partition, written)

    # Reading -------------------------------------------------------------------

    def begin(self, stream: str) -> Cursor:
        """Before the oldest record that is left."""
        return self._at(stream, lambda partition: partition.first)

    def end(self, stream: str) -> Cursor:
        """Behind the newest record."""
        return self._at(stream, lambda partition: partition.end)

    def since(self, stream: str, micros: int) -> Cursor:
        """At the first record that was appended at a moment or later."""
        return self._at(stream, lambda partition: partition.first + bisect_left(partition.times, micros))

    def read(self, stream: str, cursor: Cursor, most: int = 1_000) -> Read:
        """Read on from a cursor, at most so many records, from each partition its share."""
        records: list[bytes] = []
        places: list[tuple[str, int]] = []
        gaps: list[Gap] = []
        offsets = dict(cursor.offsets)
        with self._changed:
            partitions = self._reading(stream, cursor)
            for n, (name, partition) in enumerate(partitions):
                share = -(-(most - len(records)) // (len(partitions) - n))
                asked = offsets.get(name, partition.first)
                if not share:
                    continue
                at = max(asked, partition.first)
                if at > asked:
                    gaps.append(Gap(name, asked, at))
                found = partition.records[at - partition.first : at - partition.first + share]
                places += [(name, at + k) for k in range(len(found))]
                records += found
                offsets[name] = at + len(found)
        return Read(tuple(records), tuple(places), Cursor(cursor.generation, offsets, cursor.marks), tuple(gaps))

    def wait(self, stream: str, cursor: Cursor, timeout_s: float) -> bool:
        """Return as soon as there is something to read from a cursor on, or a gap to tell: true; else false."""
        until = time.monotonic() + timeout_s
        with self._changed:
            while True:
                for name, partition in self._reading(stream, cursor):
                    at = cursor.offsets.get(name, partition.first)
                    if at < partition.first or at < partition.end:
                        return True
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)

    def _reading(self, stream: str, cursor: Cursor) -> list[tuple[str, _Partition]]:
        found = self._stream(stream)
        if cursor.generation != found.generation:
            raise another_generation(stream)
        for name, partition in found.partitions.items():
            if cursor.offsets.get(name, 0) > partition.end:
                raise beyond_end(stream, name, cursor.offsets[name], partition.end)
        return sorted(found.partitions.items())

    def _at(self, stream: str, place: Callable[[_Partition], int]) -> Cursor:
        with self._changed:
            found = self._stream(stream)
            return Cursor(found.generation, {name: place(each) for name, each in sorted(found.partitions.items())})

    def _stream(self, stream: str) -> _Stream:
        found = self._streams.get(stream)
        if found is None:
            raise no_stream(stream, self._streams)
        return found

    # Keeping -------------------------------------------------------------------

    def expire(self, stream: str, retention: Retention) -> int:
        """Let go of records, the oldest first; give the bytes that were freed."""
        with self._changed:
            now = self._clock.now()
            freed = sum(each.expire(retention, now) for each in self._stream(stream).partitions.values())
            self._changed.notify_all()
            return freed


class _Stream:
    def __init__(self) -> None:
        self.generation = f"memory-{next(_generations)}"
        self.partitions: dict[str, _Partition] = {}


class _Partition:
    def __init__(self) -> None:
        self.first = 0
        """The offset of the oldest record that is left."""
        self.records: list[bytes] = []
        self.times: list[int] = []

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    def expire(self, retention: Retention, now: int) -> int:
        sizes = [len(each) + 1 for each in self.records]
        size, gone, freed = sum(sizes), 0, 0
        for each, at in zip(sizes, self.times, strict=True):
            is_too_much = retention.size_bytes is not None and size - freed > retention.size_bytes
            is_too_old = retention.age_s is not None and (now - at) / 1e6 > retention.age_s
            if not (is_too_much or is_too_old):
                break
            gone, freed = gone + 1, freed + each
        del self.records[:gone], self.times[:gone]
        self.first += gone
        return freed
