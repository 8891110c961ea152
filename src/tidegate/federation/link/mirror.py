"""A local copy of another broker's service: each event once, in the order of its origin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import orjson

from tidegate.errors import CursorError, FederationError, LogError, StreamNotFound
from tidegate.federation.link.bounds import MAX_PARTITIONS
from tidegate.federation.link.records import OriginPosition, check_received, origin_position
from tidegate.federation.link.signing import Verifier, time_of
from tidegate.logs import Cursor, EventLog
from tidegate.logs.gap_records import SYNC_RECORD, GapRecord, is_gap_record

MAX_READ_RECORDS = 2_000
"""Records of one read when a mirror is opened."""
MAX_FORGED = 64
"""Forged signatures in one message before its sender is disconnected: each takes 100 µs to verify."""
MAX_RETIRED = 256
"""Sources of former generations that are remembered."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a mirror has come. Saved in the registry."""

    upstream: str | None = None
    """The cursor in the neighbour's stream after all events that were considered for us. None: start with new ones."""
    marks: Mapping[str, int] = field(default_factory=dict)
    """By source, the offset at the origin of the last record that the mirror has."""
    mirror_end: str | None = None
    """The end of the mirror at that time. Later records are read when the mirror is opened."""
    retired: Sequence[str] = ()
    """Sources of former generations, whose records are refused: a stream that was deleted does not come back."""
    signed_at: Mapping[str, int] = field(default_factory=dict)
    """By partition, when its newest record was signed, if signatures are required. An older generation is refused."""

    def to_json(self) -> str:
        """Return the progress as a JSON text."""
        document: dict[str, Any] = {"there": self.upstream, "marks": self.marks, "here": self.mirror_end}
        document |= {"retired": list(self.retired), "signed_at": dict(self.signed_at)}
        return orjson.dumps(document).decode()

    @classmethod
    def from_json(cls, text: str) -> Progress:
        """Read what `to_json` returned."""
        document: dict[str, Any] = orjson.loads(text)
        retired, signed_at = tuple(document.get("retired", ())), document.get("signed_at", {})
        return cls(document["there"], document["marks"], document["here"], retired, signed_at)


class Appended(NamedTuple):
    """How many events of a batch were appended or not, and why."""

    added: int
    dropped: int
    """Match no requested filter."""
    repeated: int
    """Are in the mirror already."""
    unsigned: int = 0
    """Lack a valid signature, though keys of their origin are pinned."""


