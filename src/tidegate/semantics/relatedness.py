"""How related two terms are, from 0 to 1, each in its theme.

What a measure can't know is settled before it is asked (`rules.py`). A term without a vector is 0 with everything but
itself: no word of it is known, or every weight is 0. (By the paper's equation 6 two such terms would be 1, the distance
between nothing and nothing.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from cachetools import LRUCache

from tidegate.semantics import bulk, weights
from tidegate.semantics.bulk import NOTHING, Vector
from tidegate.semantics.projection import LONGEST, Basis, basis_of
from tidegate.semantics.rules import all_settled, settled
from tidegate.semantics.space import Occurrences, Space
from tidegate.semantics.storage import Array


class Measure(Protocol):
    """How a word becomes a vector, and two vectors a figure."""

    name: str
    outside: float
    """How much a document outside of the theme counts; 0: not at all, as in the paper."""

    def word(self, space: Space, found: Occurrences, basis: Basis) -> Vector:
        """The vector of a word by its occurrences in the space, one or more, in the basis of a theme."""

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
    outside = 0.0

    def word(self, space: Space, found: Occurrences, basis: Basis) -> Vector:
        """Equation 4, in the basis of a theme as Algorithm 1 has it: whatever is outside does not count."""
        left = basis.of(found)
        idf = weights.paper_idf(basis.size, len(left.documents)) if len(left.documents) else 0.0
        if idf == 0:
            return NOTHING
        return Vector(left.documents, weights.paper_tf(left.counts, space.peaks[left.documents]) * idf)

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

    A theme makes its documents count more, and leaves the others their say: tags that few documents have, or that
    do not quite fit, turn the sense of a word and do not take all meaning from it.
    """

    name = "best"

    def __init__(self, documents: int = 300, outside: float = 0.3) -> None:
        self._most = documents
        self.outside = outside

    def word(self, space: Space, found: Occurrences, basis: Basis) -> Vector:
        """The documents that say most of a word. Their lengths are those of the whole space, in any theme.

        The vector is as long as the word is rare in the theme, which counts in a text of several words: `noise` says
        more of `increased noise event` than the other two. (The sum of vectors of any length matched 0.82, this 0.86.)
        """
        weighed = weights.log_tf(found.counts) / space.lengths[found.documents]
        size, occurs_in = space.size, len(found.documents)
        if basis.holds is not None:
            inside = basis.holds[found.documents]
            weighed *= np.where(inside, 1.0, self.outside)
            if inside.any():
                size, occurs_in = basis.size, int(inside.sum())
        kept = _greatest(weighed.round(12), self._most)  # equals stay equal, however they are rounded
        kept = kept[weighed[kept] > 0]
        weighed = weighed[kept]
        idf = weights.smooth_idf(size, occurs_in)
        return Vector(found.documents[kept], weighed * (idf / np.sqrt(weighed @ weighed))) if len(kept) else NOTHING

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


Parts = list[tuple[str, frozenset[str]]]
"""The words of a text that have a vector, and the theme that they have it in."""


