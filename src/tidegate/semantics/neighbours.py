"""What a term is near to: the documents that say most of it, and the terms that they are about."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tidegate.semantics.bulk import Vector
from tidegate.semantics.projection import Basis
from tidegate.semantics.relatedness import Relatedness
from tidegate.semantics.space import Space
from tidegate.semantics.storage import Array

_CHUNK = 1_000_000
"""Postings that are weighed at a time."""
_CANDIDATES = 20
"""Terms that are compared by the measure, for each that is wanted."""


def concepts(related: Relatedness, text: str, themes: Iterable[str] = (), count: int = 10) -> list[tuple[str, float]]:
    """The titles of the documents that say most of a term, and its weights there."""
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
    """The titles of the documents that say most of two terms, each in its theme, and the share of each in what is said.

    Shares are of the product of both vectors: over all documents that both have they sum to 1.
    """
    left, right = related.vector(a, themes_a), related.vector(b, themes_b)
    both, in_left, in_right = np.intersect1d(left.documents, right.documents, assume_unique=True, return_indices=True)
    products = left.weights[in_left] * right.weights[in_right]
    order = np.argsort(-products, kind="stable")[:count]
    total = products.sum()
    return [(related.space.titles[int(both[at])], float(products[at] / total)) for at in order]


def nearest(related: Relatedness, text: str, themes: Iterable[str] = (), count: int = 10) -> list[tuple[str, float]]:
    """The terms of the space that are most related to a term, in the same theme; its own words are left out.

    One pass over the space finds those with the least angle by all their documents; the measure ranks these.
    """
    themes = frozenset(themes)
    vector = related.vector(text, themes)
    own = set(related.space.words(text))
    cosines = _cosines(related.space, vector, related.basis(themes), related.measure.outside)
    wanted = min(len(cosines), _CANDIDATES * count + len(own))
    best = np.argpartition(-cosines, wanted - 1)[:wanted]
    found = []
    for number in np.sort(best[cosines[best] > 0]):
        term = related.space.terms[int(number)]
        other = related.term_vector(term, themes)
        if term not in own and len(other):
            found.append((term, related.measure.compare(vector, other)))
    return sorted(found, key=lambda pair: -pair[1])[:count]


def _cosines(space: Space, vector: Vector, basis: Basis, outside: float) -> Array:
    """The cosine of a vector and every term, by damped frequencies; an idf is the same in all documents of a term."""
    dense = np.zeros(space.size)
    dense[vector.documents] = vector.weights
    counts = space.lengths > 0  # a document whose every term is too rare to be in the space has no length
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
