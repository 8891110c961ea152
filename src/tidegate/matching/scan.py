"""Every filter on every event: slow, obvious, and the judge of all other engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tidegate.matching.events import Events
from tidegate.matching.index import Entry, Owners, Snapshots, expanded, explained
from tidegate.matching.result import Matches, keys, unkeyed


class ScanIndex:
    """The oracle: asks each filter in turn."""

    def __init__(self) -> None:
        self._snapshots = Snapshots(_as_they_are)

    def apply(
        self, put: Mapping[int, Entry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Put and drop entries, and change the owners of others, in one step."""
        self._snapshots.apply(put, drop, owners)

    def match(self, events: Events) -> Matches:
        """Match a batch."""
        entries, _ = self._snapshots.now()
        return expanded(events, *ordered(scan(entries, events)), entries.__getitem__)

    def explain(self, number: int, events: Events | None) -> dict[str, Any]:
        """Say what an entry takes of some events."""
        return explained(self._snapshots.now()[0][number], events)

    def close(self) -> None:
        """Nothing is held."""

    def describe(self) -> dict[str, Any]:
        """Report shape and memory."""
        return {"engine": "scan", "filters": len(self._snapshots.now()[0])}


def _as_they_are(_: Mapping[int, Entry]) -> None:
    """Make nothing of the entries: a scan needs no index."""


def scan(entries: Mapping[int, Entry], events: Events) -> list[tuple[Any, Any]]:
    """Ask some filters about all events: pairs in pieces, one a filter."""
    found = []
    for number, entry in entries.items():
        matching = np.flatnonzero(events.mask(entry.filter))
        found.append((matching, np.full(len(matching), number, np.int64)))
    return found


def ordered(pieces: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Put pieces together, ordered by event and number, each pair once."""
    if not pieces:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    key = np.concatenate([keys(event, number) for event, number in pieces])
    if (key[1:] < key[:-1]).any():  # one segment alone is in order already
        key.sort()
    first = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    return unkeyed(key if first.all() else key[first])