class Relatedness:
    """How related terms are by a space and a measure. What it works out it remembers.

    Events repeat their words: a cached figure takes a microsecond or two, a new one a hundred. The `remembered` most
    recently used figures are cached. Not thread-safe: `shared.Shared` adds a lock.
    """

    def __init__(self, space: Space, measure: Measure | None = None, remembered: int = 1_000_000) -> None:
        self.space = space
        self.measure: Measure = measure or CosineEsa()
        self._remembered = remembered
        self._figures: LRUCache[tuple[str, str, frozenset[str], frozenset[str]], float] = LRUCache(remembered)
        bases = max(1, min(_MAX_CACHED_BASES, _MAX_BASIS_BYTES // space.size))
        self._bases: LRUCache[frozenset[str], Basis] = LRUCache(bases)
        self._vectors = _vector_cache(min(_MAX_CACHED_VECTORS, remembered))
        self._terms = _vector_cache(min(_MAX_CACHED_VECTORS, remembered))
        self._subscribed: LRUCache[tuple[tuple[str, ...], frozenset[str]], tuple[bulk.Lines, bulk.Texts]]
        self._subscribed = LRUCache(_MAX_CACHED_LISTS)

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
        known = all_settled(subscribed, terms)
        return np.where(np.isnan(known), np.nan_to_num(self.figures(subscribed, terms, theme, of)), known)

    def figures(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: Iterable[str], of: Iterable[str]
    ) -> Array:
        """What the measure says of many terms; NaN where one has no vector."""
        lines, left = self._lines(tuple(subscribed), frozenset(theme))
        event_theme = frozenset(of)
        parts = [self._parts(term, event_theme) for term in terms]
        out = np.empty((len(subscribed), len(terms)))
        for begin, end in _runs(parts, _PRODUCTS // max(1, lines.size)):
            right = self._texts(parts[begin:end])
            found = self.measure.figures(bulk.products(lines, left, right), left.squares, right.squares)
            known = (left.squares[:, None] > 0) & (right.squares > 0)
            out[:, begin:end] = np.where(known, found, np.nan)
        return out

    def _lines(self, subscribed: tuple[str, ...], theme: frozenset[str]) -> tuple[bulk.Lines, bulk.Texts]:
        """Words by document. Those of the last questions are kept: subscriptions change seldom, events always."""
        key = subscribed, theme
        lines = self._subscribed.get(key)
        if lines is None:
            texts = self._texts([self._parts(text, theme) for text in subscribed])
            lines = self._subscribed[key] = bulk.Lines.of(texts.words, self.space.size), texts
        return lines

    def _texts(self, texts: Sequence[Parts]) -> bulk.Texts:
        """Texts as sums of words, each of which is there once."""
        places: dict[tuple[str, frozenset[str]], int] = {}
        numbered = [[places.setdefault(part, len(places)) for part in parts] for parts in texts]
        sums = (self._added(parts).weights for parts in texts)
        squares = np.array([float(weights @ weights) for weights in sums])
        return bulk.Texts.of([self.term_vector(*part) for part in places], numbered, squares)

    def __reduce__(self) -> tuple[object, ...]:
        """A process that is handed one begins with nothing remembered: that may be hundreds of megabytes."""
        return Relatedness, (self.space, self.measure, self._remembered)

    def __call__(self, a: str, b: str, themes_a: Iterable[str] = (), themes_b: Iterable[str] = ()) -> float:
        """How related `a` in its theme is to `b` in its own; the other way round is the same."""
        key = a, b, frozenset(themes_a), frozenset(themes_b)
        figure = self._figures.get(key)
        if figure is None:
            figure = self._figures[key] = self._figure(*key)
        return figure

    def _figure(self, a: str, b: str, themes_a: frozenset[str], themes_b: frozenset[str]) -> float:
        known = settled(a, b)
        if known is not None:
            return known
        left, right = self.vector(a, themes_a), self.vector(b, themes_b)
        return self.measure.compare(left, right) if len(left) and len(right) else 0.0

    def vector(self, text: str, themes: Iterable[str] = ()) -> Vector:
        """A text in a theme. That of several words is the sum of those that have one, each as often as it is there.

        One that means nothing in its theme, as no word of it occurs there, or each in all documents, is taken as
        without a theme: a tag must not silence what it does not speak of. Of a long text the first `LONGEST`
        characters count: no event may take seconds.
        """
        key = text[:LONGEST], frozenset(themes)
        vector = self._vectors.get(key)
        if vector is None:
            vector = self._vectors[key] = self._added(self._parts(*key))
        return vector

    def _added(self, parts: Parts) -> Vector:
        return _sum([self.term_vector(*part) for part in parts])

    def _parts(self, text: str, theme: frozenset[str]) -> Parts:
        """The words of a text that have a vector, and the theme that they have it in."""
        words = [(word, theme) for word in self.space.words(text[:LONGEST])]
        found = [part for part in words if len(self.term_vector(*part))]
        return found if found or not theme else self._parts(text, frozenset())

    def basis(self, themes: Iterable[str]) -> Basis:
        """The documents of a theme."""
        key = frozenset(themes)
        basis = self._bases.get(key)
        if basis is None:
            basis = self._bases[key] = basis_of(self.space, key)
        return basis

    def term_vector(self, term: str, themes: Iterable[str] = ()) -> Vector:
        """One term as the space has it, in a theme."""
        key = term, frozenset(themes)
        vector = self._terms.get(key)
        if vector is None:
            vector = self._terms[key] = self._term_vector(*key)
        return vector

    def _term_vector(self, term: str, themes: frozenset[str]) -> Vector:
        known = self.space.occurrences(term)
        return NOTHING if known is None else self.measure.word(self.space, known, self.basis(themes))


def _vector_cache(max_vectors: int) -> LRUCache[tuple[str, frozenset[str]], Vector]:
    """Return a cache by text and theme, of at most `max_vectors` vectors and `_MAX_CACHED_WEIGHTS` weights."""
    budget = _MAX_CACHED_WEIGHTS
    least = max(1, budget // max_vectors)
    return LRUCache(budget, getsizeof=lambda vector: min(budget, max(least, len(vector))))


THRESHOLD = 0.3
"""The least degree of a match by `CosineEsa`, where nobody names one."""

_MAX_CACHED_LISTS = 16
"""Lists of subscribed terms whose vectors are cached by document: names and values of a few themes."""

_AT_ONCE, _PRODUCTS = 256, 2**22
"""Terms of events whose vectors are held at a time, and products of their words with subscribed ones: 32 MB."""

_MAX_CACHED_VECTORS = 20_000
"""Cached vectors of texts: some 4 KB for each word of `CosineEsa`, up to the whole space by the paper."""
_MAX_CACHED_WEIGHTS = 2**24
"""Weights of all these vectors, 12 bytes each: a sentence has thousands of documents."""
_MAX_CACHED_BASES, _MAX_BASIS_BYTES = 500, 2**28
"""Cached themes, one byte for each document of the space; and the bytes of all of them."""


def _runs(texts: Sequence[Parts], words: int) -> Iterator[tuple[int, int]]:
    """Texts as runs of so many words at most, or one text: events may bring long ones."""
    begin = held = 0
    for end, parts in enumerate(texts):
        if end > begin and (held + len(parts) > words or end - begin >= _AT_ONCE):
            yield begin, end
            begin, held = end, 0
        held += len(parts)
    if texts:
        yield begin, len(texts)


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
