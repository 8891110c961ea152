"""The weight of a term in a document: the formulas, over arrays.

    paper   tf = 0.5 + 0.5 f / peak      idf = ln(|B| / n)         (equations 2 and 3)
    best    tf = 1 + ln f                idf = ln(1 + |B| / n)     divided by the document's length

f: occurrences of the term in the document; peak: occurrences of the document's most frequent term; |B|: number of
documents in the basis, which is the whole space or a theme; n: number of them in which the term occurs.
"""

from __future__ import annotations

import math

import numpy as np

from tidegate.filters.vectors import NumpyArray


def paper_tf(counts: NumpyArray, peaks: NumpyArray) -> NumpyArray:
    """Return the term frequency by equation 2."""
    return 0.5 + 0.5 * counts / peaks


def paper_idf(basis: int, occurs_in: int) -> float:
    """Return the inverse document frequency by equation 3; 0 for a term that occurs in all documents of the basis."""
    return math.log(basis / occurs_in)


def log_tf(counts: NumpyArray) -> NumpyArray:
    """Return damped term frequencies: the tenth occurrence of a word adds little to the ninth."""
    return 1.0 + np.log(counts)


def smooth_idf(basis: int, occurs_in: int) -> float:
    """Return an inverse document frequency that is never 0.

    By the paper's formula the term `energy` has weight 0 in the basis of the theme `energy`, although it means
    something there.
    """
    return math.log1p(basis / occurs_in)


_CHUNK = 4_000_000


def lengths(starts: NumpyArray, documents: NumpyArray, counts: NumpyArray, size: int) -> NumpyArray:
    """Return the Euclidean length of each document as the vector of its terms' weights in the whole space."""
    squares = np.zeros(size)
    idf = np.log1p(size / np.diff(starts).astype(np.float64))
    for begin in range(0, len(documents), _CHUNK):
        end = min(begin + _CHUNK, len(documents))
        term = np.searchsorted(starts, np.arange(begin, end), side="right") - 1
        weighed = (1.0 + np.log(counts[begin:end])) * idf[term]
        squares += np.bincount(documents[begin:end], weighed * weighed, size)
    return np.sqrt(squares)
