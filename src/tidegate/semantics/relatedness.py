"""How related two terms are, from 0 to 1, each in its theme.

What a measure can't know is settled before it is asked, for every measure alike:

1. The same text, whatever its capitals and blanks, is 1, known to the space or not.
2. Two numbers are 1 or 0: equal or not. `5` and `5.0` are equal.
3. Texts that both name numbers, and not the same ones, are 0: `room 112` is not `room 113`.
4. A term without a vector is 0 with everything else: no word of it is known or occurs in its theme, or every weight
   is 0. (By the paper's equation 6 two such terms would be 1, the distance between nothing and nothing.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Protocol

import numpy as np

from tidegate.semantics import bulk, weights
from tidegate.semantics.bulk import NOTHING, Vector
from tidegate.semantics.projection import LONGEST as LONGEST
from tidegate.semantics.projection import Basis, basis_of
from tidegate.semantics.space import Occurrences, Space
from tidegate.semantics.storage import Array


class Measure(Protocol):
    """How a word becomes a vector, and two vectors a figure."""

    name: str

    def word(self, space: Space, found: Occurrences, basis: int) -> Vector:
        """The vector of a word by its occurrences, one or more, in a basis of so many documents."""

    def compare(self, a: Vector, b: Vector) -> float:
        """How related two vectors are, from 0 to 1; neither is empty."""

    def figures(self, products: Array, left: Array, right: Array) -> Array:
        """The same of many: a row and a column a vector, by their inner products and squares."""


class PaperEsa:
    """Equations 2 to 6 of the paper as they stand: tf-idf and Euclidean distance.

    A word in every document of its basis has weight 0 in each, so it has no vector there. Rare words have short
    vectors, so they look related to each other whatever they mean: see `CosineEsa`.
    """

    name = "paper"

    def word(self, space: Space, found: Occurrences, basis: int) -> Vector:
        """Equation 4, in the basis of a theme as Algorithm 1 has it."""
        idf = weights.paper_idf(basis, len(found.documents))
        if idf == 0:
            return NOTHING
        return Vector(found.documents, weights.paper_tf(found.counts, space.peaks[found.documents]) * idf)

    def compare(self, a: Vector, b: Vector) -> float:
        """Equations 5 and 6."""
        in_a, in_b = _common(a, b)
        alone_a, alone_b = np.delete(a.weights, in_a), np.delete(b.weights, in_b)
        apart = a.weights[in_a] - b.weights[in_b]
        return float(1 / (1 + np.sqrt(alone_a @ alone_a + alone_b @ alone_b + apart @ apart)))

    def figures(self, products: Array, left: Array, right: Array) -> Array:
        """Equations 5 and 6, of many at once."""
        apart = np.maximum(left[:, None] + right - 2 * products, 0.0)
        return np.where((left[:, None] > 0) & (right > 0), 1 / (1 + np.sqrt(apart)), 0.0)


class CosineEsa:
    """The angle between vectors of damped frequencies, each document's share in them by its length.

    Only the documents that say most of a word are kept: what says little is noise, and costs time. How many is the
    best of eight sizes on MEN, over 13,000 articles (`docs/spec/semantics.md`).
    """

    name = "best"

    def __init__(self, documents: int = 300) -> None:
        self._most = documents

    def word(self, space: Space, found: Occurrences, basis: int) -> Vector:
        """The documents that say most of a word. Their lengths are those of the whole space, in any theme.

        The vector is as long as the word is rare, which counts in a text of several words: `noise` says more of
        `increased noise event` than the other two. (The sum of vectors of any length matched 0.82, this 0.86.)
        """
        weighed = weights.log_tf(found.counts) / space.lengths[found.documents]
        kept = _greatest(weighed, self._most)
        weighed = weighed[kept]
        idf = weights.smooth_idf(basis, len(found.documents))
        return Vector(found.documents[kept], weighed * (idf / np.sqrt(weighed @ weighed)))

    def compare(self, a: Vector, b: Vector) -> float:
        """The cosine."""
        in_a, in_b = _common(a, b)
        product = float(a.weights[in_a] @ b.weights[in_b])
        return min(1.0, product / float(np.sqrt((a.weights @ a.weights) * (b.weights @ b.weights))))

    def figures(self, products: Array, left: Array, right: Array) -> Array:
        """The cosines."""
        lengths = np.sqrt(left[:, None] * right)
        cosines: Array = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
        return np.minimum(1.0, cosines)


class Relatedness:
    """How related terms are by a space and a measure. What it works out it remembers.

    Events repeat their words: a figure that is known takes a microsecond, a new one a hundred. `remembered` figures are
    kept, then all are forgotten at once. Not for several threads at once.
    """

    def __init__(self, space: Space, measure: Measure | None = None, remembered: int = 1_000_000) -> None:
        self.space = space
        self.measure: Measure = measure or CosineEsa()
        self._remembered = remembered
        self._figures: dict[tuple[str, str, frozenset[str], frozenset[str]], float] = {}
        self._bases: dict[frozenset[str], Basis] = {}
        self._vectors = _Kept(min(_VECTORS, remembered))
        self._terms = _Kept(min(_VECTORS, remembered))
        self._subscribed: dict[tuple[tuple[str, ...], frozenset[str]], bulk.Lines] = {}

    rivalry = 0.0
    """Nothing competes."""

    @property
    def threshold(self) -> float:
        """The least degree of a match where nobody names one."""
        return THRESHOLD

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: frozenset[str], of: frozenset[str]
    ) -> Array:
        """How related many terms are: a row a subscribed term, a column a term of events."""
        return all_settled(subscribed, terms, np.nan_to_num(self.figures(subscribed, terms, theme, of)))

    def figures(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: Iterable[str], of: Iterable[str]
    ) -> Array:
        """What the measure says of many terms; NaN where one has no vector."""
        lines = self._lines(tuple(subscribed), frozenset(theme))
        out = np.empty((len(subscribed), len(terms)))
        for begin in range(0, len(terms), _AT_ONCE):
            right = [self.vector(term, of) for term in terms[begin : begin + _AT_ONCE]]
            squares = bulk.squares(right)
            found = self.measure.figures(bulk.products(lines, right), lines.squares, squares)
            known = (lines.squares[:, None] > 0) & (squares > 0)
            out[:, begin : begin + _AT_ONCE] = np.where(known, found, np.nan)
        return out

    def _lines(self, subscribed: tuple[str, ...], theme: frozenset[str]) -> bulk.Lines:
        """Vectors by document. Those of the last questions are kept: subscriptions change seldom, events always."""
        key = subscribed, theme
        if key not in self._subscribed:
            if len(self._subscribed) >= _QUESTIONS:
                self._subscribed.clear()
            vectors = [self.vector(term, theme) for term in subscribed]
            self._subscribed[key] = bulk.Lines.of(vectors, self.space.size)
        return self._subscribed[key]

    def __call__(self, a: str, b: str, themes_a: Iterable[str] = (), themes_b: Iterable[str] = ()) -> float:
        """How related `a` in its theme is to `b` in its own; the other way round is the same."""
        key = a, b, frozenset(themes_a), frozenset(themes_b)
        found = self._figures.get(key)
        if found is None:
            if len(self._figures) >= self._remembered:
                self._figures.clear()
            found = self._figures[key] = self._figure(*key)
        return found

    def _figure(self, a: str, b: str, themes_a: frozenset[str], themes_b: frozenset[str]) -> float:
        known = settled(a, b)
        if known is not None:
            return known
        left, right = self.vector(a, themes_a), self.vector(b, themes_b)
        return self.measure.compare(left, right) if len(left) and len(right) else 0.0

    def vector(self, text: str, themes: Iterable[str] = ()) -> Vector:
        """A text in a theme. That of several words is the sum of those that have one, each as often as it is there.

        Of a long text the first `LONGEST` characters count: no event may take seconds.
        """
        key = text[:LONGEST], frozenset(themes)
        found = self._vectors.get(key)
        if found is None:
            words = (self.term_vector(word, key[1]) for word in self.space.words(key[0]))
            found = self._vectors.put(key, _sum([word for word in words if len(word)]))
        return found

    def basis(self, themes: Iterable[str]) -> Basis:
        """The documents of a theme."""
        key = frozenset(themes)
        found = self._bases.get(key)
        if found is None:
            if len(self._bases) >= min(_BASES, _BASIS_BYTES // self.space.size):
                self._bases.clear()
            found = self._bases[key] = basis_of(self.space, key)
        return found

    def term_vector(self, term: str, themes: Iterable[str] = ()) -> Vector:
        """One term as the space has it, in a theme."""
        key = term, frozenset(themes)
        found = self._terms.get(key)
        if found is None:
            found = self._terms.put(key, self._term_vector(*key))
        return found

    def _term_vector(self, term: str, themes: frozenset[str]) -> Vector:
        known = self.space.occurrences(term)
        if known is None:
            return NOTHING
        basis = self.basis(themes)
        left = basis.of(known)
        return self.measure.word(self.space, left, basis.size) if len(left.documents) else NOTHING


class _Kept:
    """Vectors by text and theme: so many, and weights of so many documents; then all are forgotten at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[tuple[str, frozenset[str]], Vector] = {}
        self._weights = 0

    def get(self, key: tuple[str, frozenset[str]]) -> Vector | None:
        return self._found.get(key)

    def put(self, key: tuple[str, frozenset[str]], vector: Vector) -> Vector:
        if len(self._found) >= self._most or self._weights > _WEIGHTS:
            self._found.clear()
            self._weights = 0
        self._weights += len(vector)
        self._found[key] = vector
        return vector

    def __len__(self) -> int:
        return len(self._found)


