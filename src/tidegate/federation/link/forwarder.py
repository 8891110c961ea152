"""Sends a neighbour what it has asked for of one service, from its cursor on.

A thread of its own reads the log, matches, and hands over batches; it waits while too many of them are under way.
What a neighbour does not see is taken off before its filters are asked: they can't tell of it either. Where asking
costs more than it saves only a sample is asked about, and all is sent: its receiver drops what nobody wants.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from queue import Empty, SimpleQueue

import structlog

from tidegate.errors import CursorError, LogError
from tidegate.federation.link.records import dressed, place_of
from tidegate.federation.link.settings import LinkSettings
from tidegate.federation.link.sieve import Sieve
from tidegate.federation.routes import Adaptive, State
from tidegate.filters import Filter
from tidegate.logs import Cursor, EventLog, Read
from tidegate.logs.lost import JOINT, Lost, is_gap, is_note
from tidegate.model import Schema
from tidegate.model.hashed_ids import HashedIds

MOST = 2_000
"""Events of one pass."""
LOOK_S = 0.02
"""How long other filters wait where no event comes."""
PAUSE_S = 0.001
"""After a pass: the next one finds more, which costs little more than finding one."""
ABSENT_S = 0.2
"""Between two looks for a stream that is not there yet."""
TELL_S = 0.5
"""How often a neighbour for whom nothing comes is told how far it was looked for."""

_log = structlog.get_logger("tidegate.link")


@dataclass(frozen=True, slots=True)
class Supply:
    """Where a service's events come from, and what a neighbour sees of them."""

    service: str
    """As all brokers call it: `gps@city`."""
    stream: str
    """In our log."""
    schema: Schema
    hidden: frozenset[str] = frozenset()
    """What the neighbour does not see, `_id` included where ids are hashed for it."""
    ids: HashedIds | None = None
    """How ids are hashed for the neighbour; None: it sees them as they are."""

    @property
    def is_own(self) -> bool:
        """Whether events have their origin here; others have their place there in them already."""
        return self.stream != self.service


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a neighbour goes on: behind a cursor in our stream, without what is at or below its marks."""

    cursor: str | None = None
    """None: with what comes from now on; empty: with the beginning of a stream that was not there yet."""
    marks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutgoingBatch:
    """Some events on their way, and the cursor behind all that was considered."""

    records: Sequence[bytes]
    cursor: str
    is_coarse: bool = False
    """Whether some of them may be wanted by nobody: they were not all asked about."""


class Forwarder:
    """One neighbour's events of one service."""

    def __init__(
        self,
        log: EventLog,
        supply: Supply,
        begin: ResumePoint,
        entries: Mapping[int, Filter],
        state: State,
        hand: Callable[[OutgoingBatch], None],
        settings: LinkSettings,
        policy: Adaptive | None = None,
        sign: Callable[[Sequence[bytes]], Sequence[bytes]] | None = None,
    ) -> None:
        """`hand` is called in the forwarder's thread with every batch; each is to be answered by `taken`.

        `policy` says whether events are filtered, and belongs to the forwarder's thread; None: they always are.
        `sign` signs records of our own as they leave; None: they leave as they are.
        """
        self._sign = sign
        self.supply, self._log, self._begin, self._hand, self._settings = supply, log, begin, hand, settings
        self._policy = policy
        self._state: State | None = None
        """Of what the loop has told it to look for."""
        self.forwarded = self.stopped = self.gaps = 0
        """Events that were sent; that nobody behind the link wants; stretches that had expired before."""
        self._sieve = Sieve(supply.schema, supply.hidden)
        self._changes: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._room = threading.BoundedSemaphore(settings.under_way)
        self._is_closed = False
        self._position: Cursor | None = None
        self._asked: list[tuple[Cursor, Callable[[Cursor | None], object]]] = []
        self._told_at, self._told = 0.0, ""
        self._is_anew = False
        """Whether all that was in the stream is lost, and the neighbour has yet to be told."""
        self._owed: set[str] = set()
        """Partitions of which something is lost, it is not known yet up to where."""
        self.first = begin.cursor
        """Where it began; None: it has not yet."""
        self.is_confirmed = False
        """Whether the neighbour knows that it has begun."""
        self.has_begun = False
        """Whether what comes from now on is looked at."""
        self.want(entries, state)
        self._thread = threading.Thread(target=self._run, name=f"link-{supply.service}", daemon=True)
        self._thread.start()

    # For the event loop ------------------------------------------------------------

    def want(self, entries: Mapping[int, Filter], state: State) -> None:
        """Look for these from the next event on: a table of some state."""
        if state != self._state:
            self._state = state
            self._changes.put(lambda: self._sieve.want(entries))

    def change(self, add: Mapping[int, Filter], remove: Sequence[int], state: State) -> None:
        """Look for some more and some less, in one step to a state."""
        if state != self._state:
            self._state = state
            self._changes.put(lambda: self._sieve.change(add, remove))

    def ask(self, answer: Callable[[Cursor | None], object]) -> None:
        """Say, in the forwarder's thread, how far it is when all that is there now was handed over.

        Whatever comes behind that place is looked at for all that is wanted now. None: there is no stream yet.
        """
        self._changes.put(lambda: self._ask(answer))

    @property
    def rest(self) -> ResumePoint:
        """Where another takes its place: whoever begins behind the cursor that was handed over last misses nothing."""
        return ResumePoint(self._told, self._begin.marks) if self.has_begun else self._begin

    def taken(self, events: int, dropped: int) -> None:
        """The neighbour has taken a batch, of which nobody there wants some."""
        self.is_confirmed = True
        policy = self._policy
        if policy is not None and events:
            self._changes.put(lambda: policy.dropped(dropped, events))
        self._leave_room()

    def close(self) -> None:
        """Send nothing more; what is under way is as if it were not."""
        self._is_closed = True
        self._leave_room()

    def _leave_room(self) -> None:
        with suppress(ValueError):  # nothing is under way: a neighbour who takes what it was not given gets no more
            self._room.release()

    # The thread ----------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._obey()
                self._step()
            except CursorError:  # the stream was made anew
                self.gaps += 1
                self._begin = ResumePoint("", self._begin.marks)
                self._position, self._is_anew = None, True
            except LogError:  # there is no stream yet: all of it will be new
                if self._begin.cursor is None:
                    self._begin = ResumePoint("", self._begin.marks)
                    self._give([], "")
                self._answer_all()
                time.sleep(ABSENT_S)
            except Exception as problem:
                _log.warning("can't forward", service=self.supply.service, problem=repr(problem))
                time.sleep(ABSENT_S)
        self._answer_all()
        self._sieve.close()

    def _step(self) -> None:
        if self._position is None:
            self._position = self._first()
            self._give(self._anew(self._position) if self._is_anew else [], self._position.text)
            self._is_anew = False
        elif not self._reached(self._position) and self._log.wait(self.supply.stream, self._position, LOOK_S):
            self._position = self._pass(self._position)
            time.sleep(PAUSE_S)
        reached = self._reached(self._position)
        if reached or time.monotonic() - self._told_at > TELL_S:
            # Who is told where something begins goes on there after a break: not before, where that would come twice.
            self._told_at = time.monotonic()
            if self._position.text != self._told:
                self._give([], self._position.text)
        for each in reached if not self._is_closed else ():
            self._asked.remove(each)
            each[1](self._position)

    def _reached(self, position: Cursor) -> list[tuple[Cursor, Callable[[Cursor | None], object]]]:
        """Who can be told how far it is."""
        return [each for each in self._asked if reaches(position, each[0])]

    def _obey(self) -> None:
        with suppress(Empty):
            while True:
                self._changes.get_nowait()()

    def _ask(self, answer: Callable[[Cursor | None], object]) -> None:
        try:
            self._asked.append((self._log.end(self.supply.stream), answer))
        except LogError:
            answer(None)

    def _answer_all(self) -> None:
        while self._asked:
            self._asked.pop()[1](None)

    def _first(self) -> Cursor:
        """Where to begin; what its neighbour has may be beyond what it was told."""
        if self._begin.cursor is None:
            return self._log.end(self.supply.stream)
        if not self._begin.cursor:
            return self._log.begin(self.supply.stream)
        cursor = Cursor.from_text(self._begin.cursor)
        self._log.read(self.supply.stream, cursor, 1)  # else it is no place in this stream
        return cursor

    def _pass(self, position: Cursor) -> Cursor:
        read = self._log.read(self.supply.stream, position, MOST)
        if self._is_closed:  # another may have taken its place, and the policy
            return position
        self._obey()  # whoever had asked before these events were put out gets them
        lost = self._lost(read)
        chosen, is_coarse = self._sent(read)
        chosen = [*lost, *chosen]
        at = 0
        while at < len(chosen):
            behind = at + self._fits(chosen[at:])
            is_last = behind == len(chosen)
            # A cursor behind a part of what was read is not known: the marks say what of the rest is there already.
            self._give(chosen[at:behind], (read.cursor if is_last else position).text, is_coarse)
            at = behind
        return read.cursor

    def _wanted(self, records: Sequence[bytes]) -> tuple[Sequence[int], bool]:
        """Which records are sent, by their place among them, and whether some of them may be wanted by nobody."""
        policy = self._policy
        if policy is None:
            return self._sieve.wanted(records), False
        if self._sieve.is_blind:  # what can't be judged here can't be there
            policy.decide_all(len(records), 0, 0, 0.0)  # they are forwarded, and nobody was asked
            return range(len(records)), False
        asked = policy.asked_of(len(records))
        begun = time.thread_time()
        found = self._sieve.wanted([records[n] for n in asked]) if asked else ()
        spent_s = time.thread_time() - begun
        is_coarse = policy.decide_all(len(records), len(asked), len(asked) - len(found), spent_s)
        # Where only a sample was asked about, all is sent, though the policy was told otherwise meanwhile: by the
        # forwarder whose place this one took, which may have a word under way.
        return (range(len(records)), True) if is_coarse or len(asked) < len(records) else (found, False)

    def _sent(self, read: Read) -> tuple[list[bytes], bool]:
        """What is sent of what was read, and whether some of it may be wanted by nobody."""
        records: Sequence[bytes] = read.records
        has_notes = not self.supply.is_own and any(map(is_note, records))
        events = [n for n, each in enumerate(records) if not is_note(each)] if has_notes else range(len(records))
        wanted, is_coarse = self._wanted([records[n] for n in events] if has_notes else records)
        self.stopped += len(events) - len(wanted)
        gaps = [n for n, each in enumerate(records) if is_gap(each)] if has_notes else []
        chosen = self._chosen(read, sorted([*gaps, *(events[n] for n in wanted)]) if has_notes else wanted)
        self.forwarded += sum(not is_gap(each) for each in chosen) if gaps else len(chosen)
        return chosen, is_coarse

    def _anew(self, begin: Cursor) -> list[bytes]:
        """What stands for all that was in a stream that was made anew."""
        if not self.supply.is_own:
            self._owed.update(begin.offsets)
            return []
        return [Lost(self._source(begin, each), 0, at).note() for each, at in begin.offsets.items()]

    def _lost(self, read: Read) -> list[bytes]:
        """What stands for records that had expired before they were read.

        Of another broker's service it is known where that was at the origin once there is a record behind it.
        """
        self.gaps += len(read.gaps)
        if self.supply.is_own:
            return [Lost(self._source(read.cursor, each), at, to).note() for each, at, to, _ in map(astuple, read.gaps)]
        self._owed.update(each.partition for each in read.gaps)
        found = []
        for record, (partition, _) in zip(read.records, read.places, strict=True) if self._owed else ():
            if partition in self._owed and record != JOINT:
                self._owed.discard(partition)
                source, _, offset = place_of(record)
                if not is_gap(record):
                    found.append(Lost(source, min(offset, self._begin.marks.get(source, -1) + 1), offset).note())
        return found

    def _source(self, cursor: Cursor, partition: str) -> str:
        return f"{self.supply.service}/{cursor.generation}/{partition}"

    def _chosen(self, read: Read, wanted: Sequence[int]) -> list[bytes]:
        """Those records as they leave, without what the neighbour has already."""
        supply = self.supply
        found = []
        for n in wanted:
            record = read.records[n]
            if supply.is_own:
                partition, offset = read.places[n]
                source = self._source(read.cursor, partition)
                if offset > self._begin.marks.get(source, -1):
                    found.append(dressed(record, None, f"{source}:{offset}", supply.hidden, supply.ids))
            else:
                source, _, offset = place_of(record)
                if offset > self._begin.marks.get(source, -2):
                    found.append(record)
        return found

    def _fits(self, records: Sequence[bytes]) -> int:
        size = 0
        for n, record in enumerate(records[: self._settings.batch_events]):
            size += len(record)
            if n and size > self._settings.batch_bytes:
                return n
        return min(len(records), self._settings.batch_events)

    def _give(self, records: Sequence[bytes], behind: str, is_coarse: bool = False) -> None:
        records = records if self._sign is None else self._sign(records)
        self._room.acquire()
        if self._is_closed:
            self._leave_room()  # a pass may have more to give
            return
        self.first = behind if self.first is None else self.first
        self._told_at, self._told, self.has_begun = time.monotonic(), behind, True
        self._hand(OutgoingBatch(records, behind, is_coarse))


def reaches(cursor: Cursor, other: Cursor) -> bool:
    """Whether a cursor is nowhere before another."""
    return all(cursor.offsets.get(partition, 0) >= offset for partition, offset in other.offsets.items())
