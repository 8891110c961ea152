"""Runs: counted documents as files that are sorted for merging.

A run holds documents in the order of their positions in the corpus, and the postings of their terms in the order of the
terms. Runs are read sequentially, so that a merge holds one term of each run in memory. At most `FAN_IN` runs are open
at once; if there are more, groups are merged first.

    run-0/  documents   one line per document: [position, words, peak, title]
            terms       one line per term
            sizes.u32   number of postings of each term
            places.i64  counts.u32   the postings, in ascending order of positions
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tidegate.filters.vectors import NumpyArray
from tidegate.semantics.storage import Parameters
from tidegate.semantics.words import Analyser

POSTINGS_IN_MEMORY = 2_000_000
"""Postings of a run: 32 MB, and three times that while they are sorted."""
FAN_IN = 64
"""Number of runs that are merged at a time; each has four files open."""


class Postings(NamedTuple):
    """The documents in which a term occurs, ascending, and how often it occurs in each."""

    term: str
    documents: NumpyArray
    """Positions in the corpus while counting; numbers of documents in the finished space."""
    counts: NumpyArray


class CountedDocument(NamedTuple):
    """A document that was counted."""

    position: int
    words: int
    peak: int
    title: str


class RunWriter:
    """Counts documents into runs in a folder; documents may come in any order of positions."""

    def __init__(self, folder: Path, parameters: Parameters, postings_in_memory: int = POSTINGS_IN_MEMORY) -> None:
        self._folder = folder
        self._parameters = parameters
        self._limit = postings_in_memory
        self._analyser = Analyser()
        self._written = 0
        self._begin()

    def _begin(self) -> None:
        self._documents_in_memory: list[CountedDocument] = []
        self._numbers: dict[str, int] = {}
        self._terms, self._positions, self._counts = array("I"), array("q"), array("I")

    def add(self, position: int, title: str, text: str) -> None:
        """Count one document. A document that is too short is listed without postings."""
        counts = self._analyser.counts(text)
        words = sum(counts.values())
        self._documents_in_memory.append(CountedDocument(position, words, max(counts.values(), default=0), title))
        if self._parameters.keeps(words):
            numbers = self._numbers
            self._terms.extend([numbers.setdefault(term, len(numbers)) for term in counts])
            self._positions.extend([position] * len(counts))
            self._counts.extend(counts.values())
            if self.is_full:
                self.spill()

    @property
    def is_full(self) -> bool:
        """True if the postings in memory have reached their limit."""
        return len(self._terms) >= self._limit

    @property
    def written(self) -> int:
        """Number of runs written."""
        return self._written

    def spill(self) -> None:
        """Write the postings in memory as a run."""
        if self._documents_in_memory:
            write_run(self._folder / f"run-{self._written}", sorted(self._documents_in_memory), self._sorted())
            self._written += 1
            self._begin()

    def _sorted(self) -> Iterator[Postings]:
        names = sorted(self._numbers)
        ranks = np.empty(len(names), np.uint32)
        ranks[[self._numbers[term] for term in names]] = np.arange(len(names), dtype=np.uint32)
        terms = ranks[np.frombuffer(self._terms, np.uint32)]
        positions, counts = np.frombuffer(self._positions, np.int64), np.frombuffer(self._counts, np.uint32)
        rising = len(positions) < 2 or bool((positions[1:] >= positions[:-1]).all())
        order = np.argsort(terms, kind="stable") if rising else np.lexsort((positions, terms))
        positions, counts = positions[order], counts[order]
        end = 0
        for term, size in zip(names, np.bincount(terms, minlength=len(names)).tolist(), strict=True):
            begin, end = end, end + size
            yield Postings(term, positions[begin:end], counts[begin:end])


def write_run(folder: Path, documents: Iterable[CountedDocument], postings: Iterable[Postings]) -> None:
    """Write a run into a new folder."""
    folder.mkdir()
    with (folder / "documents").open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(item) + "\n" for item in documents)
    with ExitStack() as files:
        terms = files.enter_context((folder / "terms").open("w", encoding="utf-8"))
        sizes, positions, counts = (
            files.enter_context((folder / name).open("wb")) for name in ("sizes.u32", "places.i64", "counts.u32")
        )
        for item in postings:
            terms.write(item.term + "\n")
            sizes.write(len(item.documents).to_bytes(4, "little"))
            positions.write(item.documents.astype("<i8", copy=False).tobytes())
            counts.write(item.counts.astype("<u4", copy=False).tobytes())


def documents_of(runs: Iterable[Path]) -> Iterator[CountedDocument]:
    """Yield the documents of all runs in the order of their positions."""
    return merge(*(_read_documents(run) for run in runs))


def _read_documents(run: Path) -> Iterator[CountedDocument]:
    with (run / "documents").open(encoding="utf-8") as lines:
        for line in lines:
            yield CountedDocument(*json.loads(line))


def postings_of(runs: Iterable[Path]) -> Iterator[Postings]:
    """Yield the postings of all runs in the order of their terms; those of one term in the order of positions."""
    for term, group in groupby(merge(*(_read_postings(run) for run in runs), key=itemgetter(0)), key=itemgetter(0)):
        several = list(group)
        if len(several) == 1:
            yield several[0]
            continue
        positions = np.concatenate([part.documents for part in several])
        counts = np.concatenate([part.counts for part in several])
        if not (positions[1:] > positions[:-1]).all():  # runs overlap, as the parts of Spark's tasks may
            order = np.argsort(positions, kind="stable")
            positions, counts = positions[order], counts[order]
        yield Postings(term, positions, counts)


def _read_postings(run: Path) -> Iterator[Postings]:
    with ExitStack() as files:
        terms = files.enter_context((run / "terms").open(encoding="utf-8", newline="\n"))
        sizes, positions, counts = (
            files.enter_context((run / name).open("rb")) for name in ("sizes.u32", "places.i64", "counts.u32")
        )
        for line in terms:
            size = int.from_bytes(sizes.read(4), "little")
            at, times = np.frombuffer(positions.read(8 * size), "<i8"), np.frombuffer(counts.read(4 * size), "<u4")
            yield Postings(line.rstrip("\n"), at, times)


def merge_runs(runs: list[Path], scratch: Path, fan_in: int = FAN_IN) -> list[Path]:
    """Return at most `fan_in` runs: merges groups of runs until there are so few."""
    level = 0
    while len(runs) > fan_in:
        groups = [runs[at : at + fan_in] for at in range(0, len(runs), fan_in)]
        runs = []
        for number, group in enumerate(groups):
            runs.append(scratch / f"merged-{level}-{number}")
            write_run(runs[-1], documents_of(group), postings_of(group))
        level += 1
    return runs