THRESHOLD = 0.3
"""The least degree of a match by `CosineEsa`, where nobody names one."""

_QUESTIONS = 16
"""Lists of subscribed terms whose vectors are kept by document: names and values of a few themes."""

_AT_ONCE = 1_024
"""Terms of events whose vectors are held at a time."""

_VECTORS = 20_000
"""Texts whose vectors are remembered: some 4 KB for each word of `CosineEsa`, up to the whole space by the paper."""
_WEIGHTS = 2**24
"""Weights of all these vectors, 12 bytes each: a sentence has documents by the thousand."""
_BASES, _BASIS_BYTES = 500, 2**28
"""Themes whose documents are remembered, a byte for each document of the space; and how many bytes of all."""


def _common(a: Vector, b: Vector) -> tuple[Array, Array]:
    """Where in each vector the documents are that both have."""
    _, in_a, in_b = np.intersect1d(a.documents, b.documents, assume_unique=True, return_indices=True)
    return in_a, in_b


def _greatest(values: Array, most: int) -> Array:
    """Where the greatest values are, in rising order; of equals the first, so that a vector is the same everywhere."""
    if len(values) <= most:
        return np.arange(len(values))
    least = np.partition(values, -most)[-most]
    above = values > least
    equal = np.flatnonzero(values == least)[: most - int(above.sum())]
    above[equal] = True
    return np.flatnonzero(above)


