"""The predicate index with counters: each distinct predicate is asked once.

Every conjunct knows how many predicates it has; every predicate which conjuncts
it stands in. An event adds one to each conjunct of each predicate that holds,
and a conjunct that has all of its own matches. Readable, and a reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.filters.nodes import Node
from tidegate.matching.events import Events
from tidegate.matching.index import IndexEntry, LazySnapshots, Owners, explain_entry, matches_of_pairs
from tidegate.matching.result import Matches
from tidegate.matching.scan import sort_pairs

AT_ONCE = 1_024
"""Events that are counted together: bounds the memory of the counters."""


@dataclass(frozen=True, slots=True)
class _Table:
    """Predicates, and for each conjunct which of them it needs."""

    predicates: tuple[Node, ...]
    needs: Any
    """A row a conjunct, a column a predicate: 1 where it stands in it.

    As floats, which BLAS multiplies in a hundredth of the time; exact up to 2^24 predicates."""
    number: Any
    """For each conjunct the number of its entry."""

    @classmethod
    def of(cls, entries: Mapping[int, IndexEntry]) -> _Table:
        """Collect the distinct predicates of all conjuncts."""
        places: dict[Node, int] = {}
        rows = [
            (number, {places.setdefault(term, len(places)) for term in terms})
            for number, entry in entries.items()
            for terms in entry.alternatives()
        ]
        needs = np.zeros((len(rows), len(places)), np.float32)
        for row, (_, wanted) in enumerate(rows):
            needs[row, list(wanted)] = 1
        return cls(tuple(places), needs, np.array([number for number, _ in rows], np.int64))


class CountingIndex:
    """Counts, for each conjunct, the predicates that hold."""

    def __init__(self) -> None:
        self._snapshots = LazySnapshots(_Table.of)

    def apply(
        self, put: Mapping[int, IndexEntry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Put and drop entries, and change the owners of others, in one step; the next match makes the table anew."""
        self._snapshots.apply(put, drop, owners)

    def match(self, events: Events) -> Matches:
        """Match a batch."""
        entries, table = self._snapshots.now()
        held = np.zeros((len(table.predicates), events.size), np.float32)
        for place, node in enumerate(table.predicates):
            held[place] = events.holds(node)
        sizes = table.needs.sum(axis=1)
        pieces = []
        for begin in range(0, events.size, AT_ONCE):
            counts = table.needs @ held[:, begin : begin + AT_ONCE]
            row, event = np.nonzero(counts == sizes[:, None])
            pieces.append((event + begin, table.number[row]))
        return matches_of_pairs(events, *sort_pairs(pieces), entries.__getitem__)

    def explain(self, number: int, events: Events | None) -> dict[str, Any]:
        """Say what an entry takes of some events."""
        return explain_entry(self._snapshots.now()[0][number], events)

    def close(self) -> None:
        """Nothing is held."""

    def describe(self) -> dict[str, Any]:
        """Report shape and memory."""
        entries, table = self._snapshots.now()
        return {
            "engine": "counting",
            "filters": len(entries),
            "predicates": len(table.predicates),
            "conjuncts": len(table.number),
        }
