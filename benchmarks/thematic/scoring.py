"""Degrees of all events for all subscriptions out of matrices of figures, and how good they are.

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
        """A row a subscription, a column an event."""
        tags = frozenset(themes), frozenset(event_themes)
        names = semantics.relatedness(self.attributes, self.event_attributes, *tags)
        values = semantics.relatedness(self.values, self.event_values, *tags)
        similar = competed(names[self._by_name], values[self._by_value], semantics.rivalry)
        out = np.zeros(self.relevant.shape)
        _score(similar, *self._wanted, *self._events, out)
        return out


Pairs = Sequence[tuple[str, str]]


def _places(side: int, *several: tuple[Pairs, list[str]]) -> list[list[int]]:
    """Where the names, or the values, of pairs stand among all."""
    return [[terms.index(pair[side]) for pair in pairs] for pairs, terms in several]


def _numbers(lists: Sequence[Pairs], every: Pairs) -> tuple[NumpyArray, NumpyArray]:
    """Each list of pairs as places among all, and how many it has."""
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
    """The greatest F1 over eleven levels of recall; precision is the mean over subscriptions, ties rank against us."""
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
    """F1 of one threshold for all: precision and recall averaged over subscriptions; no match has precision 0."""
    asked = relevant.any(axis=1)
    matched = (degrees >= threshold)[asked]
    hits = (matched & relevant[asked]).sum(axis=1)
    precision = float((hits / np.maximum(matched.sum(axis=1), 1)).mean())
    recall = float((hits / relevant[asked].sum(axis=1)).mean())
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@dataclass(frozen=True)
class Score:
    """What one run gives."""

    f1: float
    """The greatest over levels of recall: the paper's figure."""
    fixed: float
    """At the semantics' own threshold."""
    events_s: float
    """Figures that are not remembered included, as in the paper."""


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
