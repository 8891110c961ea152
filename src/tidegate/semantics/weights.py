"""How much a document says of a term: the formulas, over arrays.

    paper   tf = 0.5 + 0.5 f / peak      idf = ln(|B| / n)         (equations 2 and 3)
    best    tf = 1 + ln f                idf = ln(1 + |B| / n)     divided by the document's length

f: how often the term occurs in the document; peak: how often the document's commonest term does; |B|: documents
of the basis, all or those of a theme; n: those of them that the term occurs in.
"""

from __future__ import annotations

import math

import numpy as np

from tidegate.semantics.storage import Array


def paper_tf(counts: Array, peaks: Array) -> Array:
    """Equation 2."""
    return 0.5 + 0.5 * counts / peaks


def paper_idf(basis: int, occurs_in: int) -> float:
    """Equation 3; 0 where the term occurs in all documents of the basis."""
    return math.log(basis / occurs_in)


def log_tf(counts: Array) -> Array:
    """The tenth time that a document says a word says little more than the ninth."""
    return 1.0 + np.log(counts)


def smooth_idf(basis: int, occurs_in: int) -> float:
    """Never 0: in the basis of the theme `energy`, where the paper's idf says so, the term `energy` means something."""
    return math.log1p(basis / occurs_in)


_CHUNK = 4_000_000


def lengths(starts: Array, documents: Array, counts: Array, size: int) -> Array:
    """The Euclidean length of each document, as the vector of the weights of its terms in the whole space."""
    found = np.zeros(size)
    idf = np.log1p(size / np.diff(starts).astype(np.float64))
    for begin in range(0, len(documents), _CHUNK):
        end = min(begin + _CHUNK, len(documents))
        term = np.searchsorted(starts, np.arange(begin, end), side="right") - 1
        weighed = (1.0 + np.log(counts[begin:end])) * idf[term]
        found += np.bincount(documents[begin:end], weighed * weighed, size)
    return np.sqrt(found)
