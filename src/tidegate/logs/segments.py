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
    Retention,
    another_generation,
    is_name,
    need_names,
    need_records,
    no_partition,
    no_stream,
)
from tidegate.logs.writer import Writer, WriterClosed

FSYNC = ("never", "append")
"""When what was appended is forced to disk: left to the system, or before `append` returns. Threads that append
at once share one."""

SEGMENT_BYTES = 64 * 1024 * 1024

LOOK_S = (0.001, 0.005)
"""How long a reader that waits sleeps between two looks: at first, and at most."""

LOOK_AT_ALL_S = 0.25
"""How often it looks for more than the sizes of the files it knows."""

_GONE = ".deleted-"


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
        self._writers: dict[tuple[str, str], Writer] = {}
        self._read: dict[tuple[str, str, str], Partition] = {}
        self._lock = Lock()

    # Streams -------------------------------------------------------------------

    def create(self, stream: str, partitions: Sequence[str] = ("0",)) -> None:
        """Make a stream, or add partitions to it."""
        need_names((stream, *partitions))
        folder = self._root / stream
        while True:
            try:
                for partition in partitions:
                    (folder / partition).mkdir(parents=True, exist_ok=True)
                _write_new(folder / "generation", secrets.token_hex(4).encode())
            except FileNotFoundError:
                continue  # deleted meanwhile
            except FileExistsError:
                pass
            return

    def streams(self) -> list[str]:
        """The names of all streams."""
        found = (path.parent.name for path in self._root.glob("*/generation"))
        return sorted(name for name in found if is_name(name))

    def partitions(self, stream: str) -> list[str]:
        """The names of a stream's partitions."""
        return self._partitions(stream)

    def delete(self, stream: str) -> None:
        """Forget a stream and all its records."""
        folder = self._folder(stream)
        with self._lock:
            for key in [key for key in self._writers if key[0] == stream]:
                self._writers.pop(key).close()
            for read in [read for read in self._read if read[0] == stream]:
                del self._read[read]
        # At once: whoever makes it again meanwhile finds nothing of the old one, and loses nothing of the new.
        with suppress(FileNotFoundError):
            folder.rename(self._root / f"{_GONE}{secrets.token_hex(4)}")
        for left in self._root.glob(f"{_GONE}*"):
            shutil.rmtree(left, ignore_errors=True)

    def close(self) -> None:
        """Make all that was appended durable, and close the files."""
        with self._lock:
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()

    # Writing -------------------------------------------------------------------

    def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
        """Add records, all or none, and give the offset behind the last."""
        need_records(records)
        while True:
            writer = self._writer(stream, partition)
            try:
                return writer.append(records)
            except WriterClosed:
                self._forget(stream, partition, writer)  # deleted, and perhaps made again: look
            except LogError:
                self._forget(stream, partition, writer)  # what is on disk counts, not what was thought of it
                raise

    def _writer(self, stream: str, partition: str) -> Writer:
        found = self._writers.get((stream, partition))
        if found is None:
            folder = self._partition(stream, partition)
            with self._lock:
                found = self._writers.get((stream, partition))
                if found is None:
                    try:
                        found = Writer(folder, self._fsync, self._segment_bytes, self._clock)
                    except FileNotFoundError as exc:
                        raise no_stream(stream, self.streams()) from exc
                    self._writers[stream, partition] = found
        return found

    def _forget(self, stream: str, partition: str, writer: Writer) -> None:
        with self._lock:
            if self._writers.get((stream, partition)) is writer:
                del self._writers[stream, partition]
        with suppress(OSError):
            writer.close()

    # Reading -------------------------------------------------------------------

    def begin(self, stream: str) -> Cursor:
        """Before the oldest record that is left."""
        return self._at(stream, Partition.begin)

    def end(self, stream: str) -> Cursor:
        """Behind the newest record."""
        return self._at(stream, Partition.end)

    def since(self, stream: str, micros: int) -> Cursor:
        """At or shortly before the first record that was appended at a moment or later."""
        return self._at(stream, lambda partition: partition.since(micros))

    def read(self, stream: str, cursor: Cursor, most: int = 1_000) -> Read:
        """Read on from a cursor, at most so many records, from each partition its share."""
        records: list[bytes] = []
        places: list[tuple[str, int]] = []
        gaps: list[Gap] = []
        offsets = dict(cursor.offsets)
        try:
            partitions = self._reading(stream, cursor)
            for n, (name, partition) in enumerate(partitions):
                share = -(-(most - len(records)) // (len(partitions) - n))
                if not share:
                    continue
                asked = offsets.get(name)
                found = partition.read(asked, share)
                at = found.start
                if asked is not None and at != asked:
                    gaps.append(Gap(name, asked, at))
                for record in found.records:
                    places.append((name, at))
                    at += len(record) + 1
                records += found.records
                offsets[name] = at
        except FileNotFoundError as exc:
            raise no_stream(stream, self.streams()) from exc
        if records and self._generation(stream) != cursor.generation:
            raise another_generation(stream)  # while it was read
        return Read(tuple(records), tuple(places), Cursor(cursor.generation, offsets, cursor.marks), tuple(gaps))

    def wait(self, stream: str, cursor: Cursor, timeout_s: float) -> bool:
        """Look at the files' sizes, every millisecond at first, every five at last.

        Looks that find no size changed cost two `stat` a partition; now and then one looks for all else:
        other partitions, another generation.
        """
        until = time.monotonic() + timeout_s
        while True:
            try:
                partitions = self._reading(stream, cursor)
                # Sizes first: what comes between the two is seen as a change.
                sizes = [size for _, partition in partitions for size in partition.sizes()]
                if any(partition.has_more(cursor.offsets.get(name)) for name, partition in partitions):
                    return True
            except FileNotFoundError as exc:
                raise no_stream(stream, self.streams()) from exc
            look_again = min(until, time.monotonic() + LOOK_AT_ALL_S)
            if not _changes(sizes, look_again) and look_again == until:
                return False

    def _reading(self, stream: str, cursor: Cursor) -> list[tuple[str, Partition]]:
        """The partitions as readers know them; of a stream that is made again, others."""
        if cursor.generation != self._generation(stream):
            raise another_generation(stream)
        found = []
        for name in self._partitions(stream):
            key = (stream, cursor.generation, name)
            partition = self._read.get(key)
            if partition is None:
                partition = self._read[key] = Partition(self._root / stream / name)
            found.append((name, partition))
        return found

    # Keeping -------------------------------------------------------------------

    def expire(self, stream: str, retention: Retention) -> int:
        """Let go of whole segments, the oldest first; never of the one that is written to."""
        freed = 0
        for partition in self._partitions(stream):
            # Others may expire the same stream: what they were faster with is no longer counted.
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

    def _at(self, stream: str, place: Callable[[Partition], int]) -> Cursor:
        generation = self._generation(stream)
        try:
            offsets = {name: place(Partition(self._root / stream / name)) for name in self._partitions(stream)}
        except FileNotFoundError as exc:
            raise no_stream(stream, self.streams()) from exc
        return Cursor(generation, offsets)

    def _folder(self, stream: str) -> Path:
        folder = self._root / stream
        if not is_name(stream) or not (folder / "generation").exists():
            raise no_stream(stream, self.streams())
        return folder

    def _generation(self, stream: str) -> str:
        if is_name(stream):
            with suppress(FileNotFoundError), open(f"{self._root}/{stream}/generation") as file:
                return file.read()
        raise no_stream(stream, self.streams())

    def _partitions(self, stream: str) -> list[str]:
        try:
            with os.scandir(self._folder(stream)) as found:
                return sorted(each.name for each in found if each.is_dir())
        except FileNotFoundError as exc:
            raise no_stream(stream, self.streams()) from exc

    def _partition(self, stream: str, partition: str) -> Path:
        known = self._partitions(stream)
        if partition not in known:
            raise no_partition(stream, partition, known)
        return self._root / stream / partition


def _changes(sizes: Sequence[tuple[str, int]], until: float) -> bool:
    """Wait until a file's size is another, or a moment has come."""
    pause = LOOK_S[0]
    while all(size_of(path) == size for path, size in sizes):
        left = until - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(pause * 1.2, LOOK_S[1])
    return True


def _write_new(path: Path, data: bytes) -> None:
    """Make a file that is there with all its content or not at all, unless there is one."""
    draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    draft.write_bytes(data)
    try:
        os.link(draft, path)
    finally:
        draft.unlink()
