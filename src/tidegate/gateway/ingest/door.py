"""One raw stream as ingest sees it: who comes in, who has been here, who is turned away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, islice

from tidegate.errors import Violation
from tidegate.gateway.ingest.formats import Parsed
from tidegate.gateway.ingest.receipt import Mode, Receipt, Refusal
from tidegate.gateway.ingest.seen import Seen, recent_ids
from tidegate.gateway.ingest.settings import IngestSettings
from tidegate.gateway.ingest.validator import validator
from tidegate.logs import Cursor, EventLog
from tidegate.logs.clock import Clock
from tidegate.logs.intake import Intake, dressed, stamp
from tidegate.model import events
from tidegate.services.definitions import Stream

_Problems = dict[int, list[Violation]]


class Door:
    """Takes the events of several requests, then appends them together.

    Nobody is told before `commit` has returned. Where it fails, some of the
    events may be in the log: which ids are is then read from there.
    """

    def __init__(self, log: EventLog, stream: Stream, settings: IngestSettings, clock: Clock) -> None:
        self.stream = stream
        self._log, self._settings, self._clock = log, settings, clock
        self._intake = Intake(log, stream, clock)
        self._valid = validator(stream.schema)
        self._seen: Seen | None = None
        """None: no id has come yet, so none was looked for."""
        self._cursor: Cursor | None = None
        self._batches: dict[str, list[bytes]] = {partition: [] for partition in self._intake.partitions}
        self._refused: list[bytes] = []

    def take(self, parsed: Parsed, mode: Mode) -> Receipt:
        """Say what becomes of a request's events once `commit` has returned; the receipt has no cursor yet."""
        problems = self._problems(parsed)
        if problems and mode == "all":
            return self._receipt(0, 0, problems, parsed)
        accepted, duplicates = self._admit(parsed, problems)
        for n, found in problems.items():
            id_ = parsed.envelopes[n].id if parsed.envelopes else None
            self._refused.append(self._intake.refusal(parsed.raws[n], "; ".join(map(str, found)), id_))
        return self._receipt(accepted, duplicates, problems, parsed)

    def commit(self) -> str | None:
        """Append what was taken, and give the cursor behind it; None where there was nothing to append."""
        batches = {partition: records for partition, records in self._batches.items() if records}
        refused, self._refused = self._refused, []
        for partition in batches:
            self._batches[partition] = []
        try:
            ends = self._intake.write(batches)
            self._intake.refuse(refused)
        except BaseException:
            self._seen = self._cursor = None  # the log knows what is in it
            raise
        return self._behind(ends).text if ends else None

    def _behind(self, ends: dict[str, int]) -> Cursor:
        known = self._cursor
        # An offset that goes back is that of a stream which was deleted and made again.
        if known is None or any(end <= known.offsets.get(partition, 0) for partition, end in ends.items()):
            if known is not None:
                self._seen = None
            self._cursor = self._log.end(self.stream.name)
        else:
            self._cursor = Cursor(known.generation, {**known.offsets, **ends})
        return self._cursor

    # Judging -------------------------------------------------------------------

    def _problems(self, parsed: Parsed) -> _Problems:
        valid, schema = self._valid, self.stream.schema
        problems = dict(parsed.problems)
        for n, event in enumerate(parsed.events):
            if not valid(event):
                if n not in problems:
                    problems[n] = list(events.violations(event, schema))
            elif event.get("_src") is not None:
                # Readers leave out what they take for a repeat of this source: a producer may not say so.
                problems.setdefault(n, []).append(Violation("_src", "expected none: it is for services to say"))
        return {n: problems[n] for n in sorted(problems)} if problems else problems

    def _receipt(self, accepted: int, duplicates: int, problems: _Problems, parsed: Parsed) -> Receipt:
        if not problems:
            return Receipt(accepted, duplicates)
        most = self._settings.errors
        shown = tuple(islice(_refusals(problems, parsed), most))
        return Receipt(accepted, duplicates, len(problems), shown, sum(map(len, problems.values())))

    # Admitting -----------------------------------------------------------------

    def _admit(self, parsed: Parsed, problems: _Problems) -> tuple[int, int]:
        """Put good events that are new where `commit` finds them, and count them and the duplicates.

        All that may fail comes first: a request that fails leaves nothing behind.
        """
        good = [n for n in range(len(parsed.events)) if n not in problems]
        ids, records = self._dressed(parsed, good)
        places = self._places(parsed, good)
        now = self._clock.monotonic()
        if any(id_ is not None for id_ in ids):
            seen = self._known(now)
            new = [id_ is None or seen.add(id_, now) for id_ in ids]
            records, places = list(compress(records, new)), list(compress(places, new))
        if len(self._batches) == 1:
            self._batches["0"] += records
        else:
            for place, record in zip(places, records, strict=True):
                self._batches[place].append(record)
        return len(records), len(good) - len(records)

    def _places(self, parsed: Parsed, good: Sequence[int]) -> list[str]:
        """The partition of each; nothing where there is but one."""
        if len(self._batches) == 1:
            return []
        return [self._intake.place(parsed.events[n]) for n in good]

    def _dressed(self, parsed: Parsed, good: Sequence[int]) -> tuple[list[str | None], list[bytes]]:
        """Ids and records of events."""
        own, raws, events_ = self._intake.stamp(), parsed.raws, parsed.events
        ids: list[str | None] = [events_[n].get("_id") for n in good]
        if parsed.envelopes is None:
            if parsed.lines is not None and not own:  # a line that needs nothing in front is a record as it is
                return ids, [raws[n] for n in good]
            return ids, [dressed(raws[n], events_[n], None, own) for n in good]
        records = []
        for at, n in enumerate(good):
            outer = parsed.envelopes[n]
            if ids[at] is None:
                ids[at] = outer.id
            # A stream whose events have a time of their own needs no other.
            front = stamp(outer.time) if own and outer.time is not None else own
            records.append(dressed(raws[n], events_[n], outer.id, front))
        return ids, records

    def _known(self, now: float) -> Seen:
        """The ids that came lately; after a start those that the log has."""
        if self._seen is None:
            most, age_s = self._settings.remembered_ids, self._settings.remembered_s
            seen = Seen(most, age_s)
            for id_ in recent_ids(self._log, self.stream.name, most, age_s, self._clock.now()):
                seen.add(id_, now)
            self._seen = seen
        self._seen.expire(now)
        return self._seen


def _refusals(problems: _Problems, parsed: Parsed) -> Iterator[Refusal]:
    for n, found in problems.items():
        line = None if parsed.lines is None else parsed.lines[n]
        for each in found:
            yield Refusal(n, each.path, each.message, line)
