"""The default engine: immutable segments of interval bitsets, and a small delta.

New filters go to the delta, which is scanned; when it is full it becomes a
segment, together with the segments that are no larger. A removed filter leaves
its bits behind and is masked out until its segment is built anew. All of it is
one immutable snapshot: a change makes a new one and swaps it in, so a reader
takes no lock and sees all of a change or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tidegate.filters.normalize import Conjunct
from tidegate.matching import kernels
from tidegate.matching.events import Events
from tidegate.matching.index import Entry, Found
from tidegate.matching.scan import ordered, scan
from tidegate.matching.segment import Segment

DELTA = 128
"""Filters that are scanned before they become a segment: a scan costs about a
microsecond a filter for one event."""


SCANNED = 20_000
"""Pairs of event and filter in the delta that are scanned; beyond, indexing the delta pays."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A segment and whose rows it has."""

    segment: Segment
    entries: Mapping[int, Entry]
    number: Any
    """For each row the number of its entry."""
    exact: Any
    """For each row whether its value sets say all: nothing is left to verify."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """All that a reader sees."""

    parts: tuple[_Part, ...] = ()
    delta: Mapping[int, Entry] = field(default_factory=dict)
    changed: Mapping[int, Entry] = field(default_factory=dict)
    """Entries of the parts whose owners have changed."""
    dead: frozenset[int] = frozenset()
    """Entries of the parts that were dropped."""
    made: dict[str, _Part] = field(default_factory=dict)
    """The delta as a part, once a large batch has asked for it."""

    def delta_part(self) -> _Part:
        """The delta as a part; made once, whichever reader comes first."""
        part = self.made.get("delta")
        if part is None:
            part = self.made["delta"] = _part(dict(self.delta))
        return part

    def entry(self, number: int) -> Entry:
        """What stands under a number."""
        found = self.delta.get(number) or self.changed.get(number)
        return found or next(part.entries[number] for part in self.parts if number in part.entries)

    def entries(self) -> dict[int, Entry]:
        """Everything that is alive."""
        found = dict(self.delta)
        for part in self.parts:
            found.update(part.entries)
        found.update(self.changed)
        return {number: entry for number, entry in found.items() if number not in self.dead}


class ColumnarIndex:
    """Matches whole batches against all filters at once."""

    def __init__(self) -> None:
        kernels.warm_up()
        self._now = _Snapshot()

    def apply(self, put: Mapping[int, Entry], drop: Iterable[int] = ()) -> None:
        """Put and drop entries in one step."""
        now = self._now
        gone = set(drop)
        indexed = {n for n in (*put, *gone) if any(n in part.entries for part in now.parts)}
        delta = {**now.delta, **{n: entry for n, entry in put.items() if n not in indexed}}
        delta = {n: entry for n, entry in delta.items() if n not in gone}
        changed = {**now.changed, **{n: entry for n, entry in put.items() if n in indexed}}
        dead = now.dead | (gone & indexed) if gone & indexed else now.dead
        self._now = _tidied(_Snapshot(now.parts, delta, changed, dead))

    def match(self, events: Events) -> Found:
        """Give the pairs (event index, number), ordered by event."""
        now = self._now
        parts = now.parts
        if events.size * len(now.delta) > SCANNED:
            parts, pieces = (*parts, now.delta_part()), []
        else:
            pieces = scan(now.delta, events)
        for part in parts:
            pieces += _match_part(part, events)
        event, number = ordered(pieces)
        if now.dead and len(number):
            alive = ~np.isin(number, np.fromiter(now.dead, np.int64, len(now.dead)))
            event, number = event[alive], number[alive]
        return event, number, now.entry

    def describe(self) -> dict[str, Any]:
        """Report shape and memory."""
        now = self._now
        return {
            "engine": "columnar",
            "filters": len(now.delta) + sum(len(part.entries) for part in now.parts) - len(now.dead),
            "delta": len(now.delta),
            "removed": len(now.dead),
            "segments": [
                {
                    "filters": len(part.entries),
                    "rows": part.segment.rows,
                    "exact": int(part.exact.sum()),
                    "attributes": len(part.segment.attributes),
                    "bytes": part.segment.nbytes,
                }
                for part in now.parts
            ],
        }

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self._now.entries(),)


def _rebuild(entries: dict[int, Entry]) -> ColumnarIndex:
    made = ColumnarIndex()
    made._now = _Snapshot((_part(entries),) if entries else ())
    return made


def _tidied(now: _Snapshot) -> _Snapshot:
    """Give the same entries, with what has piled up put in its place."""
    if len(now.changed) > DELTA:
        parts = [replace(part, entries=_updated(part.entries, now.changed)) for part in now.parts]
        now = replace(now, parts=tuple(parts), changed={})
    indexed = sum(len(part.entries) for part in now.parts)
    if len(now.dead) > DELTA and len(now.dead) * 4 > indexed:
        return _compacted(now, everything=True)
    return _compacted(now) if len(now.delta) > DELTA else now


def _updated(entries: Mapping[int, Entry], changed: Mapping[int, Entry]) -> Mapping[int, Entry]:
    return {**entries, **{number: entry for number, entry in changed.items() if number in entries}}


def _compacted(now: _Snapshot, everything: bool = False) -> _Snapshot:
    """Turn the delta, and all parts that are not larger than what is gathered, into one part."""
    gathered = dict(now.delta)
    kept = []
    for part in sorted(now.parts, key=lambda part: len(part.entries)):
        if everything or len(part.entries) <= 2 * len(gathered):
            gathered.update(_updated(part.entries, now.changed))
        else:
            kept.append(part)
    alive = {number: entry for number, entry in gathered.items() if number not in now.dead}
    changed = {number: entry for number, entry in now.changed.items() if number not in gathered}
    return _Snapshot((*kept, _part(alive)) if alive else tuple(kept), {}, changed, now.dead - gathered.keys())


def _part(entries: dict[int, Entry]) -> _Part:
    conjuncts: list[Conjunct] = []
    number: list[int] = []
    for n, entry in entries.items():
        for conjunct in entry.filter.normal.conjuncts:
            conjuncts.append(conjunct)
            number.append(n)
    exact = np.fromiter(map(_is_exact, conjuncts), dtype=bool, count=len(conjuncts))
    return _Part(Segment(conjuncts), entries, np.array(number, np.int64), exact)


def _is_exact(conjunct: Conjunct) -> bool:
    return not conjunct.rest and not any(values.tests for values in conjunct.exact.values())


def _match_part(part: _Part, events: Events) -> list[tuple[Any, Any]]:
    segment = part.segment
    shape = (max(1, len(segment.attributes)), events.size)
    at, begin, end = (np.zeros(shape, np.int64) for _ in range(3))
    odd = np.zeros(events.size, dtype=bool)
    for j, attribute in enumerate(segment.attributes):
        at[j], begin[j], end[j], unsure = events.slots(attribute)
        odd |= unsure
    if not segment.attributes:  # filters that match everything or compare fields only
        at, begin, end = (each[:0] for each in (at, begin, end))
    offsets, rows = segment.candidates(at, begin, end)
    event = np.repeat(np.arange(events.size), np.diff(offsets))
    if odd.any():  # values that no column can hold: what the index says of them does not count
        event, rows = event[~odd[event]], rows[~odd[event]]
    exact = part.exact[rows]
    pieces = [(event[exact], part.number[rows[exact]])]
    pieces += _verified(part, events, event[~exact], part.number[rows[~exact]])
    if odd.any():
        pieces += scan(part.entries, events, np.flatnonzero(odd))
    return pieces


def _verified(part: _Part, events: Events, event: Any, number: Any) -> list[tuple[Any, Any]]:
    """Ask the filters themselves about the candidates that their value sets leave open."""
    pieces = []
    order = np.argsort(number, kind="stable")
    event, number = event[order], number[order]
    wanted, first = np.unique(number, return_index=True)
    for n, begin, end in zip(wanted, first, np.append(first[1:], len(number)), strict=False):
        chosen = np.unique(event[begin:end])
        matching = chosen[events.mask(part.entries[int(n)].filter, chosen)]
        pieces.append((matching, np.full(len(matching), n, np.int64)))
    return pieces
