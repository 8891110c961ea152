"""The embedded log: append-only files, one folder a partition, one JSON object a line.

    data/gps/generation            made with the stream: what cursors are checked against
    data/gps/0/00000000000000000000.log      offsets are bytes from the partition's first record
    data/gps/0/00000000000067108911.log      a segment is named by its first offset
    data/gps/0/00000000000067108911.times    every so often: a moment, and the offset at it

One writer a partition, any number of readers in any process, no locks: a record
is there when its newline is. What a crash leaves behind the last newline is cut
off when the partition is next written to. A person can `tail -f` it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import struct
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Condition, Lock

from tidegate.errors import CursorError, LogError, did_you_mean
from tidegate.logs.cursor import Cursor
from tidegate.logs.log import Gap, Read, Retention

FSYNC = ("never", "append")
"""When what was appended is forced to disk: left to the system, or before `append` returns. Threads that append
at once share one."""

SEGMENT_BYTES = 64 * 1024 * 1024
TIME_EVERY_BYTES = 64 * 1024
"""How much is appended between two entries of the time index."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_TIME = struct.Struct("<qq")


def now_micros() -> int:
    """The moment, in microseconds since 1970 UTC."""
    return time.time_ns() // 1_000


class SegmentLog:
    """Streams as folders of files."""

    def __init__(
        self,
        root: Path,
        *,
        fsync: str = "never",
        segment_bytes: int = SEGMENT_BYTES,
        clock: Callable[[], int] = now_micros,
    ) -> None:
        if fsync not in FSYNC:
            raise LogError(f"unknown fsync {fsync!r}; expected one of {', '.join(FSYNC)}")
        self._root, self._fsync, self._segment_bytes, self._clock = root, fsync, segment_bytes, clock
        self._writers: dict[tuple[str, str], _Writer] = {}
        self._lock = Lock()

    # Streams -------------------------------------------------------------------

    def create(self, stream: str, partitions: Sequence[str] = ("0",)) -> None:
        """Make a stream, or add partitions to it."""
        for name in (stream, *partitions):
            if not _NAME.fullmatch(name):
                raise LogError(f"bad name {name!r}; expected letters, digits, _ . and -, at most 128")
        folder = self._root / stream
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            _write_new(folder / "generation", secrets.token_hex(4).encode())
        for partition in partitions:
            (folder / partition).mkdir(exist_ok=True)

    def streams(self) -> list[str]:
        """The names of all streams."""
        return sorted(found.parent.name for found in self._root.glob("*/generation"))

    def delete(self, stream: str) -> None:
        """Forget a stream and all its records."""
        folder = self._folder(stream)
        with self._lock:
            for key in [key for key in self._writers if key[0] == stream]:
                self._writers.pop(key).close()
        (folder / "generation").unlink()  # first: half a stream is none
        shutil.rmtree(folder)

    def close(self) -> None:
        """Make all that was appended durable, and close the files."""
        with self._lock:
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()

    # Writing -------------------------------------------------------------------

    def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
        """Add records, all or none, and give the offset behind the last."""
        for n, record in enumerate(records):
            if not record.startswith(b"{") or b"\n" in record:
                raise LogError(f"record {n}: expected one JSON object on one line, not {record[:60]!r}")
        return self._writer(stream, partition).append(records)

    def _writer(self, stream: str, partition: str) -> _Writer:
        found = self._writers.get((stream, partition))
        if found is None:
            folder = self._partition(stream, partition)
            with self._lock:
                found = self._writers.get((stream, partition))
                if found is None:
                    found = _Writer(folder, self._fsync, self._segment_bytes, self._clock)
                    self._writers[stream, partition] = found
        return found

    # Reading -------------------------------------------------------------------

    def begin(self, stream: str) -> Cursor:
        """Before the oldest record that is left."""
        return self._at(stream, lambda segments: segments[0].base if segments else 0)

    def end(self, stream: str) -> Cursor:
        """Behind the newest record."""
        return self._at(stream, lambda segments: segments[-1].end() if segments else 0)

    def since(self, stream: str, micros: int) -> Cursor:
        """At or shortly before the first record that was appended at a moment or later."""
        return self._at(stream, lambda segments: _at_time(segments, micros))

    def read(self, stream: str, cursor: Cursor, most: int = 1_000) -> Read:
        """Read on from a cursor, at most so many records, from each partition in turn."""
        generation = self._generation(stream)
        if cursor.generation != generation:
            raise CursorError(f"the cursor is of another {stream!r}: it was deleted and made again; begin anew")
        records: list[bytes] = []
        places: list[tuple[str, int]] = []
        gaps: list[Gap] = []
        offsets = dict(cursor.offsets)
        for partition in self._partitions(stream):
            segments = _segments(self._root / stream / partition)
            at = offsets.get(partition, segments[0].base if segments else 0)
            if segments and at < segments[0].base:
                gaps.append(Gap(partition, at, segments[0].base))
                at = segments[0].base
            elif segments and at > segments[-1].end():
                raise CursorError(f"offset {at} of {stream}/{partition} is beyond its end, {segments[-1].end()}")
            for record in _records(segments, at, most - len(records)):
                records.append(record)
                places.append((partition, at))
                at += len(record) + 1
            offsets[partition] = at
        return Read(tuple(records), tuple(places), Cursor(generation, offsets), tuple(gaps))

    # Keeping -------------------------------------------------------------------

    def expire(self, stream: str, retention: Retention) -> int:
        """Let go of whole segments, the oldest first; never of the one that is written to."""
        freed = 0
        for partition in self._partitions(stream):
            segments = _segments(self._root / stream / partition)
            sizes = [segment.size() for segment in segments]
            for n, segment in enumerate(segments[:-1]):
                too_much = retention.size_bytes is not None and sum(sizes[n:]) > retention.size_bytes
                age_s = (self._clock() - segment.last_written()) / 1e6
                too_old = retention.age_s is not None and age_s > retention.age_s
                if not (too_much or too_old):
                    break
                segment.unlink()
                freed += sizes[n]
        return freed

    # Folders -------------------------------------------------------------------

    def _at(self, stream: str, place: Callable[[list[_Segment]], int]) -> Cursor:
        offsets = {name: place(_segments(self._root / stream / name)) for name in self._partitions(stream)}
        return Cursor(self._generation(stream), offsets)

    def _folder(self, stream: str) -> Path:
        folder = self._root / stream
        if not _NAME.fullmatch(stream) or not (folder / "generation").exists():
            raise LogError(f"no stream {stream!r}{did_you_mean(stream, self.streams())}")
        return folder

    def _generation(self, stream: str) -> str:
        return (self._folder(stream) / "generation").read_text()

    def _partitions(self, stream: str) -> list[str]:
        return sorted(found.name for found in self._folder(stream).iterdir() if found.is_dir())

    def _partition(self, stream: str, partition: str) -> Path:
        known = self._partitions(stream)
        if partition not in known:
            raise LogError(f"{stream!r} has no partition {partition!r}{did_you_mean(partition, known)}")
        return self._root / stream / partition


