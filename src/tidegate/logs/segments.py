"""The log of files: append-only segments, one folder per partition, one JSON object per line.

    data/gps/generation                      written when the stream is created; cursors are checked against it
    data/gps/0/00000000000000000000.log      offsets are bytes from the partition's first record
    data/gps/0/00000000000067108911.log      a segment is named by its first offset
    data/gps/0/00000000000067108911.times    time index: append times with the offsets at which they begin

Each partition has one writer and any number of readers, in any process, without locks: a record is complete when its
newline is written. An incomplete record that a crash leaves is removed when the partition is next written to. If
records that readers have seen are lost, the next segment begins behind them (`torn`). The files can be read with
`tail -f`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

from tidegate.errors import LogError
from tidegate.logs.cursor import Cursor
from tidegate.logs.files import Partition, segments_of, size_of
from tidegate.logs.log import (
    Gap,
    Read,
    RetentionLimits,
    another_generation,
    is_name,
    need_names,
    need_records,
    no_partition,
    no_stream,
    unreadable,
)
from tidegate.logs.writer import Writer, WriterClosed

FSYNC = ("never", "append")
"""When appended records are synced to disk: `never` leaves it to the system, `append` syncs before `append` returns.
Threads that append at the same time share one sync."""

SEGMENT_BYTES = 64 * 1024 * 1024

POLL_INTERVAL_S = (0.001, 0.005)
"""The first and the longest pause between two checks of the file sizes, while a reader waits."""

RESCAN_INTERVAL_S = 0.25
"""How often a waiting reader checks for new partitions and another generation."""

_DELETED_PREFIX = ".deleted-"


def now_micros() -> int:
    """Return the time in microseconds since 1970 UTC."""
    return time.time_ns() // 1_000


class SegmentLog:
    """Streams as folders of files. Thread-safe; other processes may read, and write to other partitions."""

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
        self._writers: dict[tuple[str, str], Writer] = {}
        self._partitions_read: dict[tuple[str, str, str], Partition] = {}
        """By stream, generation and name."""
        self._lock = Lock()

    # Streams -------------------------------------------------------------------

    def create(self, stream: str, partitions: Sequence[str] = ("0",)) -> None:
        """Create a stream, or add partitions to it; does nothing if all exist."""
        need_names((stream, *partitions))
        folder = self._root / stream
        while True:
            try:
                for partition in partitions:
                    (folder / partition).mkdir(parents=True, exist_ok=True)
                _write_new(folder / "generation", secrets.token_hex(4).encode())
            except FileNotFoundError:
                continue  # another process has deleted the stream
            except FileExistsError:
                pass
            return

    def streams(self) -> list[str]:
        """Return the names of all streams."""
        names = (path.parent.name for path in self._root.glob("*/generation"))
        return sorted(name for name in names if is_name(name))

    def partitions(self, stream: str) -> list[str]:
        """Return the names of a stream's partitions."""
        return self._partitions(stream)

    def delete(self, stream: str) -> None:
        """Delete a stream and all its records."""
        folder = self._folder(stream)
        with self._lock:
            for partition in [partition for name, partition in self._writers if name == stream]:
                self._writers.pop((stream, partition)).close()
            for key in [key for key in self._partitions_read if key[0] == stream]:
                del self._partitions_read[key]
        # The rename is atomic: a process that creates the stream again never mixes old files with new ones.
        with suppress(FileNotFoundError):
            folder.rename(self._root / f"{_DELETED_PREFIX}{secrets.token_hex(4)}")
        for deleted in self._root.glob(f"{_DELETED_PREFIX}*"):
            shutil.rmtree(deleted, ignore_errors=True)

    def close(self) -> None:
        """Sync all appended records to disk, and close the files."""
        with self._lock:
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()

    # Writing -------------------------------------------------------------------

    def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
        """Append records, all or none, and return the offset after the last."""
        need_records(records)
        while True:
            writer = self._writer(stream, partition)
            try:
                return writer.append(records)
            except WriterClosed:
                self._forget(stream, partition, writer)  # the stream was deleted, and perhaps created again: try again
            except LogError:
                self._forget(stream, partition, writer)  # the next append reads the state of the files again
                raise

    def _writer(self, stream: str, partition: str) -> Writer:
        writer = self._writers.get((stream, partition))
        if writer is None:
            folder = self._partition(stream, partition)
            with self._lock:
                writer = self._writers.get((stream, partition))
                if writer is None:
                    try:
                        writer = Writer(folder, self._fsync, self._segment_bytes, self._clock)
                    except FileNotFoundError as exc:
                        raise no_stream(stream, self.streams()) from exc
                    except OSError as exc:
                        raise LogError(f"can't append to {folder}: {exc.strerror}") from exc
                    self._writers[stream, partition] = writer
                    if writer.has_skipped:  # lists of segments that readers here have cached end too early
                        for key in list(self._partitions_read):
                            if key[::2] == (stream, partition):
                                self._partitions_read.pop(key, None)
        return writer

    def _forget(self, stream: str, partition: str, writer: Writer) -> None:
        with self._lock:
            if self._writers.get((stream, partition)) is writer:
                del self._writers[stream, partition]
        with suppress(OSError):
            writer.close()

    # Reading -------------------------------------------------------------------

    def begin(self, stream: str) -> Cursor:
        """Return the cursor before the oldest record."""
        return self._cursor(stream, Partition.begin)

    def end(self, stream: str) -> Cursor:
        """Return the cursor after the newest record."""
        return self._cursor(stream, Partition.end)

    def since(self, stream: str, micros: int) -> Cursor:
        """Return a cursor at or shortly before the first record that was appended at or after a time."""
        return self._cursor(stream, lambda partition: partition.since(micros))

    def read(self, stream: str, cursor: Cursor, max_records: int = 1_000) -> Read:
        """Read at most `max_records` records from a cursor, a share from each partition."""
        records: list[bytes] = []
        places: list[tuple[str, int]] = []
        gaps: list[Gap] = []
        offsets = dict(cursor.offsets)
        try:
            partitions = self._reading(stream, cursor)
            for n, (name, partition) in enumerate(partitions):
                share = -(-(max_records - len(records)) // (len(partitions) - n))
                if not share:
                    continue
                requested = offsets.get(name)
                result = partition.read(requested, share)
                offset = result.start
                if requested is not None and offset != requested:
                    gaps.append(Gap(name, requested, offset))
                for record in result.records:
                    places.append((name, offset))
                    offset += len(record) + 1
                records += result.records
                offsets[name] = offset
        except FileNotFoundError as exc:
            raise no_stream(stream, self.streams()) from exc
        except OSError as exc:
            raise unreadable(f"{self._root}/{stream}", exc) from exc
        if records and self._generation(stream) != cursor.generation:
            raise another_generation(stream)  # the stream was replaced during the read
        return Read(tuple(records), tuple(places), Cursor(cursor.generation, offsets, cursor.marks), tuple(gaps))

    def wait(self, stream: str, cursor: Cursor, timeout_s: float) -> bool:
        """Poll the sizes of the files: after a millisecond at first, then up to every five.

        A poll costs two `stat` calls per partition. New partitions and another generation are noticed within
        `RESCAN_INTERVAL_S`.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                partitions = self._reading(stream, cursor)
                # Sizes first: a record that is appended before `has_more` looks then counts as a change.
                sizes = [size for _, partition in partitions for size in partition.sizes()]
                if any(partition.has_more(cursor.offsets.get(name)) for name, partition in partitions):
                    return True
            except FileNotFoundError as exc:
                raise no_stream(stream, self.streams()) from exc
            except OSError as exc:
                raise unreadable(f"{self._root}/{stream}", exc) from exc
            rescan_at = min(deadline, time.monotonic() + RESCAN_INTERVAL_S)
            if not _wait_for_change(sizes, rescan_at) and rescan_at == deadline:
                return False

    def _reading(self, stream: str, cursor: Cursor) -> list[tuple[str, Partition]]:
        """Return the stream's partitions by name. Raises CursorError for a cursor of another generation."""
        if cursor.generation != self._generation(stream):
            raise another_generation(stream)
        partitions = []
        for name in self._partitions(stream):
            key = (stream, cursor.generation, name)
            partition = self._partitions_read.get(key)
            if partition is None:
                partition = self._partitions_read[key] = Partition(self._root / stream / name)
            partitions.append((name, partition))
        return partitions

    # RetentionLimits -----------------------------------------------------------------

    def expire(self, stream: str, retention: RetentionLimits) -> int:
        """Delete whole segments, oldest first, but never the newest one; return the number of bytes freed."""
        freed = 0
        for partition in self._partitions(stream):
            # Another process may expire the same stream; segments that it deletes first are not counted.
            with suppress(FileNotFoundError):
                segments = segments_of(str(self._root / stream / partition))
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

    def _cursor(self, stream: str, offset_of: Callable[[Partition], int]) -> Cursor:
        generation = self._generation(stream)
        try:
            offsets = {name: offset_of(Partition(self._root / stream / name)) for name in self._partitions(stream)}
        except FileNotFoundError as exc:
            raise no_stream(stream, self.streams()) from exc
        except OSError as exc:
            raise unreadable(f"{self._root}/{stream}", exc) from exc
        return Cursor(generation, offsets)

    def _folder(self, stream: str) -> Path:
        self._generation(stream)
        return self._root / stream

    def _generation(self, stream: str) -> str:
        path = f"{self._root}/{stream}/generation"
        if is_name(stream):
            try:
                with open(path) as file:
                    return file.read()
            except FileNotFoundError:
                pass
            except OSError as exc:
                raise unreadable(path, exc) from exc
        raise no_stream(stream, self.streams())

    def _partitions(self, stream: str) -> list[str]:
        try:
            with os.scandir(self._folder(stream)) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError as exc:
            raise no_stream(stream, self.streams()) from exc
        except OSError as exc:
            raise unreadable(f"{self._root}/{stream}", exc) from exc

    def _partition(self, stream: str, partition: str) -> Path:
        known = self._partitions(stream)
        if partition not in known:
            raise no_partition(stream, partition, known)
        return self._root / stream / partition


def _wait_for_change(sizes: Sequence[tuple[str, int]], deadline: float) -> bool:
    """Return True as soon as a file has another size than given; False at the deadline, a monotonic time."""
    pause_s, max_pause_s = POLL_INTERVAL_S
    while all(size_of(path) == size for path, size in sizes):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 1.2, max_pause_s)
    return True


def _write_new(path: Path, data: bytes) -> None:
    """Create a file atomically with its content. Raises FileExistsError if there is one."""
    draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    draft.write_bytes(data)
    try:
        os.link(draft, path)
    finally:
        draft.unlink()
