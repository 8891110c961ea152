"""Reads the segment files of one partition.

A writer and an expiry may change the files at the same time, in this process or another. Two facts make reading safe
without a lock: a record is complete when its newline is written, and a segment is named by its first offset, so that
the name of the next segment is known.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.errors import CursorError
from tidegate.logs.log import beyond_end

RELIST_INTERVAL_S = 1.0
"""A list of segments is cached for this time at most."""

TIME = struct.Struct("<qq")
"""An entry of the time index: a time in microseconds, and the offset of the first record appended since."""


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """The result of reading a partition from an offset."""

    start: int
    """Offset of the first record: the requested one, or a later one if that has expired."""
    records: list[bytes]


class Segment:
    """One file of a partition."""

    __slots__ = ("base", "folder", "path")

    def __init__(self, folder: str, base: int) -> None:
        self.folder, self.base = folder, base
        self.path = f"{folder}/{base:020d}.log"

    @property
    def times_path(self) -> str:
        """The path of the segment's time index."""
        return f"{self.folder}/{self.base:020d}.times"

    def size(self) -> int:
        """Return the size in bytes, with an incomplete record. Raises FileNotFoundError."""
        return os.stat(self.path).st_size

    def is_newest(self) -> bool:
        """True if the segment exists and no other follows; the name of that would be the end of this one."""
        size = size_of(self.path)
        return size == 0 or (size > 0 and not os.path.exists(Segment(self.folder, self.base + size).path))

    def end(self) -> int:
        """Return the offset after the last complete record."""
        with open(self.path, "rb") as file:
            return self.base + whole(file.fileno(), os.fstat(file.fileno()).st_size)

    def read(self, offset: int, max_records: int, into: list[bytes]) -> int:
        """Add complete records from an offset to `into`, until it has `max_records`; return the offset after them.

        Raises CursorError if no record begins at the offset.
        """
        with open(self.path, "rb") as file:
            at = offset - self.base
            if at > 0:
                file.seek(at - 1)
                if file.read(1) != b"\n":
                    raise self._no_record_at(offset, os.fstat(file.fileno()).st_size)
            while len(into) < max_records and (line := file.readline()).endswith(b"\n"):
                into.append(line[:-1])
                offset += len(line)
        return offset

    def _no_record_at(self, offset: int, size: int) -> CursorError:
        stream, partition = self.folder.rsplit("/", 2)[1:]
        if offset > self.base + size:
            return beyond_end(stream, partition, offset, self.base + size)
        return CursorError(f"offset {offset} of {stream}/{partition} is inside a record, not at its start")

    def has_record(self, offset: int) -> bool:
        """True if a read from an offset would return a record or raise an error."""
        size = self.size()
        at = offset - self.base
        if at >= size:
            return at > size
        with open(self.path, "rb") as file:
            return whole(file.fileno(), os.fstat(file.fileno()).st_size) > at

    def times(self) -> list[tuple[int, int]]:
        """Return the time index as times and offsets, in ascending order, without incomplete and invalid entries."""
        try:
            with open(self.times_path, "rb") as file:
                data = file.read()
            end = self.base + self.size()
        except FileNotFoundError:
            return []
        entries: list[tuple[int, int]] = []
        last = self.base
        for micros, offset in TIME.iter_unpack(data[: len(data) // TIME.size * TIME.size]):
            if last <= offset <= end:
                entries.append((micros, offset))
                last = offset
        return entries

    def is_before(self, micros: int) -> bool:
        """True if all entries of the time index are earlier than a time; quicker than `times`."""
        try:
            with open(self.times_path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return False
        values = array("q", data[: len(data) // TIME.size * TIME.size])
        if sys.byteorder == "big":
            values.byteswap()
        return bool(values) and max(values[::2]) < micros

    def last_written(self) -> int:
        """Return the time of the last append in microseconds: from the time index, or else of the file."""
        try:
            with open(self.times_path, "rb") as file:
                size = os.fstat(file.fileno()).st_size // TIME.size * TIME.size
                end = self.base + self.size()
                while size:
                    size -= TIME.size
                    micros, offset = TIME.unpack(os.pread(file.fileno(), TIME.size, size))
                    if self.base <= offset <= end:
                        return int(micros)
        except FileNotFoundError:
            pass
        return os.stat(self.path).st_mtime_ns // 1_000

    def unlink(self) -> None:
        """Delete the segment; readers that have it open can still read it."""
        for path in (self.path, self.times_path):
            Path(path).unlink(missing_ok=True)


class Partition:
    """A folder of segments.

    The list of segments is cached until the newest one is deleted or followed by another. It may therefore contain
    expired segments; methods that find one missing list the folder again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self._known: Sequence[Segment] = ()
        self._listed_at = 0.0

    def segments(self, *, refresh: bool = False) -> Sequence[Segment]:
        """Return the segments, oldest first; `refresh` lists the folder even if the cached list seems current."""
        known = self._known
        # A segment that does not begin where the one before it ends is found by listing the folder only.
        is_old = time.monotonic() - self._listed_at > RELIST_INTERVAL_S
        if refresh or is_old or not known or not known[-1].is_newest():
            self._listed_at = time.monotonic()
            self._known = known = segments_of(self.folder)
        return known

    def sizes(self) -> list[tuple[str, int]]:
        """Return the files that change when a record is appended, with their sizes; -1: the file does not exist yet."""
        segments = self.segments()
        newest = segments[-1] if segments else Segment(self.folder, 0)
        size = size_of(newest.path)
        sizes = [(newest.path, size)]
        if size > 0:
            sizes.append((Segment(self.folder, newest.base + size).path, -1))
        return sizes

    def begin(self) -> int:
        """Return the offset of the oldest record."""
        segments = self.segments(refresh=True)
        return segments[0].base if segments else 0

    def end(self) -> int:
        """Return the offset after the newest complete record."""
        while segments := self.segments(refresh=True):
            try:
                return segments[-1].end()
            except FileNotFoundError:
                continue  # expired after the folder was listed
        return 0

    def since(self, micros: int) -> int:
        """Return an offset at or before the first record that was appended at or after a time, by the time index."""
        segments = self.segments(refresh=True)
        result = segments[0].base if segments else 0
        for n, segment in enumerate(segments):
            if n + 1 < len(segments) and segment.is_before(micros):
                result = segments[n + 1].base  # its end, or later: a lost segment has no records
                continue
            for time_micros, offset in segment.times():
                if time_micros >= micros:
                    return result
                result = offset
        return result

    def read(self, offset: int | None, max_records: int) -> PartitionRead:
        """Return complete records from an offset, or from the oldest one if None; crosses segments.

        Raises CursorError if the offset is beyond the end or inside a record.
        """
        segments = self.segments()
        while True:
            try:
                return self._read(segments, offset, max_records)
            except FileNotFoundError:
                segments = self.segments(refresh=True)

    def _read(self, segments: Sequence[Segment], offset: int | None, max_records: int) -> PartitionRead:
        if not segments:
            if offset:
                stream, partition = self.folder.rsplit("/", 2)[1:]
                raise beyond_end(stream, partition, offset, 0)
            return PartitionRead(0, [])
        oldest = segments[0].base
        start = at = oldest if offset is None else max(offset, oldest)
        records: list[bytes] = []
        n = bisect_right(segments, at, key=lambda segment: segment.base) - 1
        if n + 1 < len(segments) and at > segments[n].base + segments[n].size():  # the end of the segment is lost
            n += 1
            start = at = segments[n].base
        while len(records) < max_records:
            at = segments[n].read(at, max_records, records)
            n += 1
            if n == len(segments) or len(records) >= max_records:
                break
            if segments[n].base != at:  # a segment, or the end of one, is missing
                if records:
                    break  # the next read reports the gap
                start = at = segments[n].base
        return PartitionRead(start, records)

    def has_more(self, offset: int | None) -> bool:
        """True if a read from an offset would return a record or raise an error."""
        segments = self.segments()
        while segments:
            at = segments[0].base if offset is None else offset
            newest = segments[-1]
            try:
                return at < newest.base or newest.has_record(at)
            except FileNotFoundError:
                segments = self.segments(refresh=True)
        return bool(offset)


def segments_of(folder: str) -> list[Segment]:
    """List the segments in a folder, oldest first."""
    with os.scandir(folder) as files:
        bases = [int(file.name[:-4]) for file in files if file.name.endswith(".log")]
    return [Segment(folder, base) for base in sorted(bases)]


def size_of(path: str) -> int:
    """Return the size of a file in bytes; -1 if it does not exist."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


def whole(file: int, size: int) -> int:
    """Return the number of bytes up to and including the last newline of an open file of this size."""
    end = size
    while end > 0:
        begin = max(0, end - 65_536)
        newline = os.pread(file, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0
