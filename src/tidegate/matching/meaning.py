"""The index of filters with ~: whole batches at once, each word looked at once.

    a batch ──tuples.py──▶ distinct tuples ──meaning_rows.py──▶ rows ──kernel──▶ conjuncts that are reached
                                                                                       │ what is left of each
                                                                                       ▼ alternative, vectorised
                                                                               events and filters

What is new is indexed by the first match that comes, beside what was there. `meaning_scan` is the slow, obvious judge.
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
from tidegate.matching.events import Events
from tidegate.matching.index import Entry, Owners, Snapshots, distinct, names_of, objects, widened
from tidegate.matching.meaning_plan import Plan, Theme, plan_of
from tidegate.matching.meaning_rows import Memory, Rows
from tidegate.matching.meaning_scan import among, rivals_of
from tidegate.matching.result import Matches, keys, unkeyed
from tidegate.matching.tuples import TupleColumn
from tidegate.model.schema import Schema


class Found(NamedTuple):
    """Which events match which filters, by their numbers, and how well; by event."""

    event: Any
    number: Any
    degree: Any
    """NaN: the filter itself has to say."""


@dataclass(frozen=True, slots=True)
class Part:
    """Filters whose events are read alike."""

    plan: Plan
    memory: Memory
    schema: Schema | None
    meaning: Meaning

    def match(self, events: Events) -> Found:
        """Match a batch."""
        plan = self.plan
        columns = events.tuples(self.schema, plan.numbers)
        event, conjunct, degree = self._reached(self.memory.rows(columns, events.themes()), events.size)
        if plan.lone:
            events = events.extended(self._alone(columns, events.size, event, conjunct, degree))
        counts = np.diff(plan.alternative_start)[conjunct]
        ends = np.append(0, np.cumsum(counts))
        place = np.repeat(plan.alternative_start[conjunct] - ends[:-1], counts) + np.arange(ends[-1])
        event, degree = np.repeat(event, counts), np.repeat(degree, counts)
        alternative = plan.alternative_of[place]
        if (plan.rest[alternative] >= 0).any():
            kept = self._held(events, event, alternative)
            event, alternative, degree = event[kept], alternative[kept], degree[kept]
        found = Found(event, plan.number[alternative], degree)
        return self._settled(found, self._free(events))

    def _reached(self, rows: Rows, size: int) -> tuple[Any, Any, Any]:
        """The conjuncts that events reach."""
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
            pieces.append(tuple(each[:count] for each in out))
            room *= 2
        event, conjunct, degree = (np.concatenate(each) for each in zip(*pieces, strict=True))
        return event, conjunct, degree

    def _alone(
        self, columns: list[TupleColumn], size: int, event: Any, conjunct: Any, degree: Any
    ) -> dict[str, tuple[Any, Any]]:
        """The degrees of predicates that are judged alone, and of which events they are known."""
        there = {column.attribute: column.codes != -1 for column in columns}
        found = {}
        for name, number in self.plan.lone.items():
            values, of_it = np.zeros(size), conjunct == number
            values[event[of_it]] = degree[of_it]
            hard = self.plan.hard.get(name)
            known = np.ones(size, bool) if hard is None else there.get(hard, np.zeros(size, bool))
            found[name] = values, known
        return found

    def _held(self, events: Events, event: Any, alternative: Any) -> Any:
        """Which pairs of event and alternative hold in what is left of the alternative."""
        rest = self.plan.rest[alternative]
        kept = rest < 0
        order = np.argsort(rest, kind="stable")
        several, begins = np.unique(rest[order], return_index=True)
        for number, pairs in zip(several.tolist(), np.split(order, begins[1:]), strict=True):
            if number >= 0:
                kept[pairs] = events.holds(self.plan.rests[number], event[pairs])
        return kept

    def _free(self, events: Events) -> list[Found]:
        """The matches of alternatives that nothing is meant by."""
        plan, found = self.plan, []
        for alternative in self.plan.free:
            left = plan.rest[alternative]
            event = np.flatnonzero(events.holds(plan.rests[left] if left >= 0 else EVERYTHING))
            found.append(Found(event, np.full(len(event), plan.number[alternative]), np.ones(len(event))))
        return found

    def _settled(self, found: Found, others: list[Found]) -> Found:
        """Each pair once, with the degree of its best alternative."""
        plan = self.plan
        if plan.graded:
            found, *others = (
                Found(e, n, np.where(np.isin(n, list(plan.graded)), np.nan, d)) for e, n, d in (found, *others)
            )
        if not others and not plan.repeated:
            return found
        event, number, degree = (np.concatenate(each) for each in zip(found, *others, strict=True))
        key = keys(event, number)
        order = np.argsort(key, kind="stable")
        once, begins = np.unique(key[order], return_index=True)
        best = np.maximum.reduceat(degree[order], begins) if len(order) else degree
        return Found(*unkeyed(once), best)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Filters that were indexed together."""

    entries: Mapping[int, Entry]
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, entries: Mapping[int, Entry], rivals: Mapping[Theme, Rivals], lock: Lock) -> Group:
        """Index some filters, by how their events are read."""
        by_reading: dict[tuple[Schema | None, Meaning], dict[int, Entry]] = {}
        for number, entry in entries.items():
            by_reading.setdefault((entry.filter.schema, _meaning_of(entry)), {})[number] = entry
        parts = []
        for (schema, meaning), several in by_reading.items():
            plan = plan_of(several, rivals if meaning.semantics.rivalry else {})
            parts.append(Part(plan, Memory(plan, meaning, lock), schema, meaning))
        return cls(entries, tuple(parts))

    def look_at(self, others: Iterable[Group]) -> None:
        """Look at all that others have met."""
        for part in self.parts:
            for other in (each for group in others for each in group.parts):
                if (other.schema, other.meaning) == (part.schema, part.meaning):
                    part.memory.look_at(other.memory)


