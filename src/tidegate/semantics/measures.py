"""How related subscribed terms are to those of events: what a matcher asks for, many at once.

Every answer is a matrix, a row a subscribed term and a column a term of events. A *source* says what it knows by
itself, with NaN for what it does not know; a *semantics* is what a matcher uses: a source by the common rules
(`Alone`), or several together (`competition.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidegate.filters import meaning
from tidegate.semantics.bulk import Vector
from tidegate.semantics.relatedness import Measure, PaperEsa, Relatedness
from tidegate.semantics.rules import all_settled
from tidegate.semantics.space import Space
from tidegate.semantics.storage import Array


class Semantics(meaning.Semantics, Protocol):
    """What a matcher by meaning needs."""

    @property
    def name(self) -> str:
        """What explains and benchmarks call it."""

    @property
    def documents(self) -> Relatedness | None:
        """What knows terms by documents, which can be shown; None: nothing here does."""


class Source(Protocol):
    """One way to know how related terms are."""

    name: str

    def figures(
        self, subscribed: Sequence[str], terms: Sequence[str], themes: Collection[str], event_themes: Collection[str]
    ) -> Array:
        """At most 1; NaN where a side is unknown, or does not occur in its theme."""


class Esa:
    """The documents of a space, weighed by a measure."""

    def __init__(self, space: Space, measure: Measure | None = None) -> None:
        self.related = Relatedness(space, measure)
        self.name = f"esa-{self.related.measure.name}"
        self._spread: dict[tuple[tuple[str, ...], frozenset[str]], _Spread] = {}

    def figures(
        self, subscribed: Sequence[str], terms: Sequence[str], themes: Collection[str], event_themes: Collection[str]
    ) -> Array:
        """By products of matrices over the documents that subscribed terms have; of very many, by documents."""
        if len(subscribed) > _AT_ONCE:
            return self.related.figures(subscribed, terms, themes, event_themes)
        left = self._of(tuple(subscribed), frozenset(themes))
        out = np.full((len(subscribed), len(terms)), np.nan)
        for begin in range(0, len(terms), _AT_ONCE):
            columns = [self.related.vector(text, event_themes) for text in terms[begin : begin + _AT_ONCE]]
            known = [n for n, each in enumerate(columns) if len(each)]
            right = [columns[n] for n in known]
            products = left.dense @ _dense(right, left.place, left.dense.shape[1]).T
            figures = self.related.measure.figures(products, left.squares, _squares(right))
            out[np.ix_(left.known, [begin + n for n in known])] = figures
        return out

    def _of(self, subscribed: tuple[str, ...], themes: frozenset[str]) -> _Spread:
        """What is subscribed to, spread over documents. The last are kept: events bring new words, these stay."""
        key = subscribed, themes
        found = self._spread.get(key)
        if found is None:
            found = _Spread.of([self.related.vector(text, themes) for text in subscribed], self.related.space.size)
            if found.dense.size <= _KEPT_WEIGHTS:
                if len(self._spread) >= _KEPT:
                    self._spread.clear()
                self._spread[key] = found
        return found

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_spread": {}}


@dataclass(frozen=True, slots=True, eq=False)
class _Spread:
    """Vectors as a matrix over the documents that any of them has."""

    known: list[int]
    """Which of the texts have a vector."""
    place: Array
    """Of every document its column; -1: no vector has it."""
    dense: Array
    squares: Array

    @classmethod
    def of(cls, vectors: list[Vector], size: int) -> _Spread:
        known = [n for n, each in enumerate(vectors) if len(each)]
        left = [vectors[n] for n in known]
        place, width = _places(left, size)
        return cls(known, place, _dense(left, place, width), _squares(left))


_KEPT, _KEPT_WEIGHTS = 4, 2**22
"""Matrices that are kept, names and values of two themes, and the weights that one of these may have: 32 MB."""

_AT_ONCE = 256
"""Terms whose vectors are held and spread over documents at a time. Of more of them few share anything with a term."""


def _places(vectors: list[Vector], size: int) -> tuple[Array, int]:
    """Of every document the column it gets, -1 where no vector has it; and how many columns there are."""
    held = np.zeros(size, bool)
    for each in vectors:
        held[each.documents] = True
    width = int(held.sum())
    place = np.full(size, -1, np.int64)
    place[held] = np.arange(width)
    return place, width


def _dense(vectors: list[Vector], place: Array, width: int) -> Array:
    out = np.zeros((len(vectors), width))
    for row, each in zip(out, vectors, strict=True):
        at = place[each.documents]
        row[at[at >= 0]] = each.weights[at >= 0]
    return out


def _squares(vectors: list[Vector]) -> Array:
    return np.array([each.weights @ each.weights for each in vectors])


class Alone:
    """One source as a matcher can use it: what it does not know is 0.

    With `rules`, the same text is 1 in any theme and numbers are compared as numbers; without, everything is what the
    source says: the paper by the letter.
    """

    def __init__(self, source: Source, threshold: float, *, rules: bool = True) -> None:
        self.name = source.name if rules else f"{source.name}-by-the-letter"
        self.threshold = threshold
        self.rivalry = 0.0
        self.documents = source.related if isinstance(source, Esa) else None
        self._source = source
        self._rules = rules

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: Collection[str] = (), of: Collection[str] = ()
    ) -> Array:
        """The source's figures."""
        raw = self._source.figures(subscribed, terms, theme, of)
        found = np.asarray(np.clip(np.nan_to_num(raw), 0.0, 1.0))
        if not self._rules:
            return found
        known = all_settled(subscribed, terms)
        return np.where(np.isnan(known), found, known)


PAPER_THRESHOLD = 0.2
"""Where precision and recall of `paper` met on our own events; the paper has none, it cuts by recall."""


def paper(space: Space, *, rules: bool = True) -> Alone:
    """The paper's measure, equation by equation; `rules=False` also without the identical-string rule."""
    return Alone(Esa(space, PaperEsa()), PAPER_THRESHOLD, rules=rules)