class _Segment:
    """One file of a partition."""

    def __init__(self, path: Path) -> None:
        self.path, self.base = path, int(path.stem)

    @property
    def times(self) -> Path:
        """The time index beside it."""
        return self.path.with_suffix(".times")

    def size(self) -> int:
        """Bytes on disk; none where it has just expired."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def end(self) -> int:
        """The offset behind its last whole record."""
        with self.path.open("rb") as file:
            return self.base + _whole(file.fileno(), os.fstat(file.fileno()).st_size)

    def last_written(self) -> int:
        """When it was last appended to, in microseconds: as its time index has it, else the file."""
        found = _times(self.times)
        return found[-1][0] if found else self.path.stat().st_mtime_ns // 1_000

    def unlink(self) -> None:
        """Remove it; readers that have it open go on reading."""
        self.path.unlink(missing_ok=True)
        self.times.unlink(missing_ok=True)


def _segments(folder: Path) -> list[_Segment]:
    return [_Segment(path) for path in sorted(folder.glob("*.log"))]


def _whole(file: int, size: int) -> int:
    """How many bytes of a file are whole lines: up to its last newline."""
    end = size
    while end > 0:
        begin = max(0, end - 65_536)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _records(segments: Sequence[_Segment], offset: int, most: int) -> list[bytes]:
    """Whole records from an offset on, through as many segments as it takes."""
    found: list[bytes] = []
    at = bisect_right([segment.base for segment in segments], offset) - 1
    while 0 <= at < len(segments) and len(found) < most:
        segment = segments[at]
        with suppress(FileNotFoundError), segment.path.open("rb") as file:
            file.seek(offset - segment.base)
            while len(found) < most and (line := file.readline()).endswith(b"\n"):
                found.append(line[:-1])
                offset += len(line)
        at += 1
        if at < len(segments) and segments[at].base != offset:
            break  # a torn end, or the limit: what follows is for the next read
    return found


def _times(path: Path) -> list[tuple[int, int]]:
    """The time index of a segment: moments and offsets, ascending; a torn entry is left out."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return list(_TIME.iter_unpack(data[: len(data) // _TIME.size * _TIME.size]))


