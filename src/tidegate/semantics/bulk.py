"""Inner products of many texts with many texts, computed by their words.

    texts ──▶ distinct words ──by shared documents──▶ products of words ──added up──▶ products of texts

The vector of a text is the sum of the vectors of its words, so a product of texts is the sum of products of words. A
few thousand words make up all texts, and two words share only a few of their 300 documents. So the time depends on the
number of new and shared words, not on the size of the space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.filters.vectors import NumpyArray


@dataclass(frozen=True, slots=True, eq=False)
class TermVector:
    """The weights of a term that are not 0, by document in ascending order."""

    documents: NumpyArray
    weights: NumpyArray

    def __len__(self) -> int:
        return len(self.documents)


NOTHING = TermVector(np.empty(0, np.uint32), np.empty(0))


_MAX_CELLS = 2**20
"""Numbers that are added up at once: 8 MB, which fit into a cache, for texts of any length."""


@dataclass(frozen=True, slots=True, eq=False)
class WordSums:
    """Texts as sums of words."""

    words: Sequence[TermVector]
    """The distinct words."""
    known: NumpyArray
    """Indices of the texts that have a word."""
    starts: NumpyArray
    """Offset of each of these texts' words in `word`, and the end of the last."""
    word: NumpyArray
    squares: NumpyArray
    """Inner product of each text's vector with itself; 0: the text has no vector."""

    @classmethod
    def of(cls, words: Sequence[TermVector], parts: Sequence[Sequence[int]], squares: NumpyArray) -> WordSums:
        """Build from the indices of each text's words."""
        known = [n for n, words_of_text in enumerate(parts) if words_of_text]
        starts = np.cumsum([0, *(len(parts[n]) for n in known)])
        word = np.array([place for n in known for place in parts[n]], np.int64)
        return cls(words, np.array(known, np.int64), starts, word, squares)

    def added(self, figures: NumpyArray) -> NumpyArray:
        """Return numbers per text, given numbers per word: each text gets the sum over its words."""
        out = np.zeros((len(self.squares), figures.shape[1]))
        at_once = _MAX_CELLS // max(1, figures.shape[1])
        begin = 0
        while begin < len(self.known):
            first = self.starts[begin]
            end = max(begin + 1, int(np.searchsorted(self.starts, first + at_once, side="right")) - 1)
            rows = figures[self.word[first : self.starts[end]]]
            out[self.known[begin:end]] = np.add.reduceat(rows, self.starts[begin:end] - first, axis=0)
            begin = end
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Vectors by document."""

    starts: NumpyArray
    """Offset of each document's entries."""
    vector: NumpyArray
    weight: NumpyArray
    size: int
    """Number of vectors."""

    @classmethod
    def of(cls, vectors: Sequence[TermVector], documents: int) -> Lines:
        """Transpose vectors over a space with this many documents."""
        where = np.concatenate([np.empty(0, np.int64), *(vector.documents for vector in vectors)]).astype(np.int64)
        own = np.repeat(np.arange(len(vectors)), [len(vector) for vector in vectors])
        weight = np.concatenate([np.empty(0), *(vector.weights for vector in vectors)])
        order = np.argsort(where, kind="stable")
        starts = np.searchsorted(where[order], np.arange(documents + 1))
        return cls(starts, own[order], weight[order], len(vectors))


def products(lines: Lines, left: WordSums, right: WordSums) -> NumpyArray:
    """Return the inner products of texts: one row per text of `left`, one column per text of `right`.

    `lines` are the words of `left`, by document.
    """
    return right.added(left.added(_products(lines, right.words)).T).T


_MAX_SHARED_AT_ONCE = 4_000_000
"""Shared documents that are added up at once: about 100 MB."""


def _products(lines: Lines, vectors: Sequence[TermVector]) -> NumpyArray:
    """Return the inner products: one row per line, one column per vector."""
    out = np.zeros((len(vectors), lines.size))
    begin = 0
    while begin < len(vectors):
        end, work = begin, 0
        while end < len(vectors) and (end == begin or work < _MAX_SHARED_AT_ONCE):
            work += _work(lines, vectors[end])
            end += 1
        _add(lines, vectors[begin:end], out[begin:end])
        begin = end
    return out.T


def _work(lines: Lines, vector: TermVector) -> int:
    return int((lines.starts[vector.documents.astype(np.int64) + 1] - lines.starts[vector.documents]).sum())


def _add(lines: Lines, vectors: Sequence[TermVector], out: NumpyArray) -> None:
    documents = np.concatenate([vector.documents for vector in vectors]).astype(np.int64)
    own = np.repeat(np.arange(len(vectors)), [len(vector) for vector in vectors])
    weight = np.concatenate([vector.weights for vector in vectors])
    counts = lines.starts[documents + 1] - lines.starts[documents]
    ends = np.append(0, np.cumsum(counts))
    at = np.repeat(lines.starts[documents] - ends[:-1], counts) + np.arange(ends[-1])
    cell = np.repeat(own, counts) * out.shape[1] + lines.vector[at]
    total = np.bincount(cell, np.repeat(weight, counts) * lines.weight[at], out.size)
    out += total.reshape(out.shape)
