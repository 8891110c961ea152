"""History of other brokers' services: the events before the beginning of a mirror, read from the origin in pages.

A position in history is a cursor whose generation starts with `@`, so a subscriber can resume from it:

    ["@", {}]                               the beginning
    ["@", {"@": 1767225600000000}]          a time, in microseconds since 1970
    ["@1f2e3d4c", {"0": 4097}, {"0": 4096}] after the record at offset 4096 of the origin's stream; read from 4096 on
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from tidegate.errors import CursorError, FederationError, StreamNotFound
from tidegate.federation.link.forwarder import Supply, reaches
from tidegate.federation.link.records import check_received, origin_position, with_metadata
from tidegate.federation.link.signing import Verifier
from tidegate.federation.routes import may_match
from tidegate.filters import Filter
from tidegate.logs import Cursor, EventLog, Read
from tidegate.logs.gap_records import SYNC_RECORD, GapRecord, is_gap_record, parse_gap_record

SIGN = "@"
"""The first character of the generation of a position in history. No generation of a log starts with it."""
MAX_PAGE_RECORDS = 1_000
"""Records that are read for one page."""
MAX_PAGE_BYTES = 4 * 1024 * 1024
"""Bytes that are read for one page, unless a single record is larger."""

BEGINNING = Cursor(SIGN, {})


def at_moment(micros: int) -> Cursor:
    """Return the position in history of a time."""
    return Cursor(SIGN, {SIGN: micros})


def is_past(cursor: Cursor | None) -> bool:
    """True if a cursor is a position in history.

    >>> is_past(BEGINNING), is_past(Cursor("1f", {"0": 7}))
    (True, False)
    """
    return cursor is not None and cursor.generation.startswith(SIGN)


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A part of a service's history."""

    records: Sequence[bytes]
    """Events with their position at the origin, as mirrors hold them."""
    start: Cursor
    end: Cursor
    """Positions in history: the page is from `start` up to `end`."""
    until: Cursor | None
    """The cursor at the origin where history ends and forwarded events begin. None: there is no stream yet."""
    is_last: bool
    lost: Sequence[GapRecord] = ()
    """Gaps: events that have expired or were refused."""


def begin(log: EventLog, stream: str, place: Cursor) -> tuple[Cursor, bool]:
    """Return the cursor in the origin's stream for a position in history, and whether that position still exists.

    If the stream was deleted and created again, the position does not exist, and the cursor is its beginning.
    """
    if place.generation == SIGN:
        moment = place.offsets.get(SIGN)
        return (log.begin(stream) if moment is None else log.since(stream, moment)), True
    marks = {partition: mark for partition, mark in place.marks.items() if isinstance(mark, int)}
    cursor = Cursor(place.generation.removeprefix(SIGN), {**place.offsets, **marks})
    try:
        log.read(stream, cursor, 1)
    except CursorError:
        return log.begin(stream), False
    return cursor, True


def read_page(
    log: EventLog,
    supply: Supply,
    wanted: Filter | None,
    place: Cursor,
    until: Cursor | None,
    sign: Callable[[Sequence[bytes]], Sequence[bytes]] = lambda records: records,
) -> HistoryPage:
    """Read a page at the origin, from a position on, as a neighbour sees it. Reads the log: call it in a thread.

    `until` is where history ends; None: the stream does not exist yet, and the page is empty. `sign` signs the records.
    """
    if until is None:
        return HistoryPage([], place, place, None, is_last=True)
    at, exists = begin(log, supply.stream, place)
    generation = SIGN + at.generation
    seen = place.offsets if place.generation == generation else {}
    read = _read_some(log, supply.stream, at)
    source = f"{supply.service}/{at.generation}"
    lost = [GapRecord(f"{source}/{gap.partition}", gap.missed_from, gap.resumed_at) for gap in read.gaps]
    if not exists:
        lost = [GapRecord(f"{source}/{partition}", 0, offset) for partition, offset in at.offsets.items()]
    if until.generation != at.generation:  # the stream was just created again, and the mirror has all of it
        return HistoryPage([], place, place, until, is_last=True, lost=lost)
    records = []
    for record, (partition, offset) in zip(read.records, read.places, strict=True):
        if seen.get(partition, 0) <= offset < until.offsets.get(partition, 0):
            event = orjson.loads(record)
            shown = {name: value for name, value in event.items() if name not in supply.hidden}
            if wanted is None or may_match(wanted, shown):
                at_origin = f"{source}/{partition}:{offset}"
                records.append(with_metadata(record, event, at_origin, supply.hidden, supply.ids))
    start = place if place.generation == generation else Cursor(generation, at.offsets)
    is_last = not read.records or reaches(read.cursor, until)
    return HistoryPage(sign(records), start, Cursor(generation, read.cursor.offsets), until, is_last, lost)