def _at_time(segments: Sequence[_Segment], micros: int) -> int:
    """The offset of the last entry of any time index before a moment."""
    at = segments[0].base if segments else 0
    for segment in segments:
        for moment, offset in _times(segment.times):
            if moment >= micros:
                return at
            at = offset
    return at


def _write_new(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)


class _Writer:
    """The one that appends to a partition."""

    def __init__(self, folder: Path, fsync: str, segment_bytes: int, clock: Callable[[], int]) -> None:
        self._folder, self._fsync, self._segment_bytes, self._clock = folder, fsync, segment_bytes, clock
        self._lock = Lock()
        self._durable = Condition()
        self._durable_at = 0
        self._flushing = False
        segments = _segments(folder)
        self._base = segments[-1].base if segments else 0
        self._file = self._open(self._base)
        size = os.fstat(self._file).st_size
        whole = _whole(self._file, size)
        if whole < size:  # a crash in the middle of a record
            os.ftruncate(self._file, whole)
        self._at = self._base + whole
        self._next_time = self._at

    def append(self, records: Sequence[bytes]) -> int:
        """Write records with one call, so that a reader sees them in one piece as far as the system allows."""
        data = b"".join([record + b"\n" for record in records])
        with self._lock:
            if self._at - self._base >= self._segment_bytes:
                self._roll()
            if self._at >= self._next_time and data:
                self._note_time()
            _write_all(self._file, data)
            self._at += len(data)
            end = self._at
        if self._fsync == "append" and data:
            self._make_durable(end)
        return end

    def _open(self, base: int) -> int:
        path = self._folder / f"{base:020d}.log"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    def _roll(self) -> None:
        self._note_time()  # when its last record came, at the latest
        os.fsync(self._file)  # so that only the newest segment can be torn
        os.close(self._file)
        self._base = self._at
        self._file = self._open(self._base)
        self._next_time = self._at

    def _note_time(self) -> None:
        """Add an entry to the time index: what is appended from here on is of now or later."""
        path = self._folder / f"{self._base:020d}.times"
        with path.open("ab") as file:
            file.write(_TIME.pack(self._clock(), self._at))
        self._next_time = self._at + TIME_EVERY_BYTES

    def _make_durable(self, end: int) -> None:
        """Wait until all up to an offset is on disk; one thread syncs for all that wait."""
        with self._durable:
            while self._durable_at < end:
                if self._flushing:
                    self._durable.wait()
                    continue
                self._flushing = True
                self._durable.release()
                try:
                    reached = self._sync()
                finally:
                    self._durable.acquire()
                    self._flushing = False
                    self._durable.notify_all()
                self._durable_at = max(self._durable_at, reached)

    def _sync(self) -> int:
        """Force to disk all that is written now, and say how far that is."""
        with self._lock:
            file, reached = os.dup(self._file), self._at  # a copy: a roll may close the other meanwhile
        try:
            os.fdatasync(file)
        finally:
            os.close(file)
        return reached

    def close(self) -> None:
        """Sync and close."""
        with self._lock:
            os.fsync(self._file)
            os.close(self._file)


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
