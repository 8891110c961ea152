"""What a plan makes of the tuples that it has met: each is looked at once, and then is a number.

an attribute, in the tags of its event ──▶ how similar each name is: most attributes are like none, and left out
a tuple, in the tags of its event      ──▶ a row: the predicates that it is similar enough to, and how similar
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from tidegate.filters.meaning import Meaning
from tidegate.filters.thematic import Scalar, evidence_of, in_company
from tidegate.matching import meaning_kernels
from tidegate.matching.meaning_plan import Listing, Plan, Theme
from tidegate.matching.tuples import Themes, TupleColumn

REMEMBERED = 2**23
"""Similarities that are kept, 12 bytes each; beyond, all are forgotten, and the next batch asks again."""

TUPLES = 2**20
"""Tuples that are kept, together with attributes and sets of tags."""

LETTERS = 2**26
"""Characters of all that is kept: texts may be long."""

_AT_ONCE = 2**22
"""Figures of values that are held while rows are made of them: 32 MB."""


class Rows(NamedTuple):
    """The rows of a batch's events, and all rows there are."""

    of_events: Any
    """A line an event, a column an attribute; -1: nothing there is like anything."""
    start: Any
    end: Any
    predicate: Any
    similarity: Any
    listing: Listing


class _Met:
    """What was met in events of the same tags."""

    def __init__(self, names: int) -> None:
        self.lines: dict[str, int] = {}
        """Of each attribute the line of its figures; -1: it is like no name."""
        self.figures = np.zeros((0, names))
        self.rows: dict[str, dict[Any, int]] = {}
        """Of each attribute the row of each value."""


_FEW = 16
"""Values that are looked at in the background, before whoever matches may go on."""


