"""The contract of a log, and what all backends share: names, checks, errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Protocol

from tidegate.errors import CursorError, LogError, LogUnreachable, StreamNotFound, did_you_mean
from tidegate.logs.cursor import Cursor

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}")


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """How long, and up to which size, a stream keeps records; the first limit reached counts. None: no limit."""

    age_s: float | None = None
    size_bytes: int | None = None
    """For each partition."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that expired before the reader of a cursor came to them."""

    partition: str
    missed_from: int
    resumed_at: int
    at_origin: bool = False
    """True if the records were lost at another broker; then the offsets are those of its log, not of this one."""


@dataclass(frozen=True, slots=True)
class Read:
    """The result of one read: records, in order within each partition, and the cursor for the next read."""

    records: tuple[bytes, ...]
    places: tuple[tuple[str, int], ...]
    """Partition and offset of each record."""
    cursor: Cursor
    """After the last record."""
    gaps: tuple[Gap, ...] = ()


class EventLog(Protocol):
    """Named, append-only, replayable streams in partitions. Thread-safe.

    Each partition has one writer and any number of readers, in any process, without a lock. A reader sees only
    complete records, and each partition in order. Every method blocks. All but `create`, `streams` and `close` raise
    StreamNotFound for an unknown stream, and CursorError for a cursor of another generation or beyond the end. All
    raise LogUnreachable if the log does not answer: then nothing is known of the stream, and a cursor stays valid.
    """

    def create(self, stream: str, partitions: Sequence[str] = ("0",)) -> None:
        """Create a stream, or add partitions to it; does nothing if all exist."""

    def streams(self) -> list[str]:
        """Return the names of all streams."""

    def partitions(self, stream: str) -> list[str]:
        """Return the names of a stream's partitions, as cursors have them."""

    def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
        """Append records, all or none, and return the offset after the last.

        Whether they are on disk by then depends on the settings of the log.
        """

    def begin(self, stream: str) -> Cursor:
        """Return the cursor before the oldest record."""

    def end(self, stream: str) -> Cursor:
        """Return the cursor after the newest record."""

    def since(self, stream: str, micros: int) -> Cursor:
        """Return a cursor at or shortly before the first record that was appended at or after a time."""

    def read(self, stream: str, cursor: Cursor, max_records: int = 1_000) -> Read:
        """Read records from a cursor, without waiting for new ones. No records: the cursor is at the end.

        Each partition gets a share of `max_records`, so that a busy one does not hold up the others.
        """

    def wait(self, stream: str, cursor: Cursor, timeout_s: float) -> bool:
        """Return True as soon as a read from the cursor would return a record or a gap; False after the timeout."""

    def expire(self, stream: str, retention: RetentionLimits) -> int:
        """Delete the oldest records beyond a retention, and return the number of bytes freed."""

    def delete(self, stream: str) -> None:
        """Delete a stream and all its records."""

    def close(self) -> None:
        """Make all appended records durable, and close files and connections."""


def tail(
    log: EventLog, stream: str, cursor: Cursor, stop: Event, *, max_records: int = 1_000, poll_interval_s: float = 0.1
) -> Iterator[Read]:
    """Yield reads from a cursor, then new records as they come, until `stop` is set. No read is empty.

    While nothing comes, `stop` is checked every `poll_interval_s`.
    """
    while not stop.is_set():
        if log.wait(stream, cursor, poll_interval_s):
            read = log.read(stream, cursor, max_records)
            cursor = read.cursor
            if read.records or read.gaps:
                yield read


# Checks and errors that all backends share ---------------------------------------


def is_name(text: str) -> bool:
    """True if a text can be the name of a stream or a partition."""
    return _NAME.fullmatch(text) is not None


def need_names(names: Iterable[str]) -> None:
    """Raise LogError for a name that a folder or a topic can't have."""
    for name in names:
        if not is_name(name):
            raise LogError(f"invalid name {name!r}; expected at most 128 letters, digits, _ . @ and -")


def need_records(records: Sequence[bytes]) -> None:
    """Raise LogError for a record that is not one JSON object on one line. Checks the first byte and newlines only."""
    for n, record in enumerate(records):
        if not record.startswith(b"{") or b"\n" in record:
            raise LogError(f"record {n}: expected one JSON object on one line, not {record[:60]!r}")


def no_stream(stream: str, known: Iterable[str]) -> StreamNotFound:
    """Return the error for a stream that does not exist, with a similar name that does."""
    return StreamNotFound(f"no stream {stream!r}{did_you_mean(stream, known)}")


def no_partition(stream: str, partition: str, known: Iterable[str]) -> LogError:
    """Return the error for a partition that does not exist, with a similar name that does."""
    return LogError(f"{stream!r} has no partition {partition!r}{did_you_mean(partition, known)}")


def unreadable(folder: str, error: OSError) -> LogUnreachable:
    """Return the error for files of the log that can't be read at the moment."""
    return LogUnreachable(f"can't read {folder}: {error.strerror or error}; check the disk and its permissions")


def another_generation(stream: str) -> CursorError:
    """Return the error for a cursor of another stream, or of a deleted stream whose name is in use again."""
    return CursorError(
        f"the cursor belongs to another stream, or {stream!r} was deleted and created again since; "
        "start without a cursor"
    )


def beyond_end(stream: str, partition: str, offset: int, end: int) -> CursorError:
    """Return the error for a cursor beyond the last record."""
    return CursorError(f"offset {offset} of {stream}/{partition} is beyond its end, {end}")
