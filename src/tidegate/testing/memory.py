"""An event log in memory, with the same contract as the other logs."""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from tidegate.logs import Cursor, Gap, Read, RetentionLimits
from tidegate.logs.clock import Clock, SystemClock
from tidegate.logs.log import another_generation, beyond_end, need_names, need_records, no_partition, no_stream

_generations = count(1)


class MemoryLog:
    """A log for one process. Thread-safe. An offset is the number of a record.

    >>> log = MemoryLog()
    >>> log.publish("gps", {"vid": "B17"})
    >>> log.read("gps", log.begin("gps")).records
    (b'{"vid":"B17"}',)
    """

    def __init__(self, clock: Clock | None = None) -> None:
        """`clock` gives the append times of records, which `since` and `expire` use."""
        self._clock = clock or SystemClock()
        self._streams: dict[str, _Stream] = {}
        self._changed = threading.Condition()

    # Streams -------------------------------------------------------------------

    def create(self, stream: str, partitions: Sequence[str] = ("0",)) -> None:
        """Create a stream, or add partitions to it; does nothing if all exist."""
        need_names([stream, *partitions])
        with self._changed:
            created = self._streams.setdefault(stream, _Stream())
            for name in partitions:
                created.partitions.setdefault(name, _Partition())
            self._changed.notify_all()

    def streams(self) -> list[str]:
        """Return the names of all streams."""
        with self._changed:
            return sorted(self._streams)

    def partitions(self, stream: str) -> list[str]:
        """Return the names of a stream's partitions."""
        with self._changed:
            return sorted(self._stream(stream).partitions)

    def delete(self, stream: str) -> None:
        """Delete a stream and all its records."""
        with self._changed:
            self._stream(stream)
            del self._streams[stream]
            self._changed.notify_all()

    def close(self) -> None:
        """Do nothing: records can still be read."""

    # Writing -------------------------------------------------------------------

    def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
        """Append records, all or none, and return the offset after the last."""
        need_records(records)
        with self._changed:
            partitions = self._stream(stream).partitions
            if partition not in partitions:
                raise no_partition(stream, partition, partitions)
            target = partitions[partition]
            target.records += records
            target.times += [self._clock.now()] * len(records)
            self._changed.notify_all()
            return target.end

    def publish(self, stream: str, *events: Mapping[str, Any], partition: str = "0") -> None:
        """Append events as dicts; creates the stream and its partition if needed."""
        self.create(stream, [partition])
        written = [json.dumps(dict(event), ensure_ascii=False, separators=(",", ":")).encode() for event in events]
        self.append(stream, partition, written)

    # Reading -------------------------------------------------------------------

    def begin(self, stream: str) -> Cursor:
        """Return the cursor before the oldest record."""
        return self._at(stream, lambda partition: partition.first)

    def end(self, stream: str) -> Cursor:
        """Return the cursor after the newest record."""
        return self._at(stream, lambda partition: partition.end)

    def since(self, stream: str, micros: int) -> Cursor:
        """Return the cursor at the first record that was appended at or after a time."""
        return self._at(stream, lambda partition: partition.first + bisect_left(partition.times, micros))

    def read(self, stream: str, cursor: Cursor, max_records: int = 1_000) -> Read:
        """Read at most `max_records` records from a cursor, a share from each partition."""
        records: list[bytes] = []
        places: list[tuple[str, int]] = []
        gaps: list[Gap] = []
        offsets = dict(cursor.offsets)
        with self._changed:
            partitions = self._reading(stream, cursor)
            for n, (name, partition) in enumerate(partitions):
                share = -(-(max_records - len(records)) // (len(partitions) - n))
                requested = offsets.get(name, partition.first)
                if not share:
                    continue
                at = max(requested, partition.first)
                if at > requested:
                    gaps.append(Gap(name, requested, at))
                chunk = partition.records[at - partition.first : at - partition.first + share]
                places += [(name, at + k) for k in range(len(chunk))]
                records += chunk
                offsets[name] = at + len(chunk)
        return Read(tuple(records), tuple(places), Cursor(cursor.generation, offsets, cursor.marks), tuple(gaps))

    def wait(self, stream: str, cursor: Cursor, timeout_s: float) -> bool:
        """Block until there is a record or a gap after a cursor, and return True; return False after the timeout."""
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
        target = self._stream(stream)
        if cursor.generation != target.generation:
            raise another_generation(stream)
        for name, partition in target.partitions.items():
            if cursor.offsets.get(name, 0) > partition.end:
                raise beyond_end(stream, name, cursor.offsets[name], partition.end)
        return sorted(target.partitions.items())

    def _at(self, stream: str, offset_of: Callable[[_Partition], int]) -> Cursor:
        with self._changed:
            target = self._stream(stream)
            return Cursor(
                target.generation, {name: offset_of(partition) for name, partition in sorted(target.partitions.items())}
            )

    def _stream(self, stream: str) -> _Stream:
        target = self._streams.get(stream)
        if target is None:
            raise no_stream(stream, self._streams)
        return target

    # Keeping -------------------------------------------------------------------

    def expire(self, stream: str, retention: RetentionLimits) -> int:
        """Remove the oldest records by retention, and return the number of bytes freed."""
        with self._changed:
            now = self._clock.now()
            freed = sum(partition.expire(retention, now) for partition in self._stream(stream).partitions.values())
            self._changed.notify_all()
            return freed


class _Stream:
    def __init__(self) -> None:
        self.generation = f"memory-{next(_generations)}"
        self.partitions: dict[str, _Partition] = {}


class _Partition:
    def __init__(self) -> None:
        self.first = 0
        """Offset of the oldest record."""
        self.records: list[bytes] = []
        self.times: list[int] = []

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    def expire(self, retention: RetentionLimits, now: int) -> int:
        sizes = [len(record) + 1 for record in self.records]
        size, gone, freed = sum(sizes), 0, 0
        for record, at in zip(sizes, self.times, strict=True):
            is_too_much = retention.size_bytes is not None and size - freed > retention.size_bytes
            is_too_old = retention.age_s is not None and (now - at) / 1e6 > retention.age_s
            if not (is_too_much or is_too_old):
                break
            gone, freed = gone + 1, freed + record
        del self.records[:gone], self.times[:gone]
        self.first += gone
        return freed
