"""The index of filters with ~: whole batches at once, each word looked at once.

    a batch ──tuples.py──▶ distinct tuples ──meaning_rows.py──▶ rows ──kernel──▶ conjuncts that are reached
                                                                                       │ what is left of each
                                                                                       ▼ alternative, vectorised
                                                                               events and filters

It is made anew after a change, by the first match that comes. `meaning_scan` is the slow, obvious judge of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tidegate.filters.by_meaning import ByMeaning
from tidegate.filters.meaning import Meaning
from tidegate.filters.nodes import EVERYTHING
from tidegate.filters.thematic import Meant
from tidegate.matching import meaning_kernels
from tidegate.matching.events import Events
from tidegate.matching.index import Entry, Owners, Snapshots, distinct, names_of, objects, widened
from tidegate.matching.meaning_plan import Plan, plan_of
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
        if not plan.conjuncts or not rows.of_events.shape[1]:
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


class Made(NamedTuple):
    """All filters, indexed."""

    parts: tuple[Part, ...]
    by: Callable[[int], ByMeaning]
    """Each filter, to be asked about one event."""


def _made(entries: Mapping[int, Entry]) -> Made:
    rivals = rivals_of(entries)
    by_reading: dict[tuple[Schema | None, Meaning], dict[int, Entry]] = {}
    for number, entry in entries.items():
        meaning = entry.filter.meaning
        assert meaning is not None
        by_reading.setdefault((entry.filter.schema, meaning), {})[number] = entry
    parts = []
    for (schema, meaning), several in by_reading.items():
        plan = plan_of(several, rivals if meaning.semantics.rivalry else {})
        parts.append(Part(plan, Memory(plan, meaning), schema))
    return Made(tuple(parts), lambda number: among(entries[number], rivals))


class MeaningIndex:
    """Matches whole batches against all filters with ~ at once."""

    def __init__(self) -> None:
        meaning_kernels.warm_up()
        self._snapshots = Snapshots(_made)

    def apply(
        self, put: Mapping[int, Entry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Put and drop entries, and change the owners of others, in one step."""
        self._snapshots.apply(put, drop, owners)

    def match(self, events: Events) -> Matches:
        """Match a batch."""
        entries, made = self._snapshots.now()
        found = [part.match(events) for part in made.parts]
        if len(found) == 1:
            event, number, degree = found[0]
        else:
            event, number, degree = (np.concatenate(each) for each in zip(*found, strict=True))
            order = np.argsort(event, kind="stable")
            event, number, degree = event[order], number[order], degree[order]
        wanted, rows = distinct(number)

        def grades(row: int) -> Callable[[Any], Any]:
            by = made.by(int(wanted[row]))
            return lambda chosen: np.array([by.degree(events.event(n)) for n in chosen.tolist()])

        owners = names_of(objects([entries[n].owners for n in wanted.tolist()]))
        offsets = np.searchsorted(event, np.arange(events.size + 1))
        piece = widened(offsets, rows, owners, wanted, grades, degree)
        return Matches(events.size, [piece], partial(_mappings, entries, made, events))

    def explain(self, number: int, events: Events | None) -> dict[str, Any]:
        """Say how an entry is matched, and what it takes of some events."""
        entries, made = self._snapshots.now()
        parts = entries[number].filter.by_meaning.parts
        found: dict[str, Any] = {"where": "by meaning", "alternatives": len(parts.alternatives)}
        if events is not None:
            matches = sum(int((part.match(events).number == number).sum()) for part in made.parts)
            found |= {"candidates": events.size, "matches": matches}
        return found

    def close(self) -> None:
        """Nothing is held."""

    def describe(self) -> dict[str, Any]:
        """Report shape and memory."""
        entries, made = self._snapshots.now()
        sizes = [part.memory.size for part in made.parts]
        return {
            "engine": "meaning",
            "filters": len(entries),
            "conjuncts": sum(part.plan.conjuncts for part in made.parts),
            "predicates": sum(len(part.plan.bound) for part in made.parts),
            "tuples": sum(rows for rows, _ in sizes),
            "similarities": sum(size for _, size in sizes),
        }


def _mappings(entries: Mapping[int, Entry], made: Made, events: Events, number: int, index: int, k: int) -> list[Meant]:
    """The best mappings of an event by a filter; none where it has no ~."""
    return made.by(number).mappings(events.event(index), k) if number in entries else []
