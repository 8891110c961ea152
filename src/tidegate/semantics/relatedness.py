"""Relatedness of two terms, from 0 to 1, each in its theme.

`rules.py` decides what a measure can't know before the measure is asked. A term without a vector has relatedness 0 with
everything but itself: none of its words is known, or every weight is 0. (By the paper's equation 6, two such terms
would have relatedness 1, because the distance of two zero vectors is 0.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from cachetools import LRUCache

from tidegate.filters.vectors import NumpyArray
from tidegate.semantics import bulk, weights
from tidegate.semantics.bulk import NOTHING, TermVector
from tidegate.semantics.projection import MAX_TEXT_CHARS, Basis, basis_of
from tidegate.semantics.rules import all_settled, settled
from tidegate.semantics.space import Occurrences, Space


class Measure(Protocol):
    """How a word becomes a vector, and two vectors a relatedness."""

    name: str
    outside: float
    """Weight factor of documents outside the theme; 0: they do not count, as in the paper."""

    def word(self, space: Space, occurrences: Occurrences, basis: Basis) -> TermVector:
        """Return the vector of a word from its occurrences (one or more) in the basis of a theme."""

    def compare(self, a: TermVector, b: TermVector) -> float:
        """Return how related two vectors are, from 0 to 1; neither is empty."""

    def figures(self, products: NumpyArray, left: NumpyArray, right: NumpyArray) -> NumpyArray:
        """Return how related many vectors are, from their inner products and squares: one row and column per vector."""


class PaperEsa:
    """Equations 2 to 6 of the paper: tf-idf and Euclidean distance.

    A word in every document of its basis has weight 0 in each, so it has no vector there. Rare words have short
    vectors, so they seem related to each other: see `CosineEsa`.
    """

    name = "paper"
    outside = 0.0

    def word(self, space: Space, occurrences: Occurrences, basis: Basis) -> TermVector:
        """Return the vector by equation 4; documents outside the basis do not count, as in Algorithm 1."""
        left = basis.of(occurrences)
        idf = weights.paper_idf(basis.size, len(left.documents)) if len(left.documents) else 0.0
        if idf == 0:
            return NOTHING
        return TermVector(left.documents, weights.paper_tf(left.counts, space.peaks[left.documents]) * idf)

    def compare(self, a: TermVector, b: TermVector) -> float:
        """Return the relatedness by equations 5 and 6."""
        in_a, in_b = _common(a, b)
        alone_a, alone_b = np.delete(a.weights, in_a), np.delete(b.weights, in_b)
        apart = a.weights[in_a] - b.weights[in_b]
        return float(1 / (1 + np.sqrt(alone_a @ alone_a + alone_b @ alone_b + apart @ apart)))

    def figures(self, products: NumpyArray, left: NumpyArray, right: NumpyArray) -> NumpyArray:
        """Return the relatedness by equations 5 and 6 for many vectors."""
        apart = np.maximum(left[:, None] + right - 2 * products, 0.0)
        return np.where((left[:, None] > 0) & (right > 0), 1 / (1 + np.sqrt(apart)), 0.0)


class CosineEsa:
    """The cosine of vectors of damped frequencies, divided by the lengths of the documents.

    Only the documents with the greatest weights are kept: the others are noise and cost time. Their number is the best
    of eight on MEN, over 13,000 articles (`docs/spec/semantics.md`).

    A theme increases the weight of its documents, but others still count: tags that few documents have, or that do not
    quite fit, change the sense of a word without removing all of its meaning.
    """

    name = "best"

    def __init__(self, documents: int = 300, outside: float = 0.3) -> None:
        self._max_documents = documents
        self.outside = outside

    def word(self, space: Space, occurrences: Occurrences, basis: Basis) -> TermVector:
        """Return the documents with the greatest weights. Their lengths are those of the whole space, in any theme.

        The vector is longer if the word is rarer in the theme. This counts in a text of several words: `noise`
        contributes more to `increased noise event` than the other two words. (This scaling raised the match quality
        from 0.82 to 0.86.)
        """
        weighed = weights.log_tf(occurrences.counts) / space.lengths[occurrences.documents]
        size, occurs_in = space.size, len(occurrences.documents)
        if basis.holds is not None:
            inside = basis.holds[occurrences.documents]
            weighed *= np.where(inside, 1.0, self.outside)
            if inside.any():
                size, occurs_in = basis.size, int(inside.sum())
        greatest = _greatest(
            weighed.round(12), self._max_documents
        )  # rounded, so that equal weights stay equal on every machine
        greatest = greatest[weighed[greatest] > 0]
        weighed = weighed[greatest]
        idf = weights.smooth_idf(size, occurs_in)
        return (
            TermVector(occurrences.documents[greatest], weighed * (idf / np.sqrt(weighed @ weighed)))
            if len(greatest)
            else NOTHING
        )

    def compare(self, a: TermVector, b: TermVector) -> float:
        """Return the cosine."""
        in_a, in_b = _common(a, b)
        product = float(a.weights[in_a] @ b.weights[in_b])
        return min(1.0, product / float(np.sqrt((a.weights @ a.weights) * (b.weights @ b.weights))))

    def figures(self, products: NumpyArray, left: NumpyArray, right: NumpyArray) -> NumpyArray:
        """Return the cosines of many vectors."""
        lengths = np.sqrt(left[:, None] * right)
        cosines: NumpyArray = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
        return np.minimum(1.0, cosines)


WordsInTheme = list[tuple[str, frozenset[str]]]
"""The words of a text that have a vector, with the theme in which they have it."""


class Relatedness:
    """Relatedness of terms by a space and a measure, with caches.

    Events repeat their words: a cached result takes a microsecond or two, a new one a hundred. The `remembered` most
    recently used results are cached. Not thread-safe: `shared.Shared` adds a lock.
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
        self._subscribed: LRUCache[tuple[tuple[str, ...], frozenset[str]], tuple[bulk.Lines, bulk.WordSums]]
        self._subscribed = LRUCache(_MAX_CACHED_LISTS)

    rivalry = 0.0
    """Predicates do not compete."""

    @property
    def threshold(self) -> float:
        """Minimum degree of a match for filters that name none."""
        return THRESHOLD

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: frozenset[str], of: frozenset[str]
    ) -> NumpyArray:
        """Return how related terms are: one row per subscribed term, one column per term of events."""
        known = all_settled(subscribed, terms)
        return np.where(np.isnan(known), np.nan_to_num(self.figures(subscribed, terms, theme, of)), known)

    def figures(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: Iterable[str], of: Iterable[str]
    ) -> NumpyArray:
        """Return the relatedness by the measure; NaN for a term without a vector."""
        lines, left = self._lines(tuple(subscribed), frozenset(theme))
        event_theme = frozenset(of)
        parts = [self._parts(term, event_theme) for term in terms]
        out = np.empty((len(subscribed), len(terms)))
        for begin, end in _runs(parts, _MAX_PRODUCTS // max(1, lines.size)):
            right = self._texts(parts[begin:end])
            by_measure = self.measure.figures(bulk.products(lines, left, right), left.squares, right.squares)
            known = (left.squares[:, None] > 0) & (right.squares > 0)
            out[:, begin:end] = np.where(known, by_measure, np.nan)
        return out

    def _lines(self, subscribed: tuple[str, ...], theme: frozenset[str]) -> tuple[bulk.Lines, bulk.WordSums]:
        """Return the words of subscribed terms by document; cached, because subscriptions change seldom."""
        key = subscribed, theme
        lines = self._subscribed.get(key)
        if lines is None:
            texts = self._texts([self._parts(text, theme) for text in subscribed])
            lines = self._subscribed[key] = bulk.Lines.of(texts.words, self.space.size), texts
        return lines

    def _texts(self, texts: Sequence[WordsInTheme]) -> bulk.WordSums:
        """Return texts as sums of their distinct words."""
        indices: dict[tuple[str, frozenset[str]], int] = {}
        numbered = [[indices.setdefault(part, len(indices)) for part in parts] for parts in texts]
        sums = (self._added(parts).weights for parts in texts)
        squares = np.array([float(weights @ weights) for weights in sums])
        return bulk.WordSums.of([self.term_vector(*part) for part in indices], numbered, squares)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the caches, which may take hundreds of megabytes."""
        return Relatedness, (self.space, self.measure, self._remembered)

    def __call__(self, a: str, b: str, themes_a: Iterable[str] = (), themes_b: Iterable[str] = ()) -> float:
        """Return how related `a` in its theme is to `b` in its own; symmetric."""
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

    def vector(self, text: str, themes: Iterable[str] = ()) -> TermVector:
        """Return the vector of a text in a theme: the sum of its words' vectors, each as often as it occurs.

        A text without a vector in its theme, because none of its words occurs there or each occurs in all documents, is
        read without the theme: a tag must not silence words that it is not about. Only the first `MAX_TEXT_CHARS`
        characters of a long text count, so that no event takes seconds.
        """
        key = text[:MAX_TEXT_CHARS], frozenset(themes)
        vector = self._vectors.get(key)
        if vector is None:
            vector = self._vectors[key] = self._added(self._parts(*key))
        return vector

    def _added(self, parts: WordsInTheme) -> TermVector:
        return _sum([self.term_vector(*part) for part in parts])

    def _parts(self, text: str, theme: frozenset[str]) -> WordsInTheme:
        """Return the words of a text that have a vector, with the theme in which they have it."""
        words = [(word, theme) for word in self.space.words(text[:MAX_TEXT_CHARS])]
        known_words = [part for part in words if len(self.term_vector(*part))]
        return known_words if known_words or not theme else self._parts(text, frozenset())

    def basis(self, themes: Iterable[str]) -> Basis:
        """Return the documents of a theme."""
        key = frozenset(themes)
        basis = self._bases.get(key)
        if basis is None:
            basis = self._bases[key] = basis_of(self.space, key)
        return basis

    def term_vector(self, term: str, themes: Iterable[str] = ()) -> TermVector:
        """Return the vector of one term of the space in a theme; empty if the term is unknown."""
        key = term, frozenset(themes)
        vector = self._terms.get(key)
        if vector is None:
            vector = self._terms[key] = self._term_vector(*key)
        return vector

    def _term_vector(self, term: str, themes: frozenset[str]) -> TermVector:
        known = self.space.occurrences(term)
        return NOTHING if known is None else self.measure.word(self.space, known, self.basis(themes))


def _vector_cache(max_vectors: int) -> LRUCache[tuple[str, frozenset[str]], TermVector]:
    """Return a cache by text and theme, of at most `max_vectors` vectors and `_MAX_CACHED_WEIGHTS` weights."""
    budget = _MAX_CACHED_WEIGHTS
    min_size = max(1, budget // max_vectors)
    return LRUCache(budget, getsizeof=lambda vector: min(budget, max(min_size, len(vector))))


THRESHOLD = 0.3
"""Minimum degree of a match by `CosineEsa` for filters that name none."""

_MAX_CACHED_LISTS = 16
"""Lists of subscribed terms whose vectors are cached by document: names and values of a few themes."""

_MAX_TERMS_AT_ONCE, _MAX_PRODUCTS = 256, 2**22
"""Terms of events that are processed at a time, and products of their words with subscribed ones: 32 MB."""

_MAX_CACHED_VECTORS = 20_000
"""Cached vectors of texts: some 4 KB for each word of `CosineEsa`, up to the whole space by the paper."""
_MAX_CACHED_WEIGHTS = 2**24
"""Weights of all these vectors, 12 bytes each: a sentence has thousands of documents."""
_MAX_CACHED_BASES, _MAX_BASIS_BYTES = 500, 2**28
"""Cached themes, one byte for each document of the space; and the bytes of all of them."""


def _runs(texts: Sequence[WordsInTheme], words: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of texts with at most `words` words together. A longer text has a range of its own."""
    begin = word_count = 0
    for end, parts in enumerate(texts):
        if end > begin and (word_count + len(parts) > words or end - begin >= _MAX_TERMS_AT_ONCE):
            yield begin, end
            begin, word_count = end, 0
        word_count += len(parts)
    if texts:
        yield begin, len(texts)


def _common(a: TermVector, b: TermVector) -> tuple[NumpyArray, NumpyArray]:
    """Return the indices, in each vector, of the documents that both have."""
    _, in_a, in_b = np.intersect1d(a.documents, b.documents, assume_unique=True, return_indices=True)
    return in_a, in_b


def _greatest(values: NumpyArray, limit: int) -> NumpyArray:
    """Return the indices of the greatest values, ascending; of equal values the first, so that the result is
    deterministic.
    """
    if len(values) <= limit:
        return np.arange(len(values))
    lowest = np.partition(values, -limit)[-limit]
    above = values > lowest
    equal = np.flatnonzero(values == lowest)[: limit - int(above.sum())]
    above[equal] = True
    return np.flatnonzero(above)


def _sum(vectors: list[TermVector]) -> TermVector:
    if len(vectors) < 2:
        return vectors[0] if vectors else NOTHING
    documents, indices = np.unique(np.concatenate([vector.documents for vector in vectors]), return_inverse=True)
    total = np.bincount(indices, np.concatenate([vector.weights for vector in vectors]), len(documents))
    return TermVector(documents, total)