def _meaning_of(entry: Entry) -> Meaning:
    assert entry.filter.meaning is not None
    return entry.filter.meaning


@dataclass(frozen=True, slots=True)
class Made:
    """All filters of a moment, indexed."""

    entries: Mapping[int, Entry]
    groups: tuple[Group, ...]
    gone: Any
    """The numbers of filters that groups have, and that are no more."""
    rivals: Mapping[Theme, Rivals] | None
    """None: nothing competes."""

    def by(self, number: int) -> ByMeaning:
        """A filter, to be asked about one event."""
        entry = self.entries[number]
        return entry.filter.by_meaning if self.rivals is None else among(entry, self.rivals)

    def match(self, events: Events) -> Found:
        """Match a batch."""
        found = [part.match(events) for group in self.groups for part in group.parts]
        if len(found) == 1 and not len(self.gone):
            return found[0]
        event, number, degree = (np.concatenate(each) for each in zip(_NOTHING, *found, strict=True))
        order = np.argsort(event, kind="stable")
        order = order[~np.isin(number[order], self.gone)]
        return Found(event[order], number[order], degree[order])


_NOTHING = Found(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))

SMALL = 256
"""Filters that are indexed by whoever matches next; more are joined in the background."""
MANY = 6
"""Groups beyond which some are joined."""


