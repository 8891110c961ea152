"""The files of one partition, as its readers see them.

Others write, roll and expire meanwhile, in this process or another. Two facts
make that safe without a lock: a record is there when its newline is, and a
segment is named by its first offset, so the name of the next one is known.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.errors import CursorError
from tidegate.logs.log import beyond_end

TIME = struct.Struct("<qq")
"""An entry of the time index: a moment, and the offset at it."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a partition has from an offset on."""

    start: int
    """Where it was read from: the offset asked for, or behind what has expired."""
    records: list[bytes]


class Segment:
    """One file of a partition."""

    __slots__ = ("base", "folder", "path")

    def __init__(self, folder: str, base: int) -> None:
        self.folder, self.base = folder, base
        self.path = f"{folder}/{base:020d}.log"

    @property
    def times_path(self) -> str:
        """The time index beside it."""
        return f"{self.folder}/{self.base:020d}.times"

    def size(self) -> int:
        """Bytes on disk."""
        return os.stat(self.path).st_size

    def is_newest(self) -> bool:
        """Say whether it is there and none follows: that would be named by where this one ends."""
        size = size_of(self.path)
        return size == 0 or (size > 0 and not os.path.exists(Segment(self.folder, self.base + size).path))

    def end(self) -> int:
        """The offset behind its last whole record."""
        with open(self.path, "rb") as file:
            return self.base + whole(file.fileno(), os.fstat(file.fileno()).st_size)

    def read(self, offset: int, most: int, into: list[bytes]) -> int:
        """Add its whole records from an offset on, and give the offset behind them."""
        with open(self.path, "rb") as file:
            at = offset - self.base
            if at > 0:
                file.seek(at - 1)
                if file.read(1) != b"\n":
                    raise self._misplaced(offset, os.fstat(file.fileno()).st_size)
            while len(into) < most and (line := file.readline()).endswith(b"\n"):
                into.append(line[:-1])
                offset += len(line)
        return offset

    def _misplaced(self, offset: int, size: int) -> CursorError:
        stream, partition = self.folder.rsplit("/", 2)[1:]
        if offset > self.base + size:
            return beyond_end(stream, partition, offset, self.base + size)
        return CursorError(f"offset {offset} of {stream}/{partition} is inside a record; expected where one begins")

    def has_record(self, offset: int) -> bool:
        """Say whether a whole record, or anything wrong, is to be found from an offset on."""
        size = self.size()
        at = offset - self.base
        if at >= size:
            return at > size
        with open(self.path, "rb") as file:
            return whole(file.fileno(), os.fstat(file.fileno()).st_size) > at

    def times(self) -> list[tuple[int, int]]:
        """Its time index: moments and offsets within it, ascending; what is torn or out of place is left out."""
        try:
            with open(self.times_path, "rb") as file:
                data = file.read()
            end = self.base + self.size()
        except FileNotFoundError:
            return []
        found: list[tuple[int, int]] = []
        at = self.base
        for moment, offset in TIME.iter_unpack(data[: len(data) // TIME.size * TIME.size]):
            if at <= offset <= end:
                found.append((moment, offset))
                at = offset
        return found

    def last_written(self) -> int:
        """When it was last appended to, in microseconds: as its time index has it, else the file."""
        found = self.times()
        return found[-1][0] if found else os.stat(self.path).st_mtime_ns // 1_000

    def unlink(self) -> None:
        """Remove it; readers that have it open go on reading."""
        for path in (self.path, self.times_path):
            Path(path).unlink(missing_ok=True)


class Partition:
    """A folder of segments.

    They are listed again only when the newest is gone or another follows it. A
    list may so name segments that have expired: whoever finds one missing lists anew.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self._known: Sequence[Segment] = ()

    def segments(self, *, anew: bool = False) -> Sequence[Segment]:
        """The segments, oldest first."""
        known = self._known
        if anew or not known or not known[-1].is_newest():
            self._known = known = segments_of(self.folder)
        return known

    def sizes(self) -> list[tuple[str, int]]:
        """The files that change when something is appended, and their sizes now; -1: not there yet."""
        segments = self.segments()
        newest = segments[-1] if segments else Segment(self.folder, 0)
        size = size_of(newest.path)
        found = [(newest.path, size)]
        if size > 0:
            found.append((Segment(self.folder, newest.base + size).path, -1))
        return found

    def begin(self) -> int:
        """The offset of the oldest record that is left."""
        segments = self.segments(anew=True)
        return segments[0].base if segments else 0

    def end(self) -> int:
        """The offset behind the newest record."""
        while segments := self.segments(anew=True):
            try:
                return segments[-1].end()
            except FileNotFoundError:
                continue  # rolled and expired since it was listed
        return 0

    def since(self, micros: int) -> int:
        """The offset of the last entry of any time index before a moment."""
        segments = self.segments(anew=True)
        at = segments[0].base if segments else 0
        for segment in segments:
            for moment, offset in segment.times():
                if moment >= micros:
                    return at
                at = offset
        return at

    def read(self, offset: int | None, most: int) -> Found:
        """Whole records from an offset on, or from the oldest, through as many segments as it takes."""
        segments = self.segments()
        while True:
            try:
                return self._read(segments, offset, most)
            except FileNotFoundError:
                segments = self.segments(anew=True)

    def _read(self, segments: Sequence[Segment], offset: int | None, most: int) -> Found:
        if not segments:
            if offset:
                stream, partition = self.folder.rsplit("/", 2)[1:]
                raise beyond_end(stream, partition, offset, 0)
            return Found(0, [])
        oldest = segments[0].base
        start = at = oldest if offset is None else max(offset, oldest)
        records: list[bytes] = []
        n = bisect_right(segments, at, key=lambda segment: segment.base) - 1
        while len(records) < most:
            at = segments[n].read(at, most, records)
            n += 1
            if n == len(segments) or len(records) >= most:
                break
            if segments[n].base != at:  # a segment is lost, or the end of one
                if records:
                    break  # the next read tells
                start = at = segments[n].base
        return Found(start, records)

    def has_more(self, offset: int | None) -> bool:
        """Say whether a read from an offset on would find something, or something wrong."""
        segments = self.segments()
        while segments:
            at = segments[0].base if offset is None else offset
            newest = segments[-1]
            try:
                return at < newest.base or newest.has_record(at)
            except FileNotFoundError:
                segments = self.segments(anew=True)
        return bool(offset)


def segments_of(folder: str) -> list[Segment]:
    """List a partition's segments, oldest first."""
    with os.scandir(folder) as files:
        bases = [int(file.name[:-4]) for file in files if file.name.endswith(".log")]
    return [Segment(folder, base) for base in sorted(bases)]


def size_of(path: str) -> int:
    """How large a file is; -1: there is none."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


def whole(file: int, size: int) -> int:
    """How many bytes of a file are whole lines: up to its last newline."""
    end = size
    while end > 0:
        begin = max(0, end - 65_536)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
