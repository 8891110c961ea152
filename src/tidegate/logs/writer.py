"""Appends to one partition of the log of files."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Condition, Lock

from tidegate.errors import LogError
from tidegate.logs import torn
from tidegate.logs.files import TIME, Segment, segments_of, whole

TIME_EVERY_BYTES = 64 * 1024
"""Most bytes between two entries of the time index."""

TIME_EVERY_MICROS = 10_000
"""Time between two entries, if records are appended: the age of a record is known as exactly."""


_log = logging.getLogger("tidegate.logs")


class WriterClosed(Exception):  # noqa: N818 - control flow: the caller opens the partition again
    """The files of the partition were closed, or deleted by another process."""


class Writer:
    """Appends to the newest segment, starts new segments, and writes the time index. Thread-safe.

    A crash may leave an incomplete record at the end of the newest segment; opening a writer removes it.
    """

    def __init__(
        self, folder: Path, fsync: str, segment_bytes: int, clock: Callable[[], int], *, skips_lost: bool = True
    ) -> None:
        """`skips_lost`: False if records that were lost at the end are made again with the same bytes."""
        self._folder, self._fsync, self._segment_bytes, self._clock = str(folder), fsync, segment_bytes, clock
        self._lock = Lock()
        self._durable = Condition()
        self._durable_at = 0
        self._flushing = False
        self._closed = False
        segments = segments_of(self._folder)
        self._base = segments[-1].base if segments else 0
        self._file = self._open(self._base)
        size = os.fstat(self._file).st_size
        kept = whole(self._file, size)
        if kept < size:  # a crash has left an incomplete record
            os.ftruncate(self._file, kept)
        self._at = self._base + kept
        newest = Segment(self._folder, self._base)
        start = torn.next_offset(folder, newest, self._at, segment_bytes) if skips_lost else self._at
        _repair_time_index(newest, self._at)
        self.has_skipped = start > self._at
        """True if the writer began a segment that does not begin where the one before it ends."""
        if self.has_skipped:
            self._skip_to(start, is_empty=kept == 0)
        self._next_time = self._at
        self._last_time = 0
        try:
            torn.note_open(folder)
        except OSError:
            os.close(self._file)
            raise

    def _skip_to(self, offset: int, *, is_empty: bool) -> None:
        """Begin a segment at a later offset, since readers have seen records that are lost."""
        _log.warning(
            "records of %s from offset %d on are lost; it continues at %d, and readers get a gap",
            self._folder,
            self._at,
            offset,
        )
        file = self._open(offset)
        os.close(self._file)
        if is_empty:  # an empty segment is the newest one
            Segment(self._folder, self._base).unlink()
        self._file, self._base, self._at = file, offset, offset

    def append(self, records: Sequence[bytes]) -> int:
        """Append records and return the offset after the last.

        Writes all records with one system call, so that readers usually see them together. If the disk refuses a part
        of them, the rest is removed again. Raises LogError for that, and WriterClosed if the files are closed.
        """
        data = b"".join([record + b"\n" for record in records])
        try:
            with self._lock:
                if self._closed:
                    raise WriterClosed
                self._write(data)
                end = self._at
            if self._fsync == "append" and data:
                self._make_durable(end)
        except OSError as exc:
            raise LogError(f"can't append to {self._folder}: {exc.strerror}") from exc
        return end

    def _write(self, data: bytes) -> None:
        if self._at - self._base >= self._segment_bytes:
            self._roll()
        self._need_sole_writer()
        if data:
            now = self._clock()
            if self._at >= self._next_time or abs(now - self._last_time) >= TIME_EVERY_MICROS:
                self._note_time(now)
        try:
            _write_all(self._file, data)
        except OSError:
            os.ftruncate(self._file, self._at - self._base)
            raise
        self._at += len(data)

    def _need_sole_writer(self) -> None:
        """Raise WriterClosed if another process has deleted the stream, LogError if another writes to the partition."""
        status = os.fstat(self._file)
        if status.st_nlink == 0:
            self._close()
            raise WriterClosed
        if status.st_size != self._at - self._base:
            self._close()
            raise LogError(f"another process has written to {self._folder}; only one process may write to a partition")

    def _open(self, base: int) -> int:
        file = os.open(Segment(self._folder, base).path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        if self._fsync == "append":
            # The folder holds the name of a new file: unless it is synced, a power failure may lose the whole file.
            for folder in (self._folder, os.path.dirname(self._folder)):
                _sync_folder(folder)
        return file

    def _roll(self) -> None:
        self._note_time(self._clock())  # an upper bound for the append time of the segment's last record
        os.fsync(self._file)  # so that only the newest segment can end in an incomplete record
        file = self._open(self._at)
        os.close(self._file)
        self._file, self._base, self._next_time = file, self._at, self._at

    def _note_time(self, now: int) -> None:
        """Add an entry to the time index: records from this offset on were appended now or later."""
        with open(Segment(self._folder, self._base).times_path, "ab") as file:
            file.write(TIME.pack(now, self._at))
        self._next_time, self._last_time = self._at + TIME_EVERY_BYTES, now

    def _make_durable(self, end: int) -> None:
        """Wait until all records up to an offset are on disk; one thread syncs for all threads that wait."""
        with self._durable:
            while self._durable_at < end:
                if self._flushing:
                    self._durable.wait()
                    continue
                self._flushing = True
                self._durable.release()
                reached = 0
                try:
                    reached = self._sync()
                finally:
                    self._durable.acquire()
                    self._flushing = False
                    self._durable_at = max(self._durable_at, reached)
                    self._durable.notify_all()

    def _sync(self) -> int:
        """Sync all written records to disk, and return the offset after the last of them."""
        with self._lock:
            if self._closed:
                return self._at  # `close` has synced
            file, reached = os.dup(self._file), self._at  # a copy, since a roll may close the original during the sync
        try:
            os.fdatasync(file)
        finally:
            os.close(file)
        return reached

    def close(self) -> None:
        """Sync and close the files."""
        with self._lock:
            if not self._closed:
                os.fsync(self._file)
                if os.fstat(self._file).st_nlink:  # the stream was not deleted
                    torn.note_closed(Path(self._folder), self._at)
                self._close()

    def _close(self) -> None:
        self._closed = True
        os.close(self._file)


def _repair_time_index(segment: Segment, end: int) -> None:
    """Remove incomplete entries, and entries beyond the end, which a crash may leave."""
    try:
        file = os.open(segment.times_path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        kept = os.fstat(file).st_size // TIME.size * TIME.size
        while kept and TIME.unpack(os.pread(file, TIME.size, kept - TIME.size))[1] > end:
            kept -= TIME.size
        os.ftruncate(file, kept)
    finally:
        os.close(file)


def _sync_folder(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
