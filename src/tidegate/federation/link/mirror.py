"""A neighbour's service as a stream of our own log: each event once, in its origin's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import orjson

from tidegate.errors import FederationError, LogError
from tidegate.federation.link.bounds import MAX_PARTITIONS
from tidegate.federation.link.records import Place, arrived, place_of
from tidegate.federation.link.signing import Verifier, time_of
from tidegate.logs import Cursor, EventLog
from tidegate.logs.lost import JOINT, Lost, is_gap

MAX_READ_RECORDS = 2_000
"""Records that are read at once when a mirror is opened."""
MAX_FORGED = 64
"""Forged signatures in one message, each of which takes 100 µs to verify: then its sender is disconnected."""
MAX_RETIRED = 256
"""Sources of former generations that are remembered."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a mirror has come."""

    upstream: str | None = None
    """The cursor, in the neighbour's stream, behind all that was considered for us; None: we begin with what comes."""
    marks: Mapping[str, int] = field(default_factory=dict)
    """By source, the offset at the origin of the last record that is here."""
    mirror_end: str | None = None
    """The end of the mirror when that was so: what is behind it is looked at when it is opened."""
    retired: Sequence[str] = ()
    """Sources that others have taken the place of: a stream that was made anew does not come back."""
    signed_at: Mapping[str, int] = field(default_factory=dict)
    """By partition, when the newest record was signed, where records must be: none of a generation before it comes."""

    def to_json(self) -> str:
        """As it is kept."""
        said = {"there": self.upstream, "marks": self.marks, "here": self.mirror_end, "retired": list(self.retired)}
        said |= {"signed_at": dict(self.signed_at)}
        return orjson.dumps(said).decode()

    @classmethod
    def from_json(cls, text: str) -> Progress:
        """As it was kept."""
        said: dict[str, Any] = orjson.loads(text)
        retired, signed_at = tuple(said.get("retired", ())), said.get("signed_at", {})
        return cls(said["there"], said["marks"], said["here"], retired, signed_at)


class Appended(NamedTuple):
    """What became of the events that came."""

    added: int
    dropped: int
    """Nobody wants them."""
    repeated: int
    """They were here."""
    unsigned: int = 0
    """They have no valid signature of their origin, whose keys are pinned."""


