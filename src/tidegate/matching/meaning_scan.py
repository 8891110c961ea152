"""Filters with ~, each asked about every event: slow, obvious, and the judge of the index by meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tidegate.filters.by_meaning import ByMeaning
from tidegate.filters.thematic import Meant, Rivals, Thematic, rivals_among
from tidegate.matching.events import Events
from tidegate.matching.index import Entry, Owners, Snapshots, names_of, objects, widened
from tidegate.matching.result import Matches, keys, unkeyed


def rivals_of(entries: Mapping[int, Entry]) -> dict[frozenset[str], Rivals]:
    """All that is subscribed to in each theme."""
    by_theme: dict[frozenset[str], list[Thematic]] = {}
    for entry in entries.values():
        for each in entry.filter.by_meaning.parts.thematics:
            by_theme.setdefault(each.themes, []).append(each)
    return {theme: rivals_among(several) for theme, several in by_theme.items()}


def evaluators(entries: Mapping[int, Entry]) -> dict[int, ByMeaning]:
    """Each filter with all others of its theme as rivals."""
    rivals = rivals_of(entries)
    return {number: among(entry, rivals) for number, entry in entries.items()}


def among(entry: Entry, rivals: Mapping[frozenset[str], Rivals]) -> ByMeaning:
    """A filter among its rivals."""
    filter_ = entry.filter
    assert filter_.meaning is not None
    theme = frozenset(filter_.tree.themes)
    return ByMeaning(filter_.by_meaning.parts, filter_.schema, filter_.meaning, rivals.get(theme))


class MeaningScan:
    """The oracle of filters with ~."""

    def __init__(self) -> None:
        self._snapshots = Snapshots(evaluators)

    def apply(
        self, put: Mapping[int, Entry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Put and drop entries, and change the owners of others, in one step."""
        self._snapshots.apply(put, drop, owners)

    def match(self, events: Events) -> Matches:
        """Match a batch."""
        entries, each = self._snapshots.now()
        keyed, degrees = [np.empty(0, np.int64)], [np.empty(0)]
        for number, by in each.items():
            holds, fits = events.judged(by)
            at = np.flatnonzero(holds)
            keyed.append(keys(at, np.full(len(at), number, np.int64)))
            degrees.append(fits[at])
        key = np.concatenate(keyed)
        order = np.argsort(key)
        event, number = unkeyed(key[order])
        wanted, rows = np.unique(number, return_inverse=True)
        owners = names_of(objects([entries[n].owners for n in wanted.tolist()]))
        offsets = np.searchsorted(event, np.arange(events.size + 1))
        piece = widened(offsets, rows, owners, wanted, lambda _: None, np.concatenate(degrees)[order])
        return Matches(events.size, [piece], partial(_mappings, each, events))

    def explain(self, number: int, events: Events | None) -> dict[str, Any]:
        """Say what an entry takes of some events."""
        entries, each = self._snapshots.now()
        found: dict[str, Any] = {
            "where": "by meaning",
            "alternatives": len(entries[number].filter.by_meaning.parts.alternatives),
        }
        if events is not None:
            found |= {"candidates": events.size, "matches": int(events.judged(each[number])[0].sum())}
        return found

    def close(self) -> None:
        """Nothing is held."""

    def describe(self) -> dict[str, Any]:
        """Report shape and memory."""
        return {"engine": "scan", "filters": len(self._snapshots.now()[0])}


def _mappings(each: Mapping[int, ByMeaning], events: Events, number: int, index: int, k: int) -> list[Meant]:
    """The best mappings of an event by a filter; none where it has no ~."""
    return each[number].mappings(events.event(index), k) if number in each else []
