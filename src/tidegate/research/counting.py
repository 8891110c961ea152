"""An engine that counts predicates: each distinct predicate is evaluated once per event.

Every conjunct knows its number of predicates, every predicate its conjuncts. An event adds one to each conjunct of each
predicate that is true; a conjunct whose count is complete matches. Written to be read: a reference for benchmarks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.filters.nodes import Node
from tidegate.matching.events import EventBatch
from tidegate.matching.index import IndexEntry, LazySnapshots, Owners, explain_entry, matches_of_pairs
from tidegate.matching.result import Matches
from tidegate.matching.scan import sort_pairs

MAX_EVENTS_AT_ONCE = 1_024
"""Events that are counted at a time, to bound the memory of the counters."""


@dataclass(frozen=True, slots=True)
class _Table:
    """The distinct predicates, and which of them each conjunct needs."""

    predicates: tuple[Node, ...]
    needs: Any
    """One row per conjunct, one column per predicate: 1 if the conjunct has the predicate.

    Floats, because BLAS multiplies them in a hundredth of the time; exact up to 2^24 predicates.
    """
    number: Any
    """Entry number of each conjunct."""

    @classmethod
    def of(cls, entries: Mapping[int, IndexEntry]) -> _Table:
        """Collect the distinct predicates of all conjuncts."""
        columns: dict[Node, int] = {}
        rows = [
            (number, {columns.setdefault(term, len(columns)) for term in terms})
            for number, entry in entries.items()
            for terms in entry.alternatives()
        ]
        needs = np.zeros((len(rows), len(columns)), np.float32)
        for row, (_, needed) in enumerate(rows):
            needs[row, list(needed)] = 1
        return cls(tuple(columns), needs, np.array([number for number, _ in rows], np.int64))


class CountingIndex:
    """Counts, for each conjunct, the predicates that are true. A match takes no lock."""

    def __init__(self) -> None:
        self._snapshots = LazySnapshots(_Table.of)

    def apply(
        self, put: Mapping[int, IndexEntry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Add, remove and reassign entries in one step; the next match rebuilds the table."""
        self._snapshots.apply(put, drop, owners)

    def match(self, events: EventBatch) -> Matches:
        """Return the matches of a batch."""
        entries, table = self._snapshots.now()
        truths = np.zeros((len(table.predicates), events.size), np.float32)
        for row_of_predicate, node in enumerate(table.predicates):
            truths[row_of_predicate] = events.holds(node)
        sizes = table.needs.sum(axis=1)
        pieces = []
        for begin in range(0, events.size, MAX_EVENTS_AT_ONCE):
            counts = table.needs @ truths[:, begin : begin + MAX_EVENTS_AT_ONCE]
            row, event = np.nonzero(counts == sizes[:, None])
            pieces.append((event + begin, table.number[row]))
        return matches_of_pairs(events, *sort_pairs(pieces), entries.__getitem__)

    def explain(self, number: int, events: EventBatch | None) -> dict[str, Any]:
        """Return how many of some events an entry matches."""
        return explain_entry(self._snapshots.now()[0][number], events)

    def close(self) -> None:
        """Do nothing: there are no threads or processes."""

    def describe(self) -> dict[str, Any]:
        """Return the engine's name and sizes."""
        entries, table = self._snapshots.now()
        return {
            "engine": "counting",
            "filters": len(entries),
            "predicates": len(table.predicates),
            "conjuncts": len(table.number),
        }