def _read_some(log: EventLog, stream: str, at: Cursor) -> Read:
    """Read the records of one page: fewer if they are large."""
    count = MAX_PAGE_RECORDS
    read = log.read(stream, at, count)
    while len(read.records) > 1 and sum(map(len, read.records)) > MAX_PAGE_BYTES:
        count = max(1, min(count, len(read.records)) // 2)
        read = log.read(stream, at, count)
    return read


def read_answer(head: Mapping[str, Any], records: Sequence[bytes], service: str) -> HistoryPage:
    """Parse a page that a neighbour has sent. Its records are not checked yet: see `checked`."""
    try:
        start, end = Cursor.from_text(head["start"]), Cursor.from_text(head["cursor"])
        until = None if head["until"] is None else Cursor.from_text(head["until"])
        is_last = bool(head["last"])
    except (KeyError, TypeError, ValueError, AttributeError, CursorError) as exc:
        raise FederationError(f"expected a page of history of {service!r}, not {head!r:.120}: {exc!r}") from exc
    lost = [parse_gap_record(record) for record in records if is_gap_record(record)]
    return HistoryPage([record for record in records if not is_gap_record(record)], start, end, until, is_last, lost)


def checked(page: HistoryPage, service: str, place: Cursor, verifier: Verifier | None) -> tuple[HistoryPage, int]:
    """Remove the records of a neighbour's page that do not belong to it. Returns the page and how many there were.

    A record belongs to the page if it is of the right generation, follows the record before it in its partition and the
    requested position, and is signed if keys of the origin are pinned. Removed records are replaced by gaps. Raises a
    `FederationError` if a record is malformed or there are too many.
    """
    if len(page.records) > MAX_PAGE_RECORDS:
        raise FederationError(
            f"expected a page of at most {MAX_PAGE_RECORDS:,} records of {service!r}, not {len(page.records):,}"
        )
    marks = dict(place.offsets) if place.generation == page.end.generation else {}
    generation = page.end.generation.removeprefix(SIGN)
    records, lost = [], list(page.lost)
    for record in page.records:
        source, partition, offset = check_received(record, service)
        is_next = source.split("/")[1] == generation and offset >= marks.get(partition, 0)
        if is_next and (verifier is None or verifier.signed_at(record) is not None):
            marks[partition] = offset + 1
            records.append(record)
        else:
            lost.append(GapRecord(source, offset, offset + 1))
    if len(records) == len(page.records):
        return page, 0
    return replace(page, records=records, lost=lost), len(page.records) - len(records)


def filtered(page: HistoryPage, filter_: Filter) -> HistoryPage:
    """Return a page with only the records that match a filter, which was too long to be sent."""
    return replace(page, records=[record for record in page.records if may_match(filter_, orjson.loads(record))])


def cursors_after(page: HistoryPage, records: int) -> list[Cursor]:
    """Return the position in history after each of the first records of a page."""
    offsets, marks = dict(page.start.offsets), dict(page.start.marks)
    cursors = []
    for record in page.records[:records]:
        _, partition, offset = origin_position(record)
        offsets[partition], marks[partition] = offset + 1, offset
        cursors.append(Cursor(page.end.generation, dict(offsets), dict(marks)))
    return cursors


def mirrored(log: EventLog, mirror: str, since: Cursor | None, until: Cursor | None) -> Cursor | None:
    """Return the cursor of a mirror, from `since` on, where the records at or after `until` at the origin begin.

    None if the mirror does not exist. Reads the log: call it in a thread. Raises `LogUnreachable`.
    """
    try:
        at = since if since is not None else log.begin(mirror)
        if until is None:
            return at
        offsets = dict(at.offsets)
        beyond: set[str] = set()
        while (read := log.read(mirror, at, MAX_PAGE_RECORDS)).records:
            for record, (partition, offset) in zip(read.records, read.places, strict=True):
                if partition not in beyond and record != SYNC_RECORD:
                    offsets[partition] = offset
                    source, part, origin_offset = origin_position(record)
                    is_new_generation = source.split("/")[1] != until.generation
                    if is_new_generation or origin_offset >= until.offsets.get(part, 0):
                        beyond.add(partition)
            at = read.cursor
            offsets.update((partition, to) for partition, to in at.offsets.items() if partition not in beyond)
        return Cursor(at.generation, offsets)
    except (StreamNotFound, CursorError):
        return None