class Memory:
    """The rows of a plan so far; grows, and is emptied when it is full.

    `lock` is that of all memories of an index, as what knows words is asked by one thread at a time.
    """

    def __init__(self, plan: Plan, meaning: Meaning, lock: Lock) -> None:
        self._plan, self._meaning = plan, meaning
        self._lock = lock
        self._forget()

    def _forget(self) -> None:
        self._met: dict[Theme, _Met] = {}
        self._start, self._end = np.zeros(1_024, np.int64), np.zeros(1_024, np.int64)
        self._predicate, self._similarity = np.zeros(4_096, np.int32), np.zeros(4_096)
        self._rows = self._size = 0
        self._others = self._letters = 0
        """Attributes and sets of tags that were met; the characters of all that was."""
        self._settled: tuple[Any, Any, Any, Any, Listing] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Tuples and similarities that are remembered."""
        return self._rows, self._size

    def rows(self, columns: Sequence[TupleColumn], themes: Themes) -> Rows:
        """The rows of a batch's events; tuples that were not met before are looked at."""
        with self._lock:
            if self._size > REMEMBERED or self._rows + self._others > TUPLES or self._letters > LETTERS:
                self._forget()
            met = [self._of_tags(self._meaning.themes | own) for own in themes.sets]
            for each, own in zip(met, themes.sets, strict=True):
                self._meet(each, [c.attribute for c in columns], self._meaning.themes | own)
            alive = [c for c in columns if any(each.lines[c.attribute] >= 0 for each in met)]
            size = len(columns[0].codes) if columns else 0
            found = np.full((size, len(alive)), -1, np.int32)
            for n, column in enumerate(alive):
                found[:, n] = self._column(column, met, themes)
            self._settled = self._settled or self._settle()
            return Rows(found, *self._settled)

    def look_at(self, other: Memory) -> None:
        """Look at all that another has met, a little at a time: whoever matches meanwhile does not wait for it."""
        with self._lock:
            seen = [(tags, {n: list(met.rows.get(n, ())) for n in met.lines}) for tags, met in other._met.items()]
        for tags, attributes in seen:
            with self._lock:
                met = self._of_tags(tags)
                self._meet(met, list(attributes), tags)
            for attribute, keys in attributes.items():
                for begin in range(0, len(keys) if met.lines[attribute] >= 0 else 0, _FEW):
                    values = [key if isinstance(key, str) else key[1] for key in keys[begin : begin + _FEW]]
                    with self._lock:
                        self._numbered(met, attribute, values, np.arange(len(values)), tags)

    def _settle(self) -> tuple[Any, Any, Any, Any, Listing]:
        """The rows without what is hopeless. That depends on all tuples: it is done again when there are new ones."""
        predicate, similarity = self._predicate[: self._size], self._similarity[: self._size]
        most = np.zeros(len(self._plan.bound))
        np.maximum.at(most, predicate, similarity)
        alive, bound = self._plan.hopes(most)
        kept = similarity >= bound[predicate]
        at = np.append(0, np.cumsum(kept))
        predicate, similarity = predicate[kept], similarity[kept]
        listing = self._plan.listed(np.bincount(predicate, minlength=len(bound)), alive)
        return at[self._start[: self._rows]], at[self._end[: self._rows]], predicate, similarity, listing

    def _of_tags(self, tags: Theme) -> _Met:
        if tags not in self._met:
            self._met[tags] = _Met(len(self._plan.name_bound))
            self._others += 1
            self._letters += sum(map(len, tags))
        return self._met[tags]

    def _meet(self, met: _Met, attributes: list[str], of: Theme) -> None:
        """Compare attributes that are new with all names."""
        new = [each for each in dict.fromkeys(attributes) if each not in met.lines]
        if not new:
            return
        semantics = self._meaning.semantics
        figures = np.concatenate([names.figures(semantics, new, of) for names in self._plan.names], axis=1)
        most = in_company(figures, self._plan.company_of_name) if semantics.rivalry else figures
        alive = ((most > 0) & (most >= self._plan.name_bound)).any(axis=1)
        for attribute, line in zip(new, (np.cumsum(alive) - 1 + len(met.figures)).tolist(), strict=True):
            met.lines[attribute] = line
        for attribute in (each for each, some in zip(new, alive.tolist(), strict=True) if not some):
            met.lines[attribute] = -1
        met.figures = np.concatenate([met.figures, figures[alive]])
        self._others += len(new)
        self._letters += sum(map(len, new))

    def _column(self, column: TupleColumn, met: Sequence[_Met], themes: Themes) -> Any:
        """The row of each event's value."""
        size = len(column.values)
        if not size:
            return -1
        codes: Any = np.maximum(column.codes, -1)
        if themes.codes is not None:
            codes = np.where(codes >= 0, codes + themes.codes * size, -1)
        used, places = _distinct(codes, len(met) * size)
        cuts = np.searchsorted(used, np.arange(len(met) + 1) * size)
        table = np.full(len(used) + 1, -1, np.int32)  # the last is that of none
        for n, each in enumerate(met):
            begin, end = cuts[n], cuts[n + 1]
            if begin < end and each.lines[column.attribute] >= 0:
                tags = self._meaning.themes | themes.sets[n]
                mine = used[begin:end] - n * size
                table[begin:end] = self._numbered(each, column.attribute, column.values, mine, tags)
        return table[places]

    def _numbered(self, met: _Met, attribute: str, values: Sequence[Scalar], used: Any, tags: Theme) -> list[int]:
        """The rows of some values of an attribute."""
        rows = met.rows.setdefault(attribute, {})
        keys = [_key(values[n]) for n in used.tolist()]
        new = [n for n, key in zip(used.tolist(), keys, strict=True) if key not in rows]
        step = max(1, _AT_ONCE // max(1, len(self._plan.value_of)))
        for begin in range(0, len(new), step):
            chosen = [values[n] for n in new[begin : begin + step]]
            for value, row in zip(chosen, self._made(met, attribute, chosen, tags), strict=True):
                rows[_key(value)] = row
        return [rows[key] for key in keys]

    def _made(self, met: _Met, attribute: str, values: list[Scalar], of: Theme) -> range:
        """Make rows of values that are new."""
        plan, semantics = self._plan, self._meaning.semantics
        figures = np.concatenate([each.figures(semantics, values, of) for each in plan.values], axis=1)
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
        self._settled = None
        self._letters += sum(len(value) for value in values if isinstance(value, str))
        self._rows += len(values)
        return range(self._rows - len(values), self._rows)


def _distinct(codes: Any, bound: int) -> tuple[Any, Any]:
    """Which codes there are, rising, and of each event the place of its own there; -1 where it has none.

    By marks, which is fastest, unless there are many more codes than events: where each event has tags of its own, the
    codes are as many as the events squared.
    """
    if bound > 16 * len(codes):
        used, places = np.unique(codes, return_inverse=True)
        without = int(len(used) > 0 and used[0] < 0)
        return used[without:], places - without
    present = np.zeros(bound + 1, bool)  # the last is that of none
    present[codes] = True
    used = np.flatnonzero(present[:-1])
    places = np.full(len(present), -1, np.int64)
    places[used] = np.arange(len(used))
    return used, places[codes]


def _key(value: Scalar) -> Any:
    """What tells values apart: True is no 1."""
    return value if isinstance(value, str) else (isinstance(value, bool), value)


def _put(array: Any, at: int, values: Any) -> Any:
    """Write behind what is there, into more room where it is needed: whoever reads the old array goes on."""
    if at + len(values) > len(array):
        grown = np.zeros(max(2 * len(array), at + len(values)), array.dtype)
        grown[:at] = array[:at]
        array = grown
    array[at : at + len(values)] = values
    return array