class Mirror:
    """Appends what comes over a link. Whoever asks how far it is is told of nothing that is not there yet."""

    def __init__(
        self,
        log: EventLog,
        name: str,
        kept: Progress | None = None,
        verifier: Verifier | None = None,
        max_partitions: int = MAX_PARTITIONS,
    ) -> None:
        """`kept` is how far it had come, at least: what was appended since is found in the mirror itself.

        `verifier` says which records the origin has signed; None: they need no signature.
        """
        self._log, self.name = log, name
        self._verifier, self._max_partitions = verifier, max_partitions
        self._is_owed: set[str] = set()
        """Partitions of which something was refused since the last record: readers were told, or will be."""
        kept = kept or Progress()
        self._retired = dict.fromkeys(kept.retired)
        self._signed_at = dict(kept.signed_at)
        self.upstream = kept.upstream
        self._marks = dict(kept.marks)
        self._partitions: set[str] = set()
        self._lock = Lock()
        self._is_closed = False
        self._catch_up(kept.mirror_end)

    def _catch_up(self, here: str | None) -> None:
        try:
            at = Cursor.from_text(here) if here is not None else self._log.begin(self.name)
            while (read := self._log.read(self.name, at, MAX_READ_RECORDS)).records:
                for record in read.records:
                    if record != JOINT:
                        place = Place(*place_of(record))
                        self._is_new(place)
                        self._note_time(place, time_of(record) if self._verifier is not None else None)
                at = read.cursor
            self._partitions.update(self._log.partitions(self.name))
        except LogError:  # there is none yet, or it was made anew
            self._marks = self._marks if here is None else {}

    @property
    def marks(self) -> dict[str, int]:
        """How far each source is here."""
        with self._lock:
            return dict(self._marks)

    def progress(self) -> Progress:
        """What to keep."""
        with self._lock:
            return self._progress()

    def _progress(self) -> Progress:
        try:
            here = self._log.end(self.name).text
        except LogError:
            here = None
        return Progress(self.upstream, dict(self._marks), here, tuple(self._retired), dict(self._signed_at))

    def close(self) -> Progress:
        """Add nothing more, not even what somebody judges just now; what to keep is how far it has come then."""
        with self._lock:
            self._is_closed = True
            return self._progress()

    def append(
        self, records: Sequence[bytes], there: str, wanted: Callable[[Sequence[bytes]], Sequence[int]] | None = None
    ) -> Appended:
        """Add what is not here yet; `there` is the cursor behind it all, in the neighbour's stream.

        `wanted` says which of the records somebody wants; None: all. The others are passed over, and do not come again.
        Where the log refuses, a part may have been added: the mirror is to be opened anew, and sees which.
        """
        by_partition: dict[str, list[bytes]] = {}
        added = dropped = repeated = unsigned = 0
        with self._lock:
            if self._is_closed:  # what it would add may be on its way again, to a mirror that has taken its place
                raise LogError(f"the mirror {self.name!r} is closed")
            places = [arrived(record, self.name) for record in records]
            times = self._times(records)
            some = range(len(records)) if wanted is None else frozenset(wanted(records))
            for n, (record, place) in enumerate(zip(records, places, strict=True)):
                is_event = not is_gap(record)
                if self._verifier is not None and self._is_refused(place, times[n]):
                    unsigned += 1
                    self._refuse(place, by_partition)
                    continue
                owed = self._owed(place)
                if not self._is_new(place):
                    repeated += is_event
                    continue
                self._note_time(place, times[n])
                self._is_owed.discard(place.partition)
                if n in some or not is_event:
                    by_partition.setdefault(place.partition, []).extend([*owed, record])
                    added += is_event
                else:
                    dropped += 1
            for partition, new in by_partition.items():
                self._need(partition)
                self._log.append(self.name, partition, new)
            self.upstream = there
        return Appended(added, dropped, repeated, unsigned)

    def _need(self, partition: str) -> None:
        if partition not in self._partitions:
            if len(self._partitions) >= self._max_partitions:
                raise FederationError(f"expected at most {self._max_partitions:,} partitions of {self.name!r}")
            self._log.create(self.name, [partition])
            self._partitions.add(partition)

    def _is_new(self, place: Place) -> bool:
        """Say whether a record is beyond what is here of its source; if so, the mark of the source moves up to it."""
        source, partition, offset = place
        if offset <= self._marks.get(source, -2):  # before all that is there lies what stands for what was lost
            return False
        if source not in self._marks:  # another generation of the origin's stream takes the place of the one before
            if source in self._retired:
                return False
            before = [each for each in self._marks if each.rpartition("/")[2] == partition]
            self._retired.update(dict.fromkeys(before))
            for each in list(self._retired)[:-MAX_RETIRED]:
                del self._retired[each]
            for each in before:
                del self._marks[each]
        self._marks[source] = offset
        return True

    # What is not signed ------------------------------------------------------------------------

    def _times(self, records: Sequence[bytes]) -> Sequence[int | None]:
        """Return when each record was signed; None: it is not, or need not be."""
        if self._verifier is None:
            return [None] * len(records)
        forged, times = self._verifier.forged, []
        for record in records:
            times.append(self._verifier.signed_at(record))
            if self._verifier.forged - forged > MAX_FORGED:
                raise FederationError(f"more than {MAX_FORGED} records of {self.name!r} have forged signatures")
        return times

    def _is_refused(self, place: Place, signed_at: int | None) -> bool:
        """Say whether a record is not signed, or is one of a generation before that of what is here."""
        if signed_at is None:
            return True
        is_known = place.source in self._marks
        return not is_known and signed_at <= self._signed_at.get(place.partition, -1)

    def _note_time(self, place: Place, signed_at: int | None) -> None:
        if signed_at is not None:
            self._signed_at[place.partition] = max(signed_at, self._signed_at.get(place.partition, -1))

    def _refuse(self, place: Place, by_partition: dict[str, list[bytes]]) -> None:
        """Tell readers once that something is missing behind what is here; its place may be a lie, and is not used."""
        if place.partition in self._is_owed or len(self._is_owed) >= self._max_partitions:
            return
        self._is_owed.add(place.partition)
        known = [each for each in self._marks if each.rpartition("/")[2] == place.partition]
        if known:
            behind = max(self._marks[known[0]] + 1, 0)
            by_partition.setdefault(place.partition, []).append(Lost(known[0], behind, behind).note())

    def _owed(self, place: Place) -> list[bytes]:
        """What stands before a signed record for what was refused before it, where readers were not told yet."""
        is_told = any(each.rpartition("/")[2] == place.partition for each in self._marks)
        if is_told or place.partition not in self._is_owed:
            return []
        return [Lost(place.source, max(place.offset, 0), max(place.offset, 0)).note()]
