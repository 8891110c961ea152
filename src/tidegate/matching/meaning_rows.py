"""Caches what a plan computes for the tuples of events: each distinct tuple is compared once and gets a number.

an attribute with its event's tags ──▶ its similarity to each name; most attributes resemble none and are skipped
a tuple with its event's tags      ──▶ a row: the predicates it is similar enough to, and the similarities
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from tidegate.filters.meaning import Meaning
from tidegate.filters.thematic import TupleValue, evidence_of, in_company
from tidegate.matching import meaning_kernels
from tidegate.matching.meaning_plan import ConjunctListing, MeaningPlan, Theme
from tidegate.matching.tuples import BatchThemes, TupleColumn

MAX_CACHED_SIMILARITIES = 2**23
"""Cached similarities, 12 bytes each. If there are more, the cache is cleared."""

MAX_CACHED_TUPLES = 2**20
"""Cached tuples, attributes and sets of tags together."""

MAX_CACHED_CHARACTERS = 2**26
"""Characters of all cached texts."""

_MAX_SIMILARITIES_AT_ONCE = 2**22
"""Similarities of values that are in memory while rows are computed: 32 MB."""


class TupleRows(NamedTuple):
    """The rows of a batch's events, and all rows of the cache."""

    of_events: Any
    """Row of each event (line) and attribute (column); -1: similar to no predicate."""
    start: Any
    end: Any
    predicate: Any
    similarity: Any
    listing: ConjunctListing


class _TagCache:
    """Cached results for events with the same tags."""

    def __init__(self, names: int) -> None:
        self.lines: dict[str, int] = {}
        """Line of each attribute in `figures`; -1: similar to no name."""
        self.figures = np.zeros((0, names))
        self.rows: dict[str, dict[Any, int]] = {}
        """Row of each value, by attribute."""


_BACKGROUND_BATCH = 16
"""Values that the background thread compares before it releases the lock to a waiting match."""


