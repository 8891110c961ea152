"""Validates, deduplicates and buffers the events of one raw stream, then appends them together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, islice

from tidegate.errors import Violation
from tidegate.ingress.http.formats import ParsedBody
from tidegate.ingress.http.receipt import EventRefusal, IngestReceipt, Mode
from tidegate.ingress.http.recent_ids import RecentIds, SharedIds, read_recent_ids
from tidegate.ingress.http.settings import IngestSettings
from tidegate.ingress.http.validator import validator
from tidegate.ingress.raw_streams import RawStreamWriter, stamp, with_metadata
from tidegate.logs import Cursor, EventLog
from tidegate.logs.clock import Clock
from tidegate.model import events
from tidegate.services.definitions import Stream

_Problems = dict[int, list[Violation]]


class StreamIngestor:
    """Adds the events of several requests, then commits them with one append per partition.

    Producers get their receipts after `commit` has returned. If it fails, some events may be in the log: the recent ids
    are then read from the log again.
    """

    def __init__(self, log: EventLog, stream: Stream, settings: IngestSettings, clock: Clock) -> None:
        self.stream = stream
        self._log, self._settings, self._clock = log, settings, clock
        self._writer = RawStreamWriter(log, stream, clock)
        self._is_valid = validator(stream.schema)
        self._recent_ids: RecentIds | None = None
        """None until the first event with an id: until then the log is not searched."""
        self._shared_ids: SharedIds | None = None
        """Follows other processes that append to the stream; None: there are none, or `_recent_ids` is None."""
        self._has_caught_up = False
        """True if the ids of other processes were read since the last append."""
        self._cursor: Cursor | None = None
        self._batches: dict[str, list[bytes]] = {partition: [] for partition in self._writer.partitions}
        self._refused: list[bytes] = []

    def add(self, parsed: ParsedBody, mode: Mode) -> IngestReceipt:
        """Buffer the events of a request. The receipt, without a cursor, is valid once `commit` has returned."""
        problems = self._problems(parsed)
        if problems and mode == "all":
            return self._receipt(0, 0, problems, parsed)
        accepted, duplicates = self._buffer_new(parsed, problems)
        for n, violations in problems.items():
            id_ = parsed.envelopes[n].id if parsed.envelopes else None
            self._refused.append(self._writer.refusal(parsed.raws[n], "; ".join(map(str, violations)), id_))
        return self._receipt(accepted, duplicates, problems, parsed)

    def commit(self) -> str | None:
        """Append the buffered events, and return the cursor after them; None if there were none. Raises LogError."""
        batches = {partition: records for partition, records in self._batches.items() if records}
        refused, self._refused = self._refused, []
        for partition in batches:
            self._batches[partition] = []
        try:
            ends = self._writer.write(batches)
            self._writer.refuse(refused)
        except BaseException:
            self._recent_ids = self._shared_ids = self._cursor = (
                None  # unknown now: read the log before the next append
            )
            raise
        self._has_caught_up = False
        if self._shared_ids is not None:
            self._shared_ids.appended({partition: len(records) for partition, records in batches.items()}, ends)
        return self._cursor_after(ends).text if ends else None

    def _cursor_after(self, ends: dict[str, int]) -> Cursor:
        last = self._cursor
        # If an offset decreases, the stream was deleted and created again.
        if last is None or any(end <= last.offsets.get(partition, 0) for partition, end in ends.items()):
            if last is not None:
                self._recent_ids = self._shared_ids = None
            self._cursor = self._log.end(self.stream.name)
        else:
            self._cursor = Cursor(last.generation, {**last.offsets, **ends})
        return self._cursor

    # Validation ----------------------------------------------------------------

    def _problems(self, parsed: ParsedBody) -> _Problems:
        is_valid, schema = self._is_valid, self.stream.schema
        problems = dict(parsed.problems)
        for n, event in enumerate(parsed.events):
            if not is_valid(event):
                if n not in problems:
                    problems[n] = list(events.violations(event, schema))
            elif event.get("_src") is not None:
                # Readers skip records that `_src` marks as repeated, so producers may not set it.
                problems.setdefault(n, []).append(Violation("_src", "expected none: it is for services to say"))
        return {n: problems[n] for n in sorted(problems)} if problems else problems

    def _receipt(self, accepted: int, duplicates: int, problems: _Problems, parsed: ParsedBody) -> IngestReceipt:
        if not problems:
            return IngestReceipt(accepted, duplicates)
        shown = tuple(islice(_refusals(problems, parsed), self._settings.errors))
        return IngestReceipt(accepted, duplicates, len(problems), shown, sum(map(len, problems.values())))

    # Deduplication -------------------------------------------------------------

    def _buffer_new(self, parsed: ParsedBody, problems: _Problems) -> tuple[int, int]:
        """Buffer valid events that are new. Returns their number, and the number of duplicates.

        Everything that may fail comes first: a request that fails leaves nothing in the buffers.
        """
        valid = [n for n in range(len(parsed.events)) if n not in problems]
        ids, records = self._records(parsed, valid)
        partitions = self._partitions(parsed, valid)
        now = self._clock.monotonic()
        if any(id_ is not None for id_ in ids):
            recent = self._load_recent_ids(now)
            is_new = [id_ is None or recent.add(id_, now) for id_ in ids]
            records, partitions = list(compress(records, is_new)), list(compress(partitions, is_new))
        if len(self._batches) == 1:
            self._batches["0"] += records
        else:
            for partition, record in zip(partitions, records, strict=True):
                self._batches[partition].append(record)
        return len(records), len(valid) - len(records)

    def _partitions(self, parsed: ParsedBody, valid: Sequence[int]) -> list[str]:
        """Return the partition of each valid event; an empty list if the stream has one partition."""
        if len(self._batches) == 1:
            return []
        return [self._writer.choose_partition(parsed.events[n]) for n in valid]

    def _records(self, parsed: ParsedBody, valid: Sequence[int]) -> tuple[list[str | None], list[bytes]]:
        """Return the ids and records of valid events."""
        arrival, raws, events_ = self._writer.stamp(), parsed.raws, parsed.events
        ids: list[str | None] = [events_[n].get("_id") for n in valid]
        if parsed.envelopes is None:
            if parsed.lines is not None and not arrival:  # nothing to add: the line is the record
                return ids, [raws[n] for n in valid]
            return ids, [with_metadata(raws[n], events_[n], None, arrival) for n in valid]
        records = []
        for index, n in enumerate(valid):
            envelope = parsed.envelopes[n]
            if ids[index] is None:
                ids[index] = envelope.id
            # The time of the envelope replaces the arrival time, and is left out if the stream has an event time.
            time = stamp(envelope.time) if arrival and envelope.time is not None else arrival
            records.append(with_metadata(raws[n], events_[n], envelope.id, time))
        return ids, records

    def _load_recent_ids(self, now: float) -> RecentIds:
        """Return the recent ids; at first use, and after a failed append, those that the log holds.

        If other processes append too, the ids of their events come from the log before each append.
        """
        max_ids, max_age_s = self._settings.remembered_ids, self._settings.remembered_s
        if self._shared_ids is not None and not self._has_caught_up:
            if self._shared_ids.catch_up(max_ids, now):
                self._has_caught_up = True
            else:
                self._recent_ids = self._shared_ids = None
        if self._recent_ids is None:
            recent, end = RecentIds(max_ids, max_age_s), self._log.end(self.stream.name)
            for id_ in read_recent_ids(self._log, self.stream.name, end, max_ids, max_age_s, self._clock.now()):
                recent.add(id_, now)
            self._recent_ids = recent
            if self._settings.has_other_writers:
                self._shared_ids, self._has_caught_up = SharedIds(self._log, self.stream.name, recent, end), True
        self._recent_ids.expire(now)
        return self._recent_ids


def _refusals(problems: _Problems, parsed: ParsedBody) -> Iterator[EventRefusal]:
    for n, violations in problems.items():
        line = None if parsed.lines is None else parsed.lines[n]
        for violation in violations:
            yield EventRefusal(n, violation.path, violation.message, line)
