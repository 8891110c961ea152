"""What every log promises."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Protocol

from tidegate.errors import CursorError, LogError, did_you_mean
from tidegate.logs.cursor import Cursor

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a stream is kept: whichever of the two is reached first. None: no limit."""

    age_s: float | None = None
    size_bytes: int | None = None
    """Of each partition."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that a cursor has missed: they had expired before they were read."""

    partition: str
    missed_from: int
    resumed_at: int
    at_origin: bool = False
    """Whether that was at another broker: then these are its offsets, not this log's."""


@dataclass(frozen=True, slots=True)
class Read:
    """Some records in the order of their partition, and where to go on."""

    records: tuple[bytes, ...]
    places: tuple[tuple[str, int], ...]
    """Partition and offset of each record."""
    cursor: Cursor
    """Behind the last of them."""
    gaps: tuple[Gap, ...] = ()


class EventLog(Protocol):
    """Named, append-only, replayable streams in partitions.

    One writer a partition; any number of readers, in any process, without a lock.
    A reader sees whole records only, each partition in order.
    """

    def create(self, stream: str, partitions: Sequence[str] = ("0",)) -> None:
        """Make a stream, or add partitions to it; nothing where all are there."""

    def streams(self) -> list[str]:
        """The names of all streams."""

    def partitions(self, stream: str) -> list[str]:
        """The names of a stream's partitions, as cursors have them."""

    def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
        """Add records, all or none, and give the offset behind the last; durable as the log's settings say."""

    def begin(self, stream: str) -> Cursor:
        """Before the oldest record that is left."""

    def end(self, stream: str) -> Cursor:
        """Behind the newest record."""

    def since(self, stream: str, micros: int) -> Cursor:
        """At or shortly before the first record that was appended at a moment or later."""

    def read(self, stream: str, cursor: Cursor, most: int = 1_000) -> Read:
        """Read on from a cursor, at most so many records; none: the end is reached.

        Partitions share what may be read, so that none waits for a busier one.
        """

    def wait(self, stream: str, cursor: Cursor, timeout_s: float) -> bool:
        """Return as soon as there is something to read from a cursor on, or a gap to tell: true; else false."""

    def expire(self, stream: str, retention: Retention) -> int:
        """Let go of what is older or more than a retention allows; give the bytes that were freed."""

    def delete(self, stream: str) -> None:
        """Forget a stream and all its records."""

    def close(self) -> None:
        """Make all that was appended durable, and let go of files and connections."""


def tail(
    log: EventLog, stream: str, cursor: Cursor, stop: Event, *, most: int = 1_000, look_s: float = 0.1
) -> Iterator[Read]:
    """Read from a cursor on, and then what comes, until `stop` is set; each with records or a gap to tell.

    `stop` is looked at every so often while nothing comes.
    """
    while not stop.is_set():
        if log.wait(stream, cursor, look_s):
            read = log.read(stream, cursor, most)
            cursor = read.cursor
            if read.records or read.gaps:
                yield read


# What logs say in the same words ------------------------------------------------


def is_name(text: str) -> bool:
    """Say whether a text can name a stream or a partition."""
    return _NAME.fullmatch(text) is not None


def need_names(names: Iterable[str]) -> None:
    """Refuse names that a folder or a topic can't have."""
    for name in names:
        if not is_name(name):
            raise LogError(f"bad name {name!r}; expected letters, digits, _ . @ and -, at most 128")


def need_records(records: Sequence[bytes]) -> None:
    """Refuse what is not one JSON object on one line, by its first byte and its newlines."""
    for n, record in enumerate(records):
        if not record.startswith(b"{") or b"\n" in record:
            raise LogError(f"record {n}: expected one JSON object on one line, not {record[:60]!r}")


def no_stream(stream: str, known: Iterable[str]) -> LogError:
    """A stream that is not there, and the nearest that is."""
    return LogError(f"no stream {stream!r}{did_you_mean(stream, known)}")


def no_partition(stream: str, partition: str, known: Iterable[str]) -> LogError:
    """A partition that a stream does not have, and the nearest it has."""
    return LogError(f"{stream!r} has no partition {partition!r}{did_you_mean(partition, known)}")


def another_generation(stream: str) -> CursorError:
    """A cursor of a stream that is no more, though one of its name is."""
    return CursorError(f"the cursor is of another {stream!r}: it was deleted and made again; begin anew")


def beyond_end(stream: str, partition: str, offset: int, end: int) -> CursorError:
    """A cursor that points where nothing was written yet."""
    return CursorError(f"offset {offset} of {stream}/{partition} is beyond its end, {end}")