class TupleCache:
    """The rows of a plan so far; grows, and is cleared when full. Thread-safe.

    `lock` is shared by all caches of an index, because semantics are asked by one thread at a time.
    """

    def __init__(self, plan: MeaningPlan, meaning: Meaning, lock: Lock) -> None:
        self._plan, self._meaning = plan, meaning
        self._lock = lock
        self._clear()

    def _clear(self) -> None:
        self._met: dict[Theme, _TagCache] = {}
        self._start, self._end = np.zeros(1_024, np.int64), np.zeros(1_024, np.int64)
        self._predicate, self._similarity = np.zeros(4_096, np.int32), np.zeros(4_096)
        self._rows = self._size = 0
        self._attributes_and_tags = self._characters = 0
        """Number of cached attributes and sets of tags; number of cached characters."""
        self._pruned: tuple[Any, Any, Any, Any, ConjunctListing] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Number of cached tuples and of cached similarities."""
        return self._rows, self._size

    def rows(self, columns: Sequence[TupleColumn], themes: BatchThemes) -> TupleRows:
        """Return the rows of a batch's events; computes the rows of new tuples."""
        with self._lock:
            if (
                self._size > MAX_CACHED_SIMILARITIES
                or self._rows + self._attributes_and_tags > MAX_CACHED_TUPLES
                or self._characters > MAX_CACHED_CHARACTERS
            ):
                self._clear()
            met = [self._of_tags(self._meaning.themes | own) for own in themes.sets]
            for met_tags, own in zip(met, themes.sets, strict=True):
                self._meet(met_tags, [c.attribute for c in columns], self._meaning.themes | own)
            alive = [c for c in columns if any(met_tags.lines[c.attribute] >= 0 for met_tags in met)]
            size = len(columns[0].codes) if columns else 0
            rows = np.full((size, len(alive)), -1, np.int32)
            for n, column in enumerate(alive):
                rows[:, n] = self._column(column, met, themes)
            self._pruned = self._pruned or self._prune()
            return TupleRows(rows, *self._pruned)

    def warm_from(self, other: TupleCache) -> None:
        """Compute the rows of all tuples in another cache, in small batches, so that a match does not wait for long."""
        with self._lock:
            seen = [(tags, {n: list(met.rows.get(n, ())) for n in met.lines}) for tags, met in other._met.items()]
        for tags, attributes in seen:
            with self._lock:
                met = self._of_tags(tags)
                self._meet(met, list(attributes), tags)
            for attribute, keys in attributes.items():
                for begin in range(0, len(keys) if met.lines[attribute] >= 0 else 0, _BACKGROUND_BATCH):
                    values = [
                        key if isinstance(key, str) else key[1] for key in keys[begin : begin + _BACKGROUND_BATCH]
                    ]
                    with self._lock:
                        self._rows_of_values(met, attribute, values, np.arange(len(values)), tags)

    def _prune(self) -> tuple[Any, Any, Any, Any, ConjunctListing]:
        """Return the rows without similarities that can't be part of a match. Depends on all tuples, so it runs again
        after new ones.
        """
        predicate, similarity = self._predicate[: self._size], self._similarity[: self._size]
        best = np.zeros(len(self._plan.bound))
        np.maximum.at(best, predicate, similarity)
        alive, bound = self._plan.reachable(best)
        useful = similarity >= bound[predicate]
        at = np.append(0, np.cumsum(useful))
        predicate, similarity = predicate[useful], similarity[useful]
        listing = self._plan.list_conjuncts(np.bincount(predicate, minlength=len(bound)), alive)
        return at[self._start[: self._rows]], at[self._end[: self._rows]], predicate, similarity, listing

    def _of_tags(self, tags: Theme) -> _TagCache:
        if tags not in self._met:
            self._met[tags] = _TagCache(len(self._plan.name_bound))
            self._attributes_and_tags += 1
            self._characters += sum(map(len, tags))
        return self._met[tags]

    def _meet(self, met: _TagCache, attributes: list[str], of: Theme) -> None:
        """Compare new attributes with all names."""
        new = [attribute for attribute in dict.fromkeys(attributes) if attribute not in met.lines]
        if not new:
            return
        semantics = self._meaning.semantics
        figures = np.concatenate([names.figures(semantics, new, of) for names in self._plan.names], axis=1)
        best = in_company(figures, self._plan.company_of_name) if semantics.rivalry else figures
        alive = ((best > 0) & (best >= self._plan.name_bound)).any(axis=1)
        for attribute, line in zip(new, (np.cumsum(alive) - 1 + len(met.figures)).tolist(), strict=True):
            met.lines[attribute] = line
        for attribute in (attribute for attribute, some in zip(new, alive.tolist(), strict=True) if not some):
            met.lines[attribute] = -1
        met.figures = np.concatenate([met.figures, figures[alive]])
        self._attributes_and_tags += len(new)
        self._characters += sum(map(len, new))

    def _column(self, column: TupleColumn, met: Sequence[_TagCache], themes: BatchThemes) -> Any:
        """Return the row of each event's value."""
        size = len(column.values)
        if not size:
            return -1
        codes: Any = np.maximum(column.codes, -1)
        if themes.codes is not None:
            codes = np.where(codes >= 0, codes + themes.codes * size, -1)
        used, places = _distinct(codes, len(met) * size)
        cuts = np.searchsorted(used, np.arange(len(met) + 1) * size)
        table = np.full(len(used) + 1, -1, np.int32)  # the last entry is for events without a value
        for n, met_tags in enumerate(met):
            begin, end = cuts[n], cuts[n + 1]
            if begin < end and met_tags.lines[column.attribute] >= 0:
                tags = self._meaning.themes | themes.sets[n]
                mine = used[begin:end] - n * size
                table[begin:end] = self._rows_of_values(met_tags, column.attribute, column.values, mine, tags)
        return table[places]

    def _rows_of_values(
        self, met: _TagCache, attribute: str, values: Sequence[TupleValue], used: Any, tags: Theme
    ) -> list[int]:
        """Return the rows of some values of an attribute."""
        rows = met.rows.setdefault(attribute, {})
        keys = [_key(values[n]) for n in used.tolist()]
        new = [n for n, key in zip(used.tolist(), keys, strict=True) if key not in rows]
        step = max(1, _MAX_SIMILARITIES_AT_ONCE // max(1, len(self._plan.value_of)))
        for begin in range(0, len(new), step):
            chosen = [values[n] for n in new[begin : begin + step]]
            for value, row in zip(chosen, self._compute_rows(met, attribute, chosen, tags), strict=True):
                rows[_key(value)] = row
        return [rows[key] for key in keys]

    def _compute_rows(self, met: _TagCache, attribute: str, values: list[TupleValue], of: Theme) -> range:
        """Compute the rows of new values."""
        plan, semantics = self._plan, self._meaning.semantics
        figures = np.concatenate(
            [names_or_values.figures(semantics, values, of) for names_or_values in plan.values], axis=1
        )
        at = met.lines[attribute]
        by_name = met.figures[at : at + 1]
        evidence = by_name, figures
        if semantics.rivalry:
            evidence = evidence_of(by_name), evidence_of(figures)
            by_name, figures = in_company(by_name, plan.company_of_name), in_company(figures, plan.company_of_value)
        line = np.zeros(len(values), np.int64)
        offsets = np.zeros(len(values) + 1, np.int64)
        room = 4_096
        while True:
            predicate, similarity = np.empty(room, np.int32), np.empty(room)
            size = meaning_kernels.similar_rows(
                *(by_name, figures, line, np.arange(len(values)), plan.first_of_name, plan.value_of),
                *(plan.bound, plan.name_bound, float(semantics.rivalry), *evidence, plan.theme_of_name),
                *(offsets, predicate, similarity),
            )
            if size <= room:
                break
            room = size
        self._predicate = _put(self._predicate, self._size, predicate[:size])
        self._similarity = _put(self._similarity, self._size, similarity[:size])
        self._start = _put(self._start, self._rows, self._size + offsets[:-1])
        self._end = _put(self._end, self._rows, self._size + offsets[1:])
        self._size += size
        self._pruned = None
        self._characters += sum(len(value) for value in values if isinstance(value, str))
        self._rows += len(values)
        return range(self._rows - len(values), self._rows)


def _distinct(codes: Any, bound: int) -> tuple[Any, Any]:
    """Return the distinct codes in ascending order, and the index of each event's code among them (-1: none).

    Uses a table of flags, which is fastest, unless there are many more codes than events: if each event has tags of its
    own, the number of codes grows with the square of the number of events.
    """
    if bound > 16 * len(codes):
        used, places = np.unique(codes, return_inverse=True)
        without = int(len(used) > 0 and used[0] < 0)
        return used[without:], places - without
    present = np.zeros(bound + 1, bool)  # the last entry is for events without a value
    present[codes] = True
    used = np.flatnonzero(present[:-1])
    places = np.full(len(present), -1, np.int64)
    places[used] = np.arange(len(used))
    return used, places[codes]


def _key(value: TupleValue) -> Any:
    """Return a dict key that distinguishes True from 1."""
    return value if isinstance(value, str) else (isinstance(value, bool), value)


def _put(array: Any, at: int, values: Any) -> Any:
    """Return the array with values written at an index; copies it to a larger one if needed, so readers of the old one
    are safe.
    """
    if at + len(values) > len(array):
        grown = np.zeros(max(2 * len(array), at + len(values)), array.dtype)
        grown[:at] = array[:at]
        array = grown
    array[at : at + len(values)] = values
    return array
