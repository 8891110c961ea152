"""The oracle for filters with ~: evaluates each filter on every event.

Slow and obvious; tests compare `meaning_index` with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tidegate.filters.by_meaning import ByMeaning
from tidegate.filters.thematic import Meant, Rivals, Thematic, rivals_among
from tidegate.matching.events import EventBatch
from tidegate.matching.index import IndexEntry, LazySnapshots, Owners, expand_owners, objects, owner_columns
from tidegate.matching.result import Matches, pair_keys, split_keys


def rivals_of(entries: Mapping[int, IndexEntry]) -> dict[frozenset[str], Rivals]:
    """Return the predicates of all filters by theme: predicates of one theme compete."""
    by_theme: dict[frozenset[str], list[Thematic]] = {}
    for entry in entries.values():
        for thematic in entry.filter.by_meaning.parts.thematics:
            by_theme.setdefault(thematic.themes, []).append(thematic)
    return {theme: rivals_among(several) for theme, several in by_theme.items()}


def evaluators(entries: Mapping[int, IndexEntry]) -> dict[int, ByMeaning]:
    """Return the evaluator of each filter, with all other filters of its theme as rivals."""
    rivals = rivals_of(entries)
    return {number: with_rivals(entry, rivals) for number, entry in entries.items()}


def with_rivals(entry: IndexEntry, rivals: Mapping[frozenset[str], Rivals]) -> ByMeaning:
    """Return the evaluator of a filter with its rivals."""
    filter_ = entry.filter
    assert filter_.meaning is not None
    theme = frozenset(filter_.tree.themes)
    return ByMeaning(filter_.by_meaning.parts, filter_.schema, filter_.meaning, rivals.get(theme))


class MeaningScan:
    """Evaluates each filter with ~ in turn."""

    def __init__(self) -> None:
        self._snapshots = LazySnapshots(evaluators)

    def apply(
        self, put: Mapping[int, IndexEntry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Add, remove and reassign entries in one step."""
        self._snapshots.apply(put, drop, owners)

    def match(self, events: EventBatch) -> Matches:
        """Return the matches of a batch."""
        entries, evaluators_by_number = self._snapshots.now()
        keyed, degrees = [np.empty(0, np.int64)], [np.empty(0)]
        for number, by in evaluators_by_number.items():
            holds, fits = events.evaluate_semantic(by)
            at = np.flatnonzero(holds)
            keyed.append(pair_keys(at, np.full(len(at), number, np.int64)))
            degrees.append(fits[at])
        key = np.concatenate(keyed)
        order = np.argsort(key)
        event, number = split_keys(key[order])
        numbers, rows = np.unique(number, return_inverse=True)
        owners = owner_columns(objects([entries[n].owners for n in numbers.tolist()]))
        offsets = np.searchsorted(event, np.arange(events.size + 1))
        piece = expand_owners(offsets, rows, owners, numbers, lambda _: None, np.concatenate(degrees)[order])
        return Matches(events.size, [piece], partial(_mappings, evaluators_by_number, events))

    def explain(self, number: int, events: EventBatch | None) -> dict[str, Any]:
        """Return how many of some events an entry matches."""
        entries, evaluators_by_number = self._snapshots.now()
        explanation: dict[str, Any] = {
            "where": "by meaning",
            "alternatives": len(entries[number].filter.by_meaning.parts.alternatives),
        }
        if events is not None:
            explanation |= {
                "candidates": events.size,
                "matches": int(events.evaluate_semantic(evaluators_by_number[number])[0].sum()),
            }
        return explanation

    def close(self) -> None:
        """Do nothing: there are no threads or processes."""

    def describe(self) -> dict[str, Any]:
        """Return sizes."""
        return {"engine": "scan", "filters": len(self._snapshots.now()[0])}


def _mappings(
    evaluators_by_number: Mapping[int, ByMeaning], events: EventBatch, number: int, index: int, k: int
) -> list[Meant]:
    """Return the best mappings of a filter to an event; empty if the filter has no ~."""
    return evaluators_by_number[number].mappings(events.event(index), k) if number in evaluators_by_number else []