def _sum(vectors: list[Vector]) -> Vector:
    if len(vectors) < 2:
        return vectors[0] if vectors else NOTHING
    documents, places = np.unique(np.concatenate([each.documents for each in vectors]), return_inverse=True)
    total = np.bincount(places, np.concatenate([each.weights for each in vectors]), len(documents))
    return Vector(documents, total)


NUMBER = re.compile(r"[+-]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,3})?", re.ASCII)
WITH_DIGIT = re.compile(r"[^\W_]*\d[^\W_]*")


def normal(text: str) -> str:
    """A text without what does not change it: capitals, and how many blanks there are."""
    return " ".join(text.split()).casefold()


def all_settled(left: Sequence[str], right: Sequence[str], figures: Array) -> Array:
    """Figures of many terms, with what needs no space put right: a row and a column a term."""
    folded = [[normal(term) for term in terms] for terms in (left, right)]
    named = _marked(folded, lambda text: tuple(sorted(WITH_DIGIT.findall(text))) or None)
    number = _marked(folded, lambda text: Decimal(text) if NUMBER.fullmatch(text) else None)
    text = _marked(folded, lambda text: text)
    figures = np.where((named[0] != named[1]) & (named[0] > 0) & (named[1] > 0), 0.0, figures)
    figures = np.where((number[0] > 0) & (number[1] > 0), number[0] == number[1], figures)
    return np.where(text[0] == text[1], 1.0, figures)


def _marked(folded: Sequence[Sequence[str]], mark: Callable[[str], object]) -> tuple[Array, Array]:
    """A number for each text's mark, the same for the same, as a column and as a row; 0: it has none."""
    numbers: dict[object, int] = {None: 0}
    one, other = ([numbers.setdefault(mark(text), len(numbers)) for text in texts] for texts in folded)
    return np.array(one)[:, None], np.array(other)


def settled(a: str, b: str) -> float | None:
    """What needs no space; None: ask the measure."""
    a, b = normal(a), normal(b)
    if a == b:
        return 1.0
    if NUMBER.fullmatch(a) and NUMBER.fullmatch(b):
        return float(Decimal(a) == Decimal(b))
    numbers_a, numbers_b = sorted(WITH_DIGIT.findall(a)), sorted(WITH_DIGIT.findall(b))
    return 0.0 if numbers_a and numbers_b and numbers_a != numbers_b else None
