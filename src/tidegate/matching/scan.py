"""The oracle: evaluates every filter on every event. Slow and obvious; tests compare all engines with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tidegate.matching.events import EventBatch
from tidegate.matching.index import IndexEntry, LazySnapshots, Owners, explain_entry, matches_of_pairs
from tidegate.matching.result import Matches, pair_keys, split_keys


class ScanIndex:
    """Evaluates each filter in turn; a match takes no lock."""

    def __init__(self) -> None:
        self._snapshots = LazySnapshots(_build_nothing)

    def apply(
        self, put: Mapping[int, IndexEntry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Add, remove and reassign entries in one step."""
        self._snapshots.apply(put, drop, owners)

    def match(self, events: EventBatch) -> Matches:
        """Return the matches of a batch."""
        entries, _ = self._snapshots.now()
        return matches_of_pairs(events, *sort_pairs(scan(entries, events)), entries.__getitem__)

    def explain(self, number: int, events: EventBatch | None) -> dict[str, Any]:
        """Return how many of some events an entry matches."""
        return explain_entry(self._snapshots.now()[0][number], events)

    def close(self) -> None:
        """Do nothing: there are no threads or processes."""

    def describe(self) -> dict[str, Any]:
        """Return the engine's name and the number of filters."""
        return {"engine": "scan", "filters": len(self._snapshots.now()[0])}


def _build_nothing(_: Mapping[int, IndexEntry]) -> None:
    """Build no index: a scan needs none."""


def scan(entries: Mapping[int, IndexEntry], events: EventBatch) -> list[tuple[Any, Any]]:
    """Evaluate filters on all events; return one (events, numbers) pair of arrays per filter."""
    pieces = []
    for number, entry in entries.items():
        matching = np.flatnonzero(events.mask(entry.filter))
        pieces.append((matching, np.full(len(matching), number, np.int64)))
    return pieces


def sort_pairs(pieces: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Join arrays of pairs, sort them by event and number, and remove duplicates."""
    if not pieces:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    key = np.concatenate([pair_keys(event, number) for event, number in pieces])
    if (key[1:] < key[:-1]).any():  # the pairs of a single segment are sorted already
        key.sort()
    first = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    return split_keys(key if first.all() else key[first])
