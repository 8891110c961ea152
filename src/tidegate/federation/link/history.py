"""What was put out before a mirror began, asked of its origin, a page at a time.

A place in history is a cursor like any other, of a generation that begins with `@`, so that whoever holds one
may come back with it:

    ["@", {}]                               the beginning
    ["@", {"@": 1767225600000000}]          a moment
    ["@1f2e3d4c", {"0": 4097}, {"0": 4096}] behind what is at offset 4096 of the origin's stream: read from there on
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from tidegate.errors import CursorError, FederationError, LogError
from tidegate.federation.link.forwarder import Supply, reaches
from tidegate.federation.link.records import arrived, dressed, place_of
from tidegate.federation.link.signing import Verifier
from tidegate.federation.routes import may_match
from tidegate.filters import Filter
from tidegate.logs import Cursor, EventLog, Read
from tidegate.logs.lost import JOINT, Lost, is_gap, read_note

SIGN = "@"
"""What the generation of a place in history begins with: no log gives such a one."""
MAX_PAGE_RECORDS = 1_000
"""Records that are looked at for one page."""
MAX_PAGE_BYTES = 4 * 1024 * 1024
"""Of what is looked at for one page, if it is more than one record."""

BEGINNING = Cursor(SIGN, {})


def at_moment(micros: int) -> Cursor:
    """The place of a moment."""
    return Cursor(SIGN, {SIGN: micros})


def is_past(cursor: Cursor | None) -> bool:
    """Whether a cursor is a place in history.

    >>> is_past(BEGINNING), is_past(Cursor("1f", {"0": 7}))
    (True, False)
    """
    return cursor is not None and cursor.generation.startswith(SIGN)


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Some of what was put out in the past."""

    records: Sequence[bytes]
    """As mirrors hold them."""
    start: Cursor
    end: Cursor
    """Places in history."""
    until: Cursor | None
    """Where what the mirror has begins, at the origin; None: there is no stream yet."""
    is_last: bool
    lost: Sequence[Lost] = ()
    """What should be before these, and is not there any more."""


def begin(log: EventLog, stream: str, place: Cursor) -> tuple[Cursor, bool]:
    """Where to read from in the origin's stream for a place in history, and whether it is there.

    It is not where the stream was made anew: then from the beginning.
    """
    if place.generation == SIGN:
        moment = place.offsets.get(SIGN)
        return (log.begin(stream) if moment is None else log.since(stream, moment)), True
    marks = {partition: mark for partition, mark in place.marks.items() if isinstance(mark, int)}
    found = Cursor(place.generation.removeprefix(SIGN), {**place.offsets, **marks})
    try:
        log.read(stream, found, 1)
    except CursorError:
        return log.begin(stream), False
    return found, True


def read_page(
    log: EventLog,
    supply: Supply,
    wanted: Filter | None,
    place: Cursor,
    until: Cursor | None,
    sign: Callable[[Sequence[bytes]], Sequence[bytes]] = lambda records: records,
) -> HistoryPage:
    """Read a page at the origin, from a place on, as a neighbour sees it; `sign` signs its records."""
    if until is None:
        return HistoryPage([], place, place, None, is_last=True)
    at, is_there = begin(log, supply.stream, place)
    generation = SIGN + at.generation
    seen = place.offsets if place.generation == generation else {}
    read = _read_some(log, supply.stream, at)
    source = f"{supply.service}/{at.generation}"
    lost = [Lost(f"{source}/{each.partition}", each.missed_from, each.resumed_at) for each in read.gaps]
    if not is_there:
        lost = [Lost(f"{source}/{partition}", 0, offset) for partition, offset in at.offsets.items()]
    if until.generation != at.generation:  # it was made anew just now: what the mirror has begins with that
        return HistoryPage([], place, place, until, is_last=True, lost=lost)
    records = []
    for record, (partition, offset) in zip(read.records, read.places, strict=True):
        if seen.get(partition, 0) <= offset < until.offsets.get(partition, 0):
            event = orjson.loads(record)
            shown = {name: value for name, value in event.items() if name not in supply.hidden}
            if wanted is None or may_match(wanted, shown):
                at_origin = f"{source}/{partition}:{offset}"
                records.append(dressed(record, event, at_origin, supply.hidden, supply.ids))
    start = place if place.generation == generation else Cursor(generation, at.offsets)
    is_last = not read.records or reaches(read.cursor, until)
    return HistoryPage(sign(records), start, Cursor(generation, read.cursor.offsets), until, is_last, lost)