class Mirror:
    """Appends the events that come over a link to a stream of our log.

    Methods read and write the log: call them in threads. They may be called concurrently; the progress that they
    report covers only events that are in the log.
    """

    def __init__(
        self,
        log: EventLog,
        name: str,
        saved: Progress | None = None,
        verifier: Verifier | None = None,
        max_partitions: int = MAX_PARTITIONS,
    ) -> None:
        """Open a mirror. `saved` is its last saved progress; records that were appended since are read from the log.
        Raises `LogUnreachable` if the log does not answer: without its records, the mirror would append repeats.

        `verifier` tells which records the origin has signed. None: no signature is required.
        """
        self._log, self.name = log, name
        self._verifier, self._max_partitions = verifier, max_partitions
        self._refused: set[str] = set()
        """Partitions in which a record was refused after the last accepted one."""
        saved = saved or Progress()
        self._retired = dict.fromkeys(saved.retired)
        self._signed_at = dict(saved.signed_at)
        self.upstream = saved.upstream
        self._marks = dict(saved.marks)
        self._partitions: set[str] = set()
        self._lock = Lock()
        self._is_closed = False
        self._catch_up(saved.mirror_end)

    def _catch_up(self, saved_end: str | None) -> None:
        """Read the records after the saved end, and move the marks up to them."""
        try:
            at = Cursor.from_text(saved_end) if saved_end is not None else self._log.begin(self.name)
            while (read := self._log.read(self.name, at, MAX_READ_RECORDS)).records:
                for record in read.records:
                    if record != SYNC_RECORD:
                        position = origin_position(record)
                        self._advance(position)
                        self._note_time(position, time_of(record) if self._verifier is not None else None)
                at = read.cursor
            self._partitions.update(self._log.partitions(self.name))
        except (StreamNotFound, CursorError):  # the mirror does not exist yet, or was deleted and created again
            self._marks = self._marks if saved_end is None else {}

    @property
    def marks(self) -> dict[str, int]:
        """By source, the offset at the origin of the last record that the mirror has."""
        with self._lock:
            return dict(self._marks)

    def progress(self) -> Progress:
        """Return the progress to save."""
        with self._lock:
            return self._progress()

    def _progress(self) -> Progress:
        try:
            end = self._log.end(self.name).text
        except LogError:  # without an end, the next process reads the whole mirror to find its marks
            end = None
        return Progress(self.upstream, dict(self._marks), end, tuple(self._retired), dict(self._signed_at))

    def close(self) -> Progress:
        """Refuse further appends and return the final progress. Waits for an append that is running."""
        with self._lock:
            self._is_closed = True
            return self._progress()

    def append(
        self,
        records: Sequence[bytes],
        upstream: str,
        selector: Callable[[Sequence[bytes]], Sequence[int]] | None = None,
    ) -> Appended:
        """Append the records that are new. `upstream` is the cursor after all of them in the neighbour's stream.

        `selector` returns the indices of the records that match a requested filter; None: all do. The others are
        dropped for good.
        Raises a `FederationError` if a record is malformed, and a `LogError` if the log fails or the mirror is closed.
        After a `LogError` some records may have been appended: open the mirror again, which finds them.
        """
        by_partition: dict[str, list[bytes]] = {}
        added = dropped = repeated = unsigned = 0
        with self._lock:
            if self._is_closed:  # another mirror may have been opened, and may get these records again
                raise LogError(f"the mirror {self.name!r} is closed")
            positions = [check_received(record, self.name) for record in records]
            times = self._times(records)
            selected = range(len(records)) if selector is None else frozenset(selector(records))
            for n, (record, position) in enumerate(zip(records, positions, strict=True)):
                is_event = not is_gap_record(record)
                if self._verifier is not None and self._is_untrusted(position, times[n]):
                    unsigned += 1
                    self._note_refusal(position, by_partition)
                    continue
                gap = self._gap_before(position)
                if not self._advance(position):
                    repeated += is_event
                    continue
                self._note_time(position, times[n])
                self._refused.discard(position.partition)
                if n in selected or not is_event:
                    by_partition.setdefault(position.partition, []).extend([*gap, record])
                    added += is_event
                else:
                    dropped += 1
            for partition, new in by_partition.items():
                self._create_partition(partition)
                self._log.append(self.name, partition, new)
            self.upstream = upstream
        return Appended(added, dropped, repeated, unsigned)

    def _create_partition(self, partition: str) -> None:
        if partition not in self._partitions:
            if len(self._partitions) >= self._max_partitions:
                raise FederationError(f"expected at most {self._max_partitions:,} partitions of {self.name!r}")
            self._log.create(self.name, [partition])
            self._partitions.add(partition)

    def _advance(self, position: OriginPosition) -> bool:
        """Move the mark of a source up to a record. Returns False if the mirror has the record already."""
        source, partition, offset = position
        if offset <= self._marks.get(source, -2):  # a gap record before the first offset has offset -1
            return False
        if source not in self._marks:  # a new generation of the origin's stream replaces the former one
            if source in self._retired:
                return False
            former = self._sources_of(partition)
            self._retired.update(dict.fromkeys(former))
            for old_source in list(self._retired)[:-MAX_RETIRED]:
                del self._retired[old_source]
            for old_source in former:
                del self._marks[old_source]
        self._marks[source] = offset
        return True

    def _sources_of(self, partition: str) -> list[str]:
        return [source for source in self._marks if source.rpartition("/")[2] == partition]

    # Signatures --------------------------------------------------------------------------------

    def _times(self, records: Sequence[bytes]) -> Sequence[int | None]:
        """Return when each record was signed. None: it has no valid signature, or needs none."""
        if self._verifier is None:
            return [None] * len(records)
        forged, times = self._verifier.forged, []
        for record in records:
            times.append(self._verifier.signed_at(record))
            if self._verifier.forged - forged > MAX_FORGED:
                raise FederationError(f"more than {MAX_FORGED} records of {self.name!r} have forged signatures")
        return times

    def _is_untrusted(self, position: OriginPosition, signed_at: int | None) -> bool:
        """True if a record is not signed, or starts a generation that is older than the records of the mirror."""
        if signed_at is None:
            return True
        is_known = position.source in self._marks
        return not is_known and signed_at <= self._signed_at.get(position.partition, -1)

    def _note_time(self, position: OriginPosition, signed_at: int | None) -> None:
        if signed_at is not None:
            self._signed_at[position.partition] = max(signed_at, self._signed_at.get(position.partition, -1))

    def _note_refusal(self, position: OriginPosition, by_partition: dict[str, list[bytes]]) -> None:
        """Append a gap record after the last accepted record, once. The refused record's position is not trusted."""
        if position.partition in self._refused or len(self._refused) >= self._max_partitions:
            return
        self._refused.add(position.partition)
        sources = self._sources_of(position.partition)
        if sources:
            after = max(self._marks[sources[0]] + 1, 0)
            by_partition.setdefault(position.partition, []).append(GapRecord(sources[0], after, after).encode())

    def _gap_before(self, position: OriginPosition) -> list[bytes]:
        """Return a gap record for records that were refused before the first signed one of a partition."""
        if position.partition not in self._refused or self._sources_of(position.partition):
            return []
        offset = max(position.offset, 0)
        return [GapRecord(position.source, offset, offset).encode()]
