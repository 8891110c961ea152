"""Runs: documents that were counted, as files sorted for merging.

A run holds some documents in the order of their *places* in the corpus, and the postings of their terms in the order of
the terms. Runs are read from front to back, so that merging them holds one term of each in memory, and at most
`FAN_IN` are open at once: more are merged in groups first.

    run-0/  documents   a line a document: [place, words, peak, title]
            terms       a line a term
            sizes.u32   how many postings each has
            places.i64  counts.u32   the postings, in rising order of places
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

from tidegate.semantics.storage import Array, Parameters
from tidegate.semantics.words import Analyser

POSTINGS_IN_MEMORY = 2_000_000
"""Postings of a run: 32 MB while they wait, three times that while they are sorted."""
FAN_IN = 64
"""Runs that are merged at a time: each has four files open."""


class Postings(NamedTuple):
    """Where a term occurs: documents in rising order, and how often in each."""

    term: str
    documents: Array
    """By their places, while they are counted; by their numbers, when all are known."""
    counts: Array


class Noted(NamedTuple):
    """A document that was counted."""

    place: int
    words: int
    peak: int
    title: str


class Counting:
    """Counts documents into runs in a folder, whatever the order of their places."""

    def __init__(self, folder: Path, parameters: Parameters, postings_in_memory: int = POSTINGS_IN_MEMORY) -> None:
        self._folder = folder
        self._parameters = parameters
        self._limit = postings_in_memory
        self._analyser = Analyser()
        self._written = 0
        self._begin()

    def _begin(self) -> None:
        self._noted: list[Noted] = []
        self._numbers: dict[str, int] = {}
        self._terms, self._places, self._counts = array("I"), array("q"), array("I")

    def add(self, place: int, title: str, text: str) -> None:
        """Count one document; one that is too short is noted, and has no postings."""
        counts = self._analyser.counts(text)
        words = sum(counts.values())
        self._noted.append(Noted(place, words, max(counts.values(), default=0), title))
        if self._parameters.keeps(words):
            numbers = self._numbers
            self._terms.extend([numbers.setdefault(term, len(numbers)) for term in counts])
            self._places.extend([place] * len(counts))
            self._counts.extend(counts.values())
            if self.is_full:
                self.spill()

    @property
    def is_full(self) -> bool:
        """Whether as many postings wait as may."""
        return len(self._terms) >= self._limit

    @property
    def written(self) -> int:
        """How many runs there are."""
        return self._written

    def spill(self) -> None:
        """Write what waits as a run."""
        if self._noted:
            write_run(self._folder / f"run-{self._written}", sorted(self._noted), self._sorted())
            self._written += 1
            self._begin()

    def _sorted(self) -> Iterator[Postings]:
        names = sorted(self._numbers)
        ranks = np.empty(len(names), np.uint32)
        ranks[[self._numbers[term] for term in names]] = np.arange(len(names), dtype=np.uint32)
        terms = ranks[np.frombuffer(self._terms, np.uint32)]
        places, counts = np.frombuffer(self._places, np.int64), np.frombuffer(self._counts, np.uint32)
        rising = len(places) < 2 or bool((places[1:] >= places[:-1]).all())
        order = np.argsort(terms, kind="stable") if rising else np.lexsort((places, terms))
        places, counts = places[order], counts[order]
        end = 0
        for term, size in zip(names, np.bincount(terms, minlength=len(names)).tolist(), strict=True):
            begin, end = end, end + size
            yield Postings(term, places[begin:end], counts[begin:end])


def write_run(folder: Path, documents: Iterable[Noted], postings: Iterable[Postings]) -> None:
    """Write a run in a folder that is not there yet."""
    folder.mkdir()
    with (folder / "documents").open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(each) + "\n" for each in documents)
    with ExitStack() as files:
        terms = files.enter_context((folder / "terms").open("w", encoding="utf-8"))
        sizes, places, counts = (
            files.enter_context((folder / name).open("wb")) for name in ("sizes.u32", "places.i64", "counts.u32")
        )
        for each in postings:
            terms.write(each.term + "\n")
            sizes.write(len(each.documents).to_bytes(4, "little"))
            places.write(each.documents.astype("<i8", copy=False).tobytes())
            counts.write(each.counts.astype("<u4", copy=False).tobytes())


def documents_of(runs: Iterable[Path]) -> Iterator[Noted]:
    """The documents of all runs in the order of their places."""
    return merge(*(_read_documents(run) for run in runs))


def _read_documents(run: Path) -> Iterator[Noted]:
    with (run / "documents").open(encoding="utf-8") as lines:
        for line in lines:
            yield Noted(*json.loads(line))


def postings_of(runs: Iterable[Path]) -> Iterator[Postings]:
    """The postings of all runs in the order of their terms, those of a term in the order of places."""
    for term, group in groupby(merge(*(_read_postings(run) for run in runs), key=itemgetter(0)), key=itemgetter(0)):
        several = list(group)
        if len(several) == 1:
            yield several[0]
            continue
        places = np.concatenate([each.documents for each in several])
        counts = np.concatenate([each.counts for each in several])
        if not (places[1:] > places[:-1]).all():  # runs that lie between each other: the parts of Spark's tasks may
            order = np.argsort(places, kind="stable")
            places, counts = places[order], counts[order]
        yield Postings(term, places, counts)


def _read_postings(run: Path) -> Iterator[Postings]:
    with ExitStack() as files:
        terms = files.enter_context((run / "terms").open(encoding="utf-8", newline="\n"))
        sizes, places, counts = (
            files.enter_context((run / name).open("rb")) for name in ("sizes.u32", "places.i64", "counts.u32")
        )
        for line in terms:
            size = int.from_bytes(sizes.read(4), "little")
            at, times = np.frombuffer(places.read(8 * size), "<i8"), np.frombuffer(counts.read(4 * size), "<u4")
            yield Postings(line.rstrip("\n"), at, times)


def few(runs: list[Path], scratch: Path, fan_in: int = FAN_IN) -> list[Path]:
    """As many runs as may be open at once: where there are more, groups of them are merged until there are not."""
    level = 0
    while len(runs) > fan_in:
        groups = [runs[at : at + fan_in] for at in range(0, len(runs), fan_in)]
        runs = []
        for number, group in enumerate(groups):
            runs.append(scratch / f"merged-{level}-{number}")
            write_run(runs[-1], documents_of(group), postings_of(group))
        level += 1
    return runs
