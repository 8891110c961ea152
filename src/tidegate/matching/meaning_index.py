"""The index of filters with ~: matches whole batches, and asks for each word's relatedness once.

    a batch ──tuples.py──▶ distinct tuples ──meaning_rows.py──▶ rows ──kernel──▶ conjuncts that are reached
                                                                                       │ rest of each
                                                                                       ▼ alternative, vectorised
                                                                               events and filters

The first match after a change indexes new filters, in a group beside the existing ones. `meaning_scan` is the slow
oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock, Thread
from typing import Any, NamedTuple

import numpy as np

from tidegate.filters.by_meaning import ByMeaning
from tidegate.filters.meaning import Meaning
from tidegate.filters.nodes import EVERYTHING
from tidegate.filters.thematic import Meant, Rivals
from tidegate.matching import meaning_kernels
from tidegate.matching.events import EventBatch
from tidegate.matching.index import IndexEntry, LazySnapshots, Owners, distinct, expand_owners, objects, owner_columns
from tidegate.matching.meaning_plan import MeaningPlan, Theme, plan_of
from tidegate.matching.meaning_rows import TupleCache, TupleRows
from tidegate.matching.meaning_scan import rivals_of, with_rivals
from tidegate.matching.result import Matches, pair_keys, split_keys
from tidegate.matching.tuples import TupleColumn
from tidegate.model.schema import Schema


class SemanticMatches(NamedTuple):
    """(event, filter number, degree) triples as arrays, ordered by event."""

    event: Any
    number: Any
    degree: Any
    """NaN: the filter itself must compute the degree."""


@dataclass(frozen=True, slots=True)
class MeaningPart:
    """Filters of one schema and one `Meaning`, which read events in the same way."""

    plan: MeaningPlan
    memory: TupleCache
    schema: Schema | None
    meaning: Meaning

    def match(self, events: EventBatch) -> SemanticMatches:
        """Return the matches of a batch."""
        plan = self.plan
        columns = events.tuples(self.schema, plan.numbers)
        event, conjunct, degree = self._reached_conjuncts(self.memory.rows(columns, events.themes()), events.size)
        if plan.lone:
            events = events.extended(self._lone_degrees(columns, events.size, event, conjunct, degree))
        counts = np.diff(plan.alternative_start)[conjunct]
        ends = np.append(0, np.cumsum(counts))
        place = np.repeat(plan.alternative_start[conjunct] - ends[:-1], counts) + np.arange(ends[-1])
        event, degree = np.repeat(event, counts), np.repeat(degree, counts)
        alternative = plan.alternative_of[place]
        if (plan.rest[alternative] >= 0).any():
            holding = self._holding(events, event, alternative)
            event, alternative, degree = event[holding], alternative[holding], degree[holding]
        matches = SemanticMatches(event, plan.number[alternative], degree)
        return self._deduplicate(matches, self._match_without_semantics(events))

    def _reached_conjuncts(self, rows: TupleRows, size: int) -> tuple[Any, Any, Any]:
        """Return (event, conjunct, degree) of the conjuncts that events reach."""
        plan = self.plan
        if not plan.conjuncts or not rows.of_events.size:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        table = np.empty((len(plan.bound), rows.of_events.shape[1]))
        room = max(4 * size, 2 * plan.conjuncts)
        pieces, begin = [], 0
        while begin < size:
            out = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
            begin, count = meaning_kernels.match(
                *(rows.of_events, begin, rows.start, rows.end, rows.predicate, rows.similarity),
                *(rows.listing.start, rows.listing.conjunct, plan.conjunct_start, rows.listing.predicate, plan.need),
                *(table, *out),
            )
            pieces.append(tuple(arrays[:count] for arrays in out))
            room *= 2
        event, conjunct, degree = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
        return event, conjunct, degree

    def _lone_degrees(
        self, columns: list[TupleColumn], size: int, event: Any, conjunct: Any, degree: Any
    ) -> dict[str, tuple[Any, Any]]:
        """Return the degrees of predicates that are evaluated alone, and for which events they are known."""
        there = {column.attribute: column.codes != -1 for column in columns}
        degrees = {}
        for name, number in self.plan.lone.items():
            values, of_it = np.zeros(size), conjunct == number
            values[event[of_it]] = degree[of_it]
            hard = self.plan.hard.get(name)
            known = np.ones(size, bool) if hard is None else there.get(hard, np.zeros(size, bool))
            degrees[name] = values, known
        return degrees

    def _holding(self, events: EventBatch, event: Any, alternative: Any) -> Any:
        """Return which (event, alternative) pairs satisfy the rest of the alternative."""
        rest = self.plan.rest[alternative]
        holding = rest < 0
        order = np.argsort(rest, kind="stable")
        several, begins = np.unique(rest[order], return_index=True)
        for number, pairs in zip(several.tolist(), np.split(order, begins[1:]), strict=True):
            if number >= 0:
                holding[pairs] = events.holds(self.plan.rests[number], event[pairs])
        return holding

    def _match_without_semantics(self, events: EventBatch) -> list[SemanticMatches]:
        """Return the matches of alternatives without predicates with ~."""
        plan, matches = self.plan, []
        for alternative in self.plan.free:
            left = plan.rest[alternative]
            event = np.flatnonzero(events.holds(plan.rests[left] if left >= 0 else EVERYTHING))
            matches.append(SemanticMatches(event, np.full(len(event), plan.number[alternative]), np.ones(len(event))))
        return matches

    def _deduplicate(self, matches: SemanticMatches, others: list[SemanticMatches]) -> SemanticMatches:
        """Return each (event, filter) pair once, with the degree of its best alternative."""
        plan = self.plan
        if plan.graded:
            matches, *others = (
                SemanticMatches(e, n, np.where(np.isin(n, list(plan.graded)), np.nan, d))
                for e, n, d in (matches, *others)
            )
        if not others and not plan.repeated:
            return matches
        event, number, degree = (np.concatenate(arrays) for arrays in zip(matches, *others, strict=True))
        key = pair_keys(event, number)
        order = np.argsort(key, kind="stable")
        once, begins = np.unique(key[order], return_index=True)
        best = np.maximum.reduceat(degree[order], begins) if len(order) else degree
        return SemanticMatches(*split_keys(once), best)


@dataclass(frozen=True, slots=True, eq=False)
class MeaningGroup:
    """Filters that were indexed together."""

    entries: Mapping[int, IndexEntry]
    parts: tuple[MeaningPart, ...]

    @classmethod
    def of(cls, entries: Mapping[int, IndexEntry], rivals: Mapping[Theme, Rivals], lock: Lock) -> MeaningGroup:
        """Index filters, grouped by schema and meaning."""
        by_reading: dict[tuple[Schema | None, Meaning], dict[int, IndexEntry]] = {}
        for number, entry in entries.items():
            by_reading.setdefault((entry.filter.schema, _meaning_of(entry)), {})[number] = entry
        parts = []
        for (schema, meaning), several in by_reading.items():
            plan = plan_of(several, rivals if meaning.semantics.rivalry else {})
            parts.append(MeaningPart(plan, TupleCache(plan, meaning, lock), schema, meaning))
        return cls(entries, tuple(parts))

    def warm_from(self, others: Iterable[MeaningGroup]) -> None:
        """Compute the rows of all tuples that other groups have met."""
        for part in self.parts:
            for other in (part for group in others for part in group.parts):
                if (other.schema, other.meaning) == (part.schema, part.meaning):
                    part.memory.warm_from(other.memory)


def _meaning_of(entry: IndexEntry) -> Meaning:
    assert entry.filter.meaning is not None
    return entry.filter.meaning


@dataclass(frozen=True, slots=True)
class MeaningSnapshot:
    """All filters at one time, indexed."""

    entries: Mapping[int, IndexEntry]
    groups: tuple[MeaningGroup, ...]
    gone: Any
    """Numbers of filters that groups contain but that were removed."""
    rivals: Mapping[Theme, Rivals] | None
    """None: predicates do not compete."""

    def by(self, number: int) -> ByMeaning:
        """Return the evaluator of one filter for single events."""
        entry = self.entries[number]
        return entry.filter.by_meaning if self.rivals is None else with_rivals(entry, self.rivals)

    def match(self, events: EventBatch) -> SemanticMatches:
        """Return the matches of a batch."""
        matches = [part.match(events) for group in self.groups for part in group.parts]
        if len(matches) == 1 and not len(self.gone):
            return matches[0]
        event, number, degree = (np.concatenate(arrays) for arrays in zip(_NOTHING, *matches, strict=True))
        order = np.argsort(event, kind="stable")
        order = order[~np.isin(number[order], self.gone)]
        return SemanticMatches(event[order], number[order], degree[order])


_NOTHING = SemanticMatches(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))

MAX_INLINE_FILTERS = 256
"""Filters that the next match indexes itself; larger groups are joined in the background."""
MAX_GROUPS = 6
"""Number of groups above which some are joined."""


class MeaningIndex:
    """Matches whole batches against all filters with ~ at once.

    The next match indexes new filters, together with small groups; removed filters are masked out of the matches. If
    there are many groups, or many filters of one were removed, a background thread joins groups and computes the rows
    of all tuples met before, so that no match has to. If predicates compete, a change can change all degrees, so all
    filters are indexed again.
    """

    def __init__(self, entries: Mapping[int, IndexEntry] | None = None) -> None:
        meaning_kernels.warm_up()
        self._snapshots = LazySnapshots(_build_nothing, entries)
        self._lock = Lock()
        """Held while groups change."""
        self._semantics_lock = Lock()
        """Held while `Semantics` is asked, which need not be thread-safe."""
        self._groups: tuple[MeaningGroup, ...] = ()
        self._snapshot: MeaningSnapshot | None = None
        self._joining: Thread | None = None

    def apply(
        self, put: Mapping[int, IndexEntry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Add, remove and reassign entries in one step; the next match indexes them."""
        self._snapshots.apply(put, drop, owners)

    def _now(self) -> MeaningSnapshot:
        entries, _ = self._snapshots.now()
        snapshot = self._snapshot
        if snapshot is None or snapshot.entries is not entries or snapshot.groups is not self._groups:
            with self._lock:
                snapshot = self._snapshot = self._build(entries)
        return snapshot

    def _build(self, entries: Mapping[int, IndexEntry]) -> MeaningSnapshot:
        """Return all filters as groups; starts a background join if one is due. The caller holds the lock."""
        indexed = {number for group in self._groups for number in group.entries}
        new = {number: entries[number] for number in entries.keys() - indexed}
        new_meanings = [_meaning_of(entry) for entry in new.values()]
        if any(
            meaning.semantics.rivalry
            for meaning in (*new_meanings, *(p.meaning for g in self._groups for p in g.parts))
        ):
            rivals = rivals_of(entries)
            self._groups = (MeaningGroup.of(entries, rivals, self._semantics_lock),)
            return MeaningSnapshot(entries, self._groups, _NOTHING.number, rivals)
        if new:
            small, size = [], len(new)
            for group in sorted(self._groups, key=_size):
                if _size(group) <= 2 * size and size + _size(group) <= MAX_INLINE_FILTERS:
                    small.append(group)
                    size += _size(group)
            joined = {**_alive(small, entries), **new}
            self._groups = (*(group for group in self._groups if group not in small), self._group(joined))
        gone = np.array(sorted(indexed - entries.keys()), np.int64)
        if self._joining is None and (len(self._groups) > MAX_GROUPS or len(gone) > MAX_INLINE_FILTERS + len(entries)):
            self._join_in_background(entries, everything=len(self._groups) <= MAX_GROUPS)
        return MeaningSnapshot(entries, self._groups, gone, None)

    def _group(self, entries: Mapping[int, IndexEntry]) -> MeaningGroup:
        return MeaningGroup.of(entries, {}, self._semantics_lock)

    def _join_in_background(self, entries: Mapping[int, IndexEntry], everything: bool) -> None:
        """Join the smaller groups, and larger ones that are not much larger than all smaller ones together."""
        chosen: list[MeaningGroup] = []
        for group in sorted(self._groups, key=_size):
            if everything or len(chosen) < MAX_GROUPS // 2 or _size(group) <= 2 * sum(map(_size, chosen)):
                chosen.append(group)
        self._joining = Thread(target=self._join, args=(chosen, entries), name="tidegate-join-meaning", daemon=True)
        self._joining.start()

    def _join(self, chosen: Sequence[MeaningGroup], entries: Mapping[int, IndexEntry]) -> None:
        try:
            group = self._group(_alive(chosen, entries))
            group.warm_from(chosen)
            with self._lock:
                left = tuple(old for old in self._groups if old not in chosen)
                if len(left) + len(chosen) == len(self._groups):  # else a match has joined one of them with new filters
                    self._groups = (group, *left)
        finally:
            with self._lock:
                self._joining = None

    def match(self, events: EventBatch) -> Matches:
        """Return the matches of a batch."""
        snapshot = self._now()
        event, number, degree = snapshot.match(events)
        numbers, rows = distinct(number)

        def grades(row: int) -> Callable[[Any], Any]:
            by = snapshot.by(int(numbers[row]))
            return lambda chosen: np.array([by.degree(events.event(n)) for n in chosen.tolist()])

        owners = owner_columns(objects([snapshot.entries[n].owners for n in numbers.tolist()]))
        offsets = np.searchsorted(event, np.arange(events.size + 1))
        piece = expand_owners(offsets, rows, owners, numbers, grades, degree)
        return Matches(events.size, [piece], partial(_mappings, snapshot, events))

    def explain(self, number: int, events: EventBatch | None) -> dict[str, Any]:
        """Return how an entry is matched, and how many of some events it matches."""
        snapshot = self._now()
        parts = snapshot.entries[number].filter.by_meaning.parts
        explanation: dict[str, Any] = {"where": "by meaning", "alternatives": len(parts.alternatives)}
        if events is not None:
            matches = int((snapshot.match(events).number == number).sum())
            explanation |= {"candidates": events.size, "matches": matches}
        return explanation

    def settle(self) -> None:
        """Block until the background join has ended."""
        while (thread := self._joining) is not None:
            thread.join()

    def close(self) -> None:
        """Block until the background join has ended."""
        self.settle()

    def describe(self) -> dict[str, Any]:
        """Return sizes and memory."""
        snapshot = self._now()
        parts = [part for group in snapshot.groups for part in group.parts]
        sizes = [part.memory.size for part in parts]
        return {
            "engine": "meaning",
            "filters": len(snapshot.entries),
            "groups": len(snapshot.groups),
            "gone": len(snapshot.gone),
            "conjuncts": sum(part.plan.conjuncts for part in parts),
            "predicates": sum(len(part.plan.bound) for part in parts),
            "tuples": sum(rows for rows, _ in sizes),
            "similarities": sum(size for _, size in sizes),
        }

    def __reduce__(self) -> tuple[object, ...]:
        return MeaningIndex, (self._snapshots.now()[0],)


def _build_nothing(entries: Mapping[int, IndexEntry]) -> None:
    """Build nothing here: `MeaningIndex._build` reuses existing groups."""


def _size(group: MeaningGroup) -> int:
    return len(group.entries)


def _alive(groups: Iterable[MeaningGroup], entries: Mapping[int, IndexEntry]) -> dict[int, IndexEntry]:
    return {n: entry for group in groups for n, entry in group.entries.items() if n in entries}


def _mappings(snapshot: MeaningSnapshot, events: EventBatch, number: int, index: int, k: int) -> list[Meant]:
    """Return the best mappings of a filter to an event; empty if the filter has no ~."""
    return snapshot.by(number).mappings(events.event(index), k) if number in snapshot.entries else []