def _read_some(log: EventLog, stream: str, at: Cursor) -> Read:
    """Read what makes one page: fewer records where they are large."""
    count = MAX_PAGE_RECORDS
    read = log.read(stream, at, count)
    while len(read.records) > 1 and sum(map(len, read.records)) > MAX_PAGE_BYTES:
        count = max(1, min(count, len(read.records)) // 2)
        read = log.read(stream, at, count)
    return read


def read_answer(head: Mapping[str, Any], records: Sequence[bytes], service: str) -> HistoryPage:
    """Read a page that a neighbour has sent; what is in it is yet to be checked."""
    try:
        start, end = Cursor.from_text(head["start"]), Cursor.from_text(head["cursor"])
        until = None if head["until"] is None else Cursor.from_text(head["until"])
        is_last = bool(head["last"])
    except (KeyError, TypeError, ValueError, AttributeError, CursorError) as exc:
        raise FederationError(f"expected a page of history of {service!r}, not {head!r:.120}: {exc!r}") from exc
    lost = [read_note(each) for each in records if is_gap(each)]
    return HistoryPage([each for each in records if not is_gap(each)], start, end, until, is_last, lost)


def checked(page: HistoryPage, service: str, place: Cursor, verifier: Verifier | None) -> tuple[HistoryPage, int]:
    """Return a page that a neighbour has sent without what can't belong to it, and how many records that were.

    Its records must be those of the service, each behind the one before it of the same partition, none before the place
    that was asked for, and signed where keys of the origin are pinned. A gap stands for what is left out.
    """
    if len(page.records) > MAX_PAGE_RECORDS:
        raise FederationError(
            f"expected a page of at most {MAX_PAGE_RECORDS:,} records of {service!r}, not {len(page.records):,}"
        )
    marks = dict(place.offsets) if place.generation == page.end.generation else {}
    generation = page.end.generation.removeprefix(SIGN)
    records, lost = [], list(page.lost)
    for record in page.records:
        source, partition, offset = arrived(record, service)
        is_next = source.split("/")[1] == generation and offset >= marks.get(partition, 0)
        if is_next and (verifier is None or verifier.signed_at(record) is not None):
            marks[partition] = offset + 1
            records.append(record)
        else:
            lost.append(Lost(source, offset, offset + 1))
    if len(records) == len(page.records):
        return page, 0
    return replace(page, records=records, lost=lost), len(page.records) - len(records)


def filtered(page: HistoryPage, wanted: Filter) -> HistoryPage:
    """Return a page with what a filter matches, which its sender could not be told."""
    return replace(page, records=[each for each in page.records if may_match(wanted, orjson.loads(each))])


def behind(page: HistoryPage, records: int) -> list[Cursor]:
    """The places in history behind each of the first few records of a page."""
    offsets, marks = dict(page.start.offsets), dict(page.start.marks)
    found = []
    for record in page.records[:records]:
        _, partition, offset = place_of(record)
        offsets[partition], marks[partition] = offset + 1, offset
        found.append(Cursor(page.end.generation, dict(offsets), dict(marks)))
    return found


def mirrored(log: EventLog, mirror: str, since: Cursor | None, until: Cursor | None) -> Cursor | None:
    """The place in a mirror, from `since` on, where what is at `until` at its origin, or behind it, begins."""
    try:
        at = since if since is not None else log.begin(mirror)
        if until is None:
            return at
        offsets = dict(at.offsets)
        beyond: set[str] = set()
        while (read := log.read(mirror, at, MAX_PAGE_RECORDS)).records:
            for record, (partition, offset) in zip(read.records, read.places, strict=True):
                if partition not in beyond and record != JOINT:
                    offsets[partition] = offset
                    source, part, at_origin = place_of(record)
                    is_anew = source.split("/")[1] != until.generation
                    if is_anew or at_origin >= until.offsets.get(part, 0):
                        beyond.add(partition)
            at = read.cursor
            offsets.update((each, to) for each, to in at.offsets.items() if each not in beyond)
        return Cursor(at.generation, offsets)
    except LogError:
        return None
