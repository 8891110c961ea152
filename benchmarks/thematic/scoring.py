"""Degrees of all events for all subscriptions from relatedness matrices, and their quality.

The matcher proper is `tidegate.matching`; here is the plainest fast version of its rule, so that thousands of themes
can be measured: the best assignment of predicates to tuples by sets of predicates, and the geometric mean of its
similarities.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numba
import numpy as np

from benchmarks.thematic.events import EventSet
from tidegate.filters.thematic import competed
from tidegate.filters.vectors import NumpyArray
from tidegate.semantics import NamedSemantics


class Interned:
    """An event set as numbers."""

    def __init__(self, given: EventSet) -> None:
        self.relevant = np.array(given.relevant)
        wanted = sorted({pair for each in given.subscriptions for pair in each})
        met = sorted({pair for each in given.events for pair in each.items()})
        self.attributes, self.values = (list(dict.fromkeys(side)) for side in zip(*wanted, strict=True))
        self.event_attributes, self.event_values = (list(dict.fromkeys(side)) for side in zip(*met, strict=True))
        self._by_name = np.ix_(*_places(0, (wanted, self.attributes), (met, self.event_attributes)))
        self._by_value = np.ix_(*_places(1, (wanted, self.values), (met, self.event_values)))
        self._wanted = _numbers(given.subscriptions, wanted)
        self._events = _numbers([tuple(each.items()) for each in given.events], met)

    def degrees(
        self, semantics: NamedSemantics, themes: Collection[str] = (), event_themes: Collection[str] = ()
    ) -> NumpyArray:
        """Return the degrees: one row per subscription, one column per event."""
        tags = frozenset(themes), frozenset(event_themes)
        names = semantics.relatedness(self.attributes, self.event_attributes, *tags)
        values = semantics.relatedness(self.values, self.event_values, *tags)
        similar = competed(names[self._by_name], values[self._by_value], semantics.rivalry)
        out = np.zeros(self.relevant.shape)
        _score(similar, *self._wanted, *self._events, out)
        return out


Pairs = Sequence[tuple[str, str]]


def _places(side: int, *several: tuple[Pairs, list[str]]) -> list[list[int]]:
    """Return the indices of the names, or values, of pairs among all."""
    return [[terms.index(pair[side]) for pair in pairs] for pairs, terms in several]


def _numbers(lists: Sequence[Pairs], every: Pairs) -> tuple[NumpyArray, NumpyArray]:
    """Return each list of pairs as indices, and its length."""
    place = {pair: n for n, pair in enumerate(every)}
    sizes = np.array([len(each) for each in lists])
    found = np.zeros((len(lists), sizes.max()), np.int64)
    for row, each in enumerate(lists):
        found[row, : len(each)] = [place[pair] for pair in each]
    return found, sizes


@numba.njit(cache=True)
def _score(
    similar: NumpyArray,
    wanted: NumpyArray,
    predicates: NumpyArray,
    events: NumpyArray,
    tuples: NumpyArray,
    out: NumpyArray,
) -> None:
    best = np.empty(16)
    for row in range(len(predicates)):
        sets = 1 << predicates[row]
        for column in range(len(tuples)):
            best[:sets] = 0.0
            best[0] = 1.0
            for at in range(tuples[column]):
                for done in range(sets - 1, -1, -1):
                    if best[done] == 0.0:
                        continue
                    for each in range(predicates[row]):
                        if (done >> each) & 1:
                            continue
                        found = best[done] * similar[wanted[row, each], events[column, at]]
                        best[done | (1 << each)] = max(best[done | (1 << each)], found)
            out[row, column] = best[sets - 1] ** (1 / predicates[row])


LEVELS = np.arange(11) / 10


def best_f1(degrees: NumpyArray, relevant: NumpyArray) -> float:
    """Return the maximum F1 over eleven levels of recall; precision is the mean over subscriptions, ties rank last."""
    total = np.zeros(len(LEVELS))
    asked = 0
    for row, wanted in zip(degrees, relevant, strict=True):
        many = wanted.sum()
        if not many:
            continue
        asked += 1
        hits = np.cumsum(wanted[np.lexsort((wanted, -row))])
        precision = hits / np.arange(1, len(hits) + 1)
        greatest = np.maximum.accumulate(precision[::-1])[::-1]
        total += greatest[np.searchsorted(hits / many, LEVELS - 1e-9)]
    precision = total / asked
    return float((2 * LEVELS * precision / (LEVELS + precision)).max())


def f1_at(degrees: NumpyArray, relevant: NumpyArray, threshold: float) -> float:
    """Return F1 at one threshold: precision and recall are means over subscriptions; no match has precision 0."""
    asked = relevant.any(axis=1)
    matched = (degrees >= threshold)[asked]
    hits = (matched & relevant[asked]).sum(axis=1)
    precision = float((hits / np.maximum(matched.sum(axis=1), 1)).mean())
    recall = float((hits / relevant[asked].sum(axis=1)).mean())
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@dataclass(frozen=True)
class Score:
    """The results of one run."""

    f1: float
    """The maximum F1 over levels of recall, as in the paper."""
    fixed: float
    """F1 at the threshold of the semantics."""
    events_s: float
    """Events per second, including the computation of relatedness, as in the paper."""


def score(
    given: Interned, semantics: NamedSemantics, themes: Collection[str] = (), event_themes: Collection[str] = ()
) -> Score:
    """One run."""
    begin = time.perf_counter()
    degrees = given.degrees(semantics, themes, event_themes)
    taken = time.perf_counter() - begin
    return Score(
        best_f1(degrees, given.relevant),
        f1_at(degrees, given.relevant, semantics.threshold),
        given.relevant.shape[1] / taken,
    )
