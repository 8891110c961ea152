"""A neighbour's service as a stream of our own log: each event once, in its origin's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import orjson

from tidegate.errors import LogError
from tidegate.federation.link.records import place_of
from tidegate.logs import Cursor, EventLog
from tidegate.logs.lost import JOINT, is_gap

MOST = 2_000
"""Records that are read at once when a mirror is opened."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a mirror has come."""

    there: str | None = None
    """The cursor, in the neighbour's stream, behind all that was considered for us; None: we begin with what comes."""
    marks: Mapping[str, int] = field(default_factory=dict)
    """By source, the offset at the origin of the last record that is here."""
    here: str | None = None
    """The end of the mirror when that was so: what is behind it is looked at when it is opened."""

    def to_json(self) -> str:
        """As it is kept."""
        return orjson.dumps({"there": self.there, "marks": self.marks, "here": self.here}).decode()

    @classmethod
    def from_json(cls, text: str) -> Progress:
        """As it was kept."""
        said: dict[str, Any] = orjson.loads(text)
        return cls(said["there"], said["marks"], said["here"])


class Taken(NamedTuple):
    """What became of the events that came."""

    added: int
    dropped: int
    """Nobody wants them."""
    repeated: int
    """They were here."""


class Mirror:
    """Appends what comes over a link. Whoever asks how far it is is told of nothing that is not there yet."""

    def __init__(self, log: EventLog, name: str, kept: Progress | None = None) -> None:
        """`kept` is how far it had come, at least: what was appended since is found in the mirror itself."""
        self._log, self.name = log, name
        kept = kept or Progress()
        self.there = kept.there
        self._marks = dict(kept.marks)
        self._partitions: set[str] = set()
        self._lock = Lock()
        self._is_closed = False
        self._catch_up(kept.here)

    def _catch_up(self, here: str | None) -> None:
        try:
            at = Cursor.from_text(here) if here is not None else self._log.begin(self.name)
            while (read := self._log.read(self.name, at, MOST)).records:
                for record in read.records:
                    if record != JOINT:
                        self._is_new(record)
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
        return Progress(self.there, dict(self._marks), here)

    def close(self) -> Progress:
        """Add nothing more, not even what somebody judges just now; what to keep is how far it has come then."""
        with self._lock:
            self._is_closed = True
            return self._progress()

    def append(
        self, records: Sequence[bytes], there: str, wanted: Callable[[Sequence[bytes]], Sequence[int]] | None = None
    ) -> Taken:
        """Add what is not here yet; `there` is the cursor behind it all, in the neighbour's stream.

        `wanted` says which of the records somebody wants; None: all. The others are passed over, and do not come again.
        Where the log refuses, a part may have been added: the mirror is to be opened anew, and sees which.
        """
        by_partition: dict[str, list[bytes]] = {}
        added = dropped = repeated = 0
        with self._lock:
            if self._is_closed:  # what it would add may be on its way again, to a mirror that has taken its place
                raise LogError(f"the mirror {self.name!r} is closed")
            some = range(len(records)) if wanted is None else frozenset(wanted(records))
            for n, record in enumerate(records):
                is_event = not is_gap(record)
                if (partition := self._is_new(record)) is None:
                    repeated += is_event
                elif n in some or not is_event:
                    by_partition.setdefault(partition, []).append(record)
                    added += is_event
                else:
                    dropped += 1
            for partition, new in by_partition.items():
                self._need(partition)
                self._log.append(self.name, partition, new)
            self.there = there
        return Taken(added, dropped, repeated)

    def _need(self, partition: str) -> None:
        if partition not in self._partitions:
            self._log.create(self.name, [partition])
            self._partitions.add(partition)

    def _is_new(self, record: bytes) -> str | None:
        """The partition of a record that is beyond what is here of its source; None: it is here."""
        source, partition, offset = place_of(record)
        if offset <= self._marks.get(source, -2):  # before all that is there lies what stands for what was lost
            return None
        if source not in self._marks:  # another generation of the origin's stream takes the place of the one before
            self._marks = {each: at for each, at in self._marks.items() if each.rpartition("/")[2] != partition}
        self._marks[source] = offset
        return partition
