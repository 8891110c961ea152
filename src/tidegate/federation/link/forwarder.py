"""Sends a neighbour the events that it requests of one service, from its cursor on.

A thread per forwarder reads the log, matches and hands over batches. It waits while too many batches are unconfirmed.
Attributes that the neighbour may not see are removed before its filters are evaluated, so that no filter can reveal
them. If filtering costs more than it saves, only a sample is matched and all events are sent; the receiver drops the
unwanted ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from queue import Empty, SimpleQueue

import structlog

from tidegate.errors import CursorError, LogError, StreamNotFound
from tidegate.federation.link.record_matcher import RecordMatcher
from tidegate.federation.link.records import origin_position, with_metadata
from tidegate.federation.link.settings import LinkSettings
from tidegate.federation.routes import Adaptive, TableState
from tidegate.filters import Filter
from tidegate.logs import Cursor, EventLog, Read
from tidegate.logs.gap_records import SYNC_RECORD, GapRecord, is_control_record, is_gap_record
from tidegate.model import Schema
from tidegate.model.hashed_ids import HashedIds

MAX_READ_RECORDS = 2_000
"""Records of one read."""
POLL_INTERVAL_S = 0.02
"""How long changed filters may wait while no event comes."""
BATCHING_DELAY_S = 0.001
"""Pause after a read, so that the next one finds more events: reading many costs little more than reading one."""
RETRY_INTERVAL_S = 0.2
"""Between two attempts to read a stream that does not exist yet, or that fails."""
POSITION_INTERVAL_S = 0.5
"""Interval between two position messages to a neighbour that gets no events: how far its filters were evaluated."""

_log = structlog.get_logger("tidegate.link")

PositionCallback = Callable[[Cursor | None], object]


@dataclass(frozen=True, slots=True)
class Supply:
    """The stream of a service, and what a neighbour sees of its events."""

    service: str
    """The name of the service among brokers: `gps@city`."""
    stream: str
    """The name of its stream in our log."""
    schema: Schema
    """What the neighbour sees."""
    hidden: frozenset[str] = frozenset()
    """Attributes that the neighbour does not see, with `_id` if ids are hashed for it."""
    ids: HashedIds | None = None
    """Hashes the ids for the neighbour. None: it sees them unchanged."""

    @property
    def is_own(self) -> bool:
        """True if this broker is the origin. Records of other origins already contain their position there."""
        return self.stream != self.service


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where forwarding continues: after a cursor of our stream, without records at or below the marks."""

    cursor: str | None = None
    """None: with new events. Empty: with the first event of a stream that did not exist yet."""
    marks: Mapping[str, int] = field(default_factory=dict)
    """By source, the offset of the last record that the neighbour has."""


@dataclass(frozen=True, slots=True)
class OutgoingBatch:
    """Events to send, and the cursor after all events that were considered for them."""

    records: Sequence[bytes]
    cursor: str
    is_coarse: bool = False
    """True if some of the events may match no requested filter, because not all were matched."""


