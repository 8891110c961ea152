"""The neighbourhood of a term: its most important documents, and the most related terms."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tidegate.filters.vectors import NumpyArray
from tidegate.semantics.bulk import TermVector
from tidegate.semantics.projection import Basis
from tidegate.semantics.relatedness import Relatedness
from tidegate.semantics.space import Space

_CHUNK = 1_000_000
"""Postings that are weighted at a time."""
_CANDIDATES = 20
"""Candidates that the measure compares per requested term."""


def concepts(related: Relatedness, text: str, themes: Iterable[str] = (), count: int = 10) -> list[tuple[str, float]]:
    """Return the titles of the documents in which a term has the greatest weight, and these weights."""
    vector = related.vector(text, themes)
    order = np.argsort(-vector.weights, kind="stable")[:count]
    return [(related.space.titles[int(vector.documents[at])], float(vector.weights[at])) for at in order]


def shared(
    related: Relatedness,
    a: str,
    b: str,
    themes_a: Iterable[str] = (),
    themes_b: Iterable[str] = (),
    count: int = 10,
) -> list[tuple[str, float]]:
    """Return the titles of the documents that contribute most to the relatedness of two terms, and their shares.

    A share is the part of the inner product of both vectors; all shares sum to 1.
    """
    left, right = related.vector(a, themes_a), related.vector(b, themes_b)
    both, in_left, in_right = np.intersect1d(left.documents, right.documents, assume_unique=True, return_indices=True)
    products = left.weights[in_left] * right.weights[in_right]
    order = np.argsort(-products, kind="stable")[:count]
    total = products.sum()
    return [(related.space.titles[int(both[at])], float(products[at] / total)) for at in order]


def nearest(related: Relatedness, text: str, themes: Iterable[str] = (), count: int = 10) -> list[tuple[str, float]]:
    """Return the terms of the space that are most related to a term in the same theme, without its own words.

    One pass over the space finds candidates by the cosine over all their documents; the measure ranks these.
    """
    themes = frozenset(themes)
    vector = related.vector(text, themes)
    own = set(related.space.words(text))
    cosines = _cosines(related.space, vector, related.basis(themes), related.measure.outside)
    candidates = min(len(cosines), _CANDIDATES * count + len(own))
    best = np.argpartition(-cosines, candidates - 1)[:candidates]
    related_terms = []
    for number in np.sort(best[cosines[best] > 0]):
        term = related.space.terms[int(number)]
        other = related.term_vector(term, themes)
        if term not in own and len(other):
            related_terms.append((term, related.measure.compare(vector, other)))
    return sorted(related_terms, key=lambda pair: -pair[1])[:count]


def _cosines(space: Space, vector: TermVector, basis: Basis, outside: float) -> NumpyArray:
    """Return the cosine of a vector and every term, by damped frequencies. The idf is a constant factor of a term."""
    dense = np.zeros(space.size)
    dense[vector.documents] = vector.weights
    counts = space.lengths > 0  # a document has length 0 if all its terms are too rare for the space
    shares = np.divide(1.0, space.lengths, out=np.zeros(space.size), where=counts)
    if basis.holds is not None:
        shares[~basis.holds] *= outside
    products, squares = np.empty(len(space.terms)), np.empty(len(space.terms))
    begin = 0
    while begin < len(space.terms):
        first = int(space.starts[begin])
        end = max(begin + 1, int(np.searchsorted(space.starts, first + _CHUNK, side="right")) - 1)
        documents = space.documents[first : int(space.starts[end])]
        weights = (1.0 + np.log(space.counts[first : int(space.starts[end])])) * shares[documents]
        cuts = (space.starts[begin:end] - np.uint64(first)).astype(np.intp)
        products[begin:end] = np.add.reduceat(weights * dense[documents], cuts)
        squares[begin:end] = np.add.reduceat(weights * weights, cuts)
        begin = end
    return np.divide(products, np.sqrt(squares), out=np.zeros(len(products)), where=squares > 0)