class MeaningIndex:
    """Matches whole batches against all filters with ~ at once.

    What is new is indexed by the first match that comes, together with what came shortly before; what is dropped is
    left out of what is found. When there are many groups, or much of one is gone, a thread joins them, and looks at
    all words that were met before, so that no match has to. Where predicates compete, a change may change all that
    was found, and all filters are indexed anew.
    """

    def __init__(self, entries: Mapping[int, Entry] | None = None) -> None:
        meaning_kernels.warm_up()
        self._snapshots = Snapshots(_as_they_are, entries)
        self._lock = Lock()
        """Held by whoever changes groups."""
        self._asking = Lock()
        self._groups: tuple[Group, ...] = ()
        self._made: Made | None = None
        self._joining: Thread | None = None

    def apply(
        self, put: Mapping[int, Entry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Put and drop entries, and change the owners of others, in one step."""
        self._snapshots.apply(put, drop, owners)

    def _now(self) -> Made:
        entries, _ = self._snapshots.now()
        made = self._made
        if made is None or made.entries is not entries or made.groups is not self._groups:
            with self._lock:
                made = self._made = self._indexed(entries)
        return made

    def _indexed(self, entries: Mapping[int, Entry]) -> Made:
        """All filters of a moment, as groups."""
        held = {number for group in self._groups for number in group.entries}
        new = {number: entries[number] for number in entries.keys() - held}
        met = [_meaning_of(entry) for entry in new.values()]
        if any(each.semantics.rivalry for each in (*met, *(p.meaning for g in self._groups for p in g.parts))):
            rivals = rivals_of(entries)
            self._groups = (Group.of(entries, rivals, self._asking),)
            return Made(entries, self._groups, _NOTHING.number, rivals)
        if new:
            small, size = [], len(new)
            for group in sorted(self._groups, key=_size):
                if _size(group) <= 2 * size and size + _size(group) <= SMALL:
                    small.append(group)
                    size += _size(group)
            joined = {**_alive(small, entries), **new}
            self._groups = (*(each for each in self._groups if each not in small), self._group(joined))
        gone = np.array(sorted(held - entries.keys()), np.int64)
        if self._joining is None and (len(self._groups) > MANY or len(gone) > SMALL + len(entries)):
            self._join_in_background(entries, everything=len(self._groups) <= MANY)
        return Made(entries, self._groups, gone, None)

    def _group(self, entries: Mapping[int, Entry]) -> Group:
        return Group.of(entries, {}, self._asking)

    def _join_in_background(self, entries: Mapping[int, Entry], everything: bool) -> None:
        """Join the smaller groups; larger ones too, where they are not much larger than all that are smaller."""
        chosen: list[Group] = []
        for group in sorted(self._groups, key=_size):
            if everything or len(chosen) < MANY // 2 or _size(group) <= 2 * sum(map(_size, chosen)):
                chosen.append(group)
        self._joining = Thread(target=self._join, args=(chosen, entries), name="tidegate-join-meaning", daemon=True)
        self._joining.start()

    def _join(self, chosen: Sequence[Group], entries: Mapping[int, Entry]) -> None:
        try:
            made = self._group(_alive(chosen, entries))
            made.look_at(chosen)
            with self._lock:
                left = tuple(group for group in self._groups if group not in chosen)
                if len(left) + len(chosen) == len(self._groups):  # else one of them was joined with what is new
                    self._groups = (made, *left)
        finally:
            with self._lock:
                self._joining = None

    def match(self, events: Events) -> Matches:
        """Match a batch."""
        made = self._now()
        event, number, degree = made.match(events)
        wanted, rows = distinct(number)

        def grades(row: int) -> Callable[[Any], Any]:
            by = made.by(int(wanted[row]))
            return lambda chosen: np.array([by.degree(events.event(n)) for n in chosen.tolist()])

        owners = names_of(objects([made.entries[n].owners for n in wanted.tolist()]))
        offsets = np.searchsorted(event, np.arange(events.size + 1))
        piece = widened(offsets, rows, owners, wanted, grades, degree)
        return Matches(events.size, [piece], partial(_mappings, made, events))

    def explain(self, number: int, events: Events | None) -> dict[str, Any]:
        """Say how an entry is matched, and what it takes of some events."""
        made = self._now()
        parts = made.entries[number].filter.by_meaning.parts
        found: dict[str, Any] = {"where": "by meaning", "alternatives": len(parts.alternatives)}
        if events is not None:
            matches = int((made.match(events).number == number).sum())
            found |= {"candidates": events.size, "matches": matches}
        return found

    def settle(self) -> None:
        """Wait until what goes on in the background has ended."""
        while (thread := self._joining) is not None:
            thread.join()

    def close(self) -> None:
        """Let the background end."""
        self.settle()

    def describe(self) -> dict[str, Any]:
        """Report shape and memory."""
        made = self._now()
        parts = [part for group in made.groups for part in group.parts]
        sizes = [part.memory.size for part in parts]
        return {
            "engine": "meaning",
            "filters": len(made.entries),
            "groups": len(made.groups),
            "gone": len(made.gone),
            "conjuncts": sum(part.plan.conjuncts for part in parts),
            "predicates": sum(len(part.plan.bound) for part in parts),
            "tuples": sum(rows for rows, _ in sizes),
            "similarities": sum(size for _, size in sizes),
        }

    def __reduce__(self) -> tuple[object, ...]:
        return MeaningIndex, (self._snapshots.now()[0],)


def _as_they_are(entries: Mapping[int, Entry]) -> None:
    """Nothing is made of entries but by what was made before."""


def _size(group: Group) -> int:
    return len(group.entries)


def _alive(groups: Iterable[Group], entries: Mapping[int, Entry]) -> dict[int, Entry]:
    return {n: entry for group in groups for n, entry in group.entries.items() if n in entries}


def _mappings(made: Made, events: Events, number: int, index: int, k: int) -> list[Meant]:
    """The best mappings of an event by a filter; none where it has no ~."""
    return made.by(number).mappings(events.event(index), k) if number in made.entries else []
