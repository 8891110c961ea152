"""What every log promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.logs.cursor import Cursor


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a stream is kept: whichever of the two is reached first. None: no limit."""

    age_s: float | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that a cursor has missed: they had expired before they were read."""

    partition: str
    missed_from: int
    resumed_at: int


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

    def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
        """Add records, all or none, and give the offset behind the last; durable as the log's settings say."""

    def begin(self, stream: str) -> Cursor:
        """Before the oldest record that is left."""

    def end(self, stream: str) -> Cursor:
        """Behind the newest record."""

    def since(self, stream: str, micros: int) -> Cursor:
        """At or shortly before the first record that was appended at a moment or later."""

    def read(self, stream: str, cursor: Cursor, most: int = 1_000) -> Read:
        """Read on from a cursor, at most so many records; none: the end is reached."""

    def expire(self, stream: str, retention: Retention) -> int:
        """Let go of what is older or more than a retention allows; give the bytes that were freed."""

    def delete(self, stream: str) -> None:
        """Forget a stream and all its records."""

    def close(self) -> None:
        """Make all that was appended durable, and let go of files and connections."""
