"""Inner products of many texts with many, by the words that they are made of and the documents that words share.

    texts ──▶ their words, each once ──by shared documents──▶ products of words ──added up──▶ products of texts

A text's vector is the sum of its words', so a product of texts is the sum of those of their words. A few thousand words
make all texts there are, and of 300 documents of 13,000 two words share a handful: so the work is in what is new and
shared, not in what there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.semantics.storage import Array


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """A term's weights: the documents where they are not 0, in rising order."""

    documents: Array
    weights: Array

    def __len__(self) -> int:
        return len(self.documents)


NOTHING = Vector(np.empty(0, np.uint32), np.empty(0))


_CELLS = 2**20
"""Figures of words that are added up at once, 8 MB: what a cache holds, and however long texts are."""


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts as sums of words."""

    words: Sequence[Vector]
    """Each once."""
    known: Array
    """Which texts have a word."""
    starts: Array
    """Where the words of each of these begin in `word`; one entry more says where the last ends."""
    word: Array
    squares: Array
    """Of each text the product of its vector with itself; 0: it has none."""

    @classmethod
    def of(cls, words: Sequence[Vector], parts: Sequence[Sequence[int]], squares: Array) -> Texts:
        """Of each text its words, by their places among all."""
        known = [n for n, each in enumerate(parts) if each]
        starts = np.cumsum([0, *(len(parts[n]) for n in known)])
        word = np.array([place for n in known for place in parts[n]], np.int64)
        return cls(words, np.array(known, np.int64), starts, word, squares)

    def added(self, figures: Array) -> Array:
        """Of figures with a row a word, those with a row a text."""
        out = np.zeros((len(self.squares), figures.shape[1]))
        at_once = _CELLS // max(1, figures.shape[1])
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

    starts: Array
    """Where those that have a document begin."""
    vector: Array
    weight: Array
    size: int
    """How many vectors there are."""

    @classmethod
    def of(cls, vectors: Sequence[Vector], documents: int) -> Lines:
        """Turn vectors over a space of so many documents."""
        where = np.concatenate([np.empty(0, np.int64), *(each.documents for each in vectors)]).astype(np.int64)
        own = np.repeat(np.arange(len(vectors)), [len(each) for each in vectors])
        weight = np.concatenate([np.empty(0), *(each.weights for each in vectors)])
        order = np.argsort(where, kind="stable")
        starts = np.searchsorted(where[order], np.arange(documents + 1))
        return cls(starts, own[order], weight[order], len(vectors))


def products(lines: Lines, left: Texts, right: Texts) -> Array:
    """A row a text of the left, whose words are the lines; a column a text of the right."""
    return right.added(left.added(_products(lines, right.words)).T).T


_AT_ONCE = 4_000_000
"""Shared documents that are added up at once: some 100 MB."""


def _products(lines: Lines, vectors: Sequence[Vector]) -> Array:
    """A row a line, a column a vector."""
    out = np.zeros((len(vectors), lines.size))
    begin = 0
    while begin < len(vectors):
        end, work = begin, 0
        while end < len(vectors) and (end == begin or work < _AT_ONCE):
            work += _work(lines, vectors[end])
            end += 1
        _add(lines, vectors[begin:end], out[begin:end])
        begin = end
    return out.T


def _work(lines: Lines, vector: Vector) -> int:
    return int((lines.starts[vector.documents.astype(np.int64) + 1] - lines.starts[vector.documents]).sum())


def _add(lines: Lines, vectors: Sequence[Vector], out: Array) -> None:
    documents = np.concatenate([each.documents for each in vectors]).astype(np.int64)
    own = np.repeat(np.arange(len(vectors)), [len(each) for each in vectors])
    weight = np.concatenate([each.weights for each in vectors])
    counts = lines.starts[documents + 1] - lines.starts[documents]
    ends = np.append(0, np.cumsum(counts))
    at = np.repeat(lines.starts[documents] - ends[:-1], counts) + np.arange(ends[-1])
    cell = np.repeat(own, counts) * out.shape[1] + lines.vector[at]
    total = np.bincount(cell, np.repeat(weight, counts) * lines.weight[at], out.size)
    out += total.reshape(out.shape)