class Forwarder:
    """Forwards one service to one neighbour in a thread of its own, which starts with the object."""

    def __init__(
        self,
        log: EventLog,
        supply: Supply,
        begin: ResumePoint,
        entries: Mapping[int, Filter],
        state: TableState,
        send: Callable[[OutgoingBatch], None],
        settings: LinkSettings,
        policy: Adaptive | None = None,
        sign: Callable[[Sequence[bytes]], Sequence[bytes]] | None = None,
    ) -> None:
        """`send` is called in the forwarder's thread; each batch must be confirmed with `confirm`.

        `entries` are the filters of the neighbour's table, and `state` its version. `policy` decides whether events
        are filtered, and is used in the forwarder's thread only; None: they always are. `sign` signs records of our
        own; None: they are sent unsigned.
        """
        self._sign = sign
        self.supply, self._log, self._begin, self._send, self._settings = supply, log, begin, send, settings
        self._policy = policy
        self._state: TableState | None = None
        """The state of the table whose filters were passed to the thread last."""
        self.forwarded = self.stopped = self.gaps = 0
        """Events sent, events that matched no filter, and gaps."""
        self._matcher = RecordMatcher(supply.schema, supply.hidden)
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        """Calls for the thread, which runs them between two reads."""
        self._in_flight = threading.BoundedSemaphore(settings.max_in_flight)
        """Acquired for every batch, released when the neighbour confirms it."""
        self._is_closed = False
        self._position: Cursor | None = None
        self._position_requests: list[tuple[Cursor, PositionCallback]] = []
        """Callbacks, and the position after which each is called."""
        self._sent_at, self._sent_cursor = 0.0, ""
        """When the last batch was sent, and its cursor."""
        self._was_recreated = False
        """True if the stream was deleted and created again, and the neighbour has not been told of the gap."""
        self._open_gaps: set[str] = set()
        """Partitions of a mirror with a gap whose end at the origin is not known yet."""
        self.first = begin.cursor
        """The first cursor. None: forwarding has not started."""
        self.is_confirmed = False
        """True once the neighbour has confirmed a batch."""
        self.has_begun = False
        """True once a batch was sent: from then on every event is matched for the neighbour."""
        self.set_filters(entries, state)
        self._thread = threading.Thread(target=self._run, name=f"link-{supply.service}", daemon=True)
        self._thread.start()

    # Called on the event loop ------------------------------------------------------

    def set_filters(self, entries: Mapping[int, Filter], state: TableState) -> None:
        """Replace all filters from the next read on. `state` is that of the table that they are from."""
        if state != self._state:
            self._state = state
            self._commands.put(lambda: self._matcher.set_filters(entries))

    def change_filters(self, add: Mapping[int, Filter], remove: Sequence[int], state: TableState) -> None:
        """Add and remove filters from the next read on, in one step that leads to `state`."""
        if state != self._state:
            self._state = state
            self._commands.put(lambda: self._matcher.change(add, remove))

    def request_position(self, callback: PositionCallback) -> None:
        """Call back, in the forwarder's thread, with its cursor once all events that exist now were sent.

        Every event after that cursor is matched against all filters that are set now. The callback gets None if the
        stream does not exist or the forwarder is closed.
        """
        self._commands.put(lambda: self._add_position_request(callback))

    @property
    def rest(self) -> ResumePoint:
        """Where another forwarder continues without losing events: after the last cursor that was sent."""
        return ResumePoint(self._sent_cursor, self._begin.marks) if self.has_begun else self._begin

    def confirm(self, events: int, dropped: int) -> None:
        """Note that the neighbour has taken a batch, and dropped those of its events that no filter there requests."""
        self.is_confirmed = True
        policy = self._policy
        if policy is not None and events:
            self._commands.put(lambda: policy.report_dropped(dropped, events))
        self._release()

    def close(self) -> None:
        """Send nothing more. The thread ends soon; the state of unconfirmed batches does not matter."""
        self._is_closed = True
        self._release()

    def _release(self) -> None:
        with suppress(ValueError):  # nothing is in flight: the neighbour confirms a batch that was not sent
            self._in_flight.release()

    # The thread ----------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._run_commands()
                self._step()
            except CursorError:  # the stream was deleted and created again
                self.gaps += 1
                self._begin = ResumePoint("", self._begin.marks)
                self._position, self._was_recreated = None, True
            except StreamNotFound:  # all of its events will be new
                if self._begin.cursor is None:
                    self._begin = ResumePoint("", self._begin.marks)
                    self._send_batch([], "")
                self._cancel_position_requests()
                time.sleep(RETRY_INTERVAL_S)
            except LogError:  # the log does not answer: continue from the same position when it does
                self._cancel_position_requests()
                time.sleep(RETRY_INTERVAL_S)
            except Exception as problem:
                _log.warning("can't forward", service=self.supply.service, problem=repr(problem))
                time.sleep(RETRY_INTERVAL_S)
        self._cancel_position_requests()
        self._matcher.close()

    def _step(self) -> None:
        """Wait a moment for events and send them; then answer position requests."""
        if self._position is None:
            self._position = self._first_position()
            gaps = self._gaps_of_recreated_stream(self._position) if self._was_recreated else []
            self._send_batch(gaps, self._position.text)
            self._was_recreated = False
        elif not self._due(self._position) and self._log.wait(self.supply.stream, self._position, POLL_INTERVAL_S):
            self._position = self._forward(self._position)
            time.sleep(BATCHING_DELAY_S)
        due = self._due(self._position)
        if due or time.monotonic() - self._sent_at > POSITION_INTERVAL_S:
            # Send the cursor before a position request is answered: after a break the neighbour then continues from
            # there. From an earlier cursor it would get events again that it has read as history.
            self._sent_at = time.monotonic()
            if self._position.text != self._sent_cursor:
                self._send_batch([], self._position.text)
        for request in due if not self._is_closed else ():
            self._position_requests.remove(request)
            request[1](self._position)

    def _due(self, position: Cursor) -> list[tuple[Cursor, PositionCallback]]:
        """Return the position requests that can be answered at a position."""
        return [request for request in self._position_requests if reaches(position, request[0])]

    def _run_commands(self) -> None:
        with suppress(Empty):
            while True:
                self._commands.get_nowait()()

    def _add_position_request(self, callback: PositionCallback) -> None:
        try:
            self._position_requests.append((self._log.end(self.supply.stream), callback))
        except LogError:
            callback(None)

    def _cancel_position_requests(self) -> None:
        while self._position_requests:
            self._position_requests.pop()[1](None)

    def _first_position(self) -> Cursor:
        """Return where to start. Raises a `CursorError` if the neighbour's cursor is not one of this stream."""
        if self._begin.cursor is None:
            return self._log.end(self.supply.stream)
        if not self._begin.cursor:
            return self._log.begin(self.supply.stream)
        cursor = Cursor.from_text(self._begin.cursor)
        self._log.read(self.supply.stream, cursor, 1)
        return cursor

    def _forward(self, position: Cursor) -> Cursor:
        """Read, match and send the events after a position. Returns the position after them."""
        read = self._log.read(self.supply.stream, position, MAX_READ_RECORDS)
        if self._is_closed:  # another forwarder may use the policy now
            return position
        self._run_commands()  # filters that were set before these events were appended must match them
        gaps = self._gaps(read)
        selected, is_coarse = self._select(read)
        records = [*gaps, *selected]
        at = 0
        while at < len(records):
            end = at + self._batch_size(records[at:])
            # There is no cursor between two records of a read. After a break the neighbour's marks tell which records
            # of the rest it has.
            cursor = read.cursor if end == len(records) else position
            self._send_batch(records[at:end], cursor.text, is_coarse)
            at = end
        return read.cursor

    def _match(self, records: Sequence[bytes]) -> tuple[Sequence[int], bool]:
        """Return the indices of the records to send, and whether some of them may match no filter."""
        policy = self._policy
        if policy is None:
            return self._matcher.match(records), False
        if self._matcher.matches_all:  # a filter that can't be evaluated here can't be evaluated by the receiver
            policy.decide_all(len(records), 0, 0, 0.0)  # all are forwarded, and none was matched
            return range(len(records)), False
        sample = policy.sample_of(len(records))
        started = time.thread_time()
        matched = self._matcher.match([records[n] for n in sample]) if sample else ()
        spent_s = time.thread_time() - started
        is_coarse = policy.decide_all(len(records), len(sample), len(sample) - len(matched), spent_s)
        # If only a sample was matched, everything is sent, even if the policy has turned meanwhile: a late command of
        # the previous forwarder may have changed it.
        return (range(len(records)), True) if is_coarse or len(sample) < len(records) else (matched, False)

    def _select(self, read: Read) -> tuple[list[bytes], bool]:
        """Return the records to send, and whether some of them may match no filter. Gap records are always sent."""
        records: Sequence[bytes] = read.records
        has_notes = not self.supply.is_own and any(map(is_control_record, records))
        events = (
            [n for n, record in enumerate(records) if not is_control_record(record)]
            if has_notes
            else range(len(records))
        )
        matched, is_coarse = self._match([records[n] for n in events] if has_notes else records)
        self.stopped += len(events) - len(matched)
        gaps = [n for n, record in enumerate(records) if is_gap_record(record)] if has_notes else []
        indices = sorted([*gaps, *(events[n] for n in matched)]) if has_notes else matched
        selected = self._outgoing(read, indices)
        self.forwarded += sum(not is_gap_record(record) for record in selected) if gaps else len(selected)
        return selected, is_coarse

    def _gaps_of_recreated_stream(self, begin: Cursor) -> list[bytes]:
        """Return gap records for all events of a stream that was deleted and created again."""
        if not self.supply.is_own:
            self._open_gaps.update(begin.offsets)
            return []
        return [GapRecord(self._source(begin, partition), 0, at).encode() for partition, at in begin.offsets.items()]

    def _gaps(self, read: Read) -> list[bytes]:
        """Return gap records for events that expired before they were read.

        In a mirror the offsets of a gap at the origin are known only once there is a record after it.
        """
        self.gaps += len(read.gaps)
        if self.supply.is_own:
            return [
                GapRecord(self._source(read.cursor, partition), at, to).encode()
                for partition, at, to, _ in map(astuple, read.gaps)
            ]
        self._open_gaps.update(gap.partition for gap in read.gaps)
        gaps = []
        for record, (partition, _) in zip(read.records, read.places, strict=True) if self._open_gaps else ():
            if partition in self._open_gaps and record != SYNC_RECORD:
                self._open_gaps.discard(partition)
                source, _, offset = origin_position(record)
                if not is_gap_record(record):
                    gaps.append(GapRecord(source, min(offset, self._begin.marks.get(source, -1) + 1), offset).encode())
        return gaps

    def _source(self, cursor: Cursor, partition: str) -> str:
        return f"{self.supply.service}/{cursor.generation}/{partition}"

    def _outgoing(self, read: Read, indices: Sequence[int]) -> list[bytes]:
        """Return records as the neighbour gets them, without those that it has."""
        supply = self.supply
        outgoing = []
        for n in indices:
            record = read.records[n]
            if supply.is_own:
                partition, offset = read.places[n]
                source = self._source(read.cursor, partition)
                if offset > self._begin.marks.get(source, -1):
                    outgoing.append(with_metadata(record, None, f"{source}:{offset}", supply.hidden, supply.ids))
            else:
                source, _, offset = origin_position(record)
                if offset > self._begin.marks.get(source, -2):
                    outgoing.append(record)
        return outgoing

    def _batch_size(self, records: Sequence[bytes]) -> int:
        """Return how many of these records fit in one batch; at least one."""
        size = 0
        for n, record in enumerate(records[: self._settings.batch_events]):
            size += len(record)
            if n and size > self._settings.batch_bytes:
                return n
        return min(len(records), self._settings.batch_events)

    def _send_batch(self, records: Sequence[bytes], cursor: str, is_coarse: bool = False) -> None:
        """Send a batch once fewer than `LinkSettings.max_in_flight` are unconfirmed. Sends nothing after `close`."""
        records = records if self._sign is None else self._sign(records)
        self._in_flight.acquire()
        if self._is_closed:
            self._release()  # the same read may have more batches, which must not block
            return
        self.first = cursor if self.first is None else self.first
        self._sent_at, self._sent_cursor, self.has_begun = time.monotonic(), cursor, True
        self._send(OutgoingBatch(records, cursor, is_coarse))


def reaches(cursor: Cursor, other: Cursor) -> bool:
    """True if a cursor is at or after another in every partition of the other. Generations are not compared."""
    return all(cursor.offsets.get(partition, 0) >= offset for partition, offset in other.offsets.items())
