"""A space out of documents, in bounded memory.

Documents are counted one by one. Whenever enough postings wait, they are sorted by
term and written as a *run*; at the end the runs are merged, term by term. So memory
holds one run, whatever the corpus.

    documents ──count──▶ run 0, run 1, ... ──merge──▶ the space
                         each sorted by term          terms in too few documents left out
"""

from __future__ import annotations

import os
import shutil
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tidegate.errors import SpaceError
from tidegate.semantics import weights
from tidegate.semantics.storage import FILES, HEADER, Array, Corpus, Header, Parameters, Sink
from tidegate.semantics.words import Analyser


class Document(NamedTuple):
    """A text about one thing, which its title names."""

    title: str
    text: str


class Postings(NamedTuple):
    """Where a term occurs: documents in rising order, and how often in each."""

    term: str
    documents: Array
    counts: Array


POSTINGS_IN_MEMORY = 16_000_000
"""Postings of a run: 190 MB while they wait, three times that while they are sorted."""


def build(
    documents: Iterable[Document],
    folder: Path | str,
    *,
    name: str = "",
    parameters: Parameters | None = None,
    postings_in_memory: int = POSTINGS_IN_MEMORY,
    counted: Callable[[int], None] | None = None,
) -> None:
    """Make a space of documents in a folder that is not there yet.

    Documents get their numbers in the order they come in. `counted` is called with
    how many were read, after each. Raises `SpaceError` where nothing is left to make
    a space of, or the folder exists.
    """
    parameters = parameters or Parameters()
    with Writing(folder, name, parameters) as writing:
        runs = _Runs(writing.scratch, postings_in_memory)
        analyser = Analyser()
        for number, document in enumerate(documents, 1):
            counts = analyser.counts(document.text)
            if writing.takes(document.title, counts):
                runs.add(counts)
            if counted is not None:
                counted(number)
        writing.finish(runs.merged())


class Writing:
    """A space that is being written: documents first, then terms in order, then its name.

    Used by whoever counts: the builder here, and the one on Spark.
    """

    def __init__(self, folder: Path | str, name: str, parameters: Parameters) -> None:
        self._folder = Path(folder)
        self._name = name
        self._parameters = parameters
        self._documents = self._left_out = self._words = 0

    def __enter__(self) -> Writing:
        if self._folder.exists():
            raise SpaceError(f"{self._folder} exists already: expected the name of a folder to make")
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self.scratch = Path(tempfile.mkdtemp(prefix=f".{self._folder.name}-", dir=self._folder.parent))
        except OSError as exc:
            raise SpaceError(f"{self._folder} can't be made: {exc.strerror}") from exc
        self._sinks = {each: Sink(self.scratch, each) for each in FILES}
        self._title_end = 0
        self._sinks["titles.u64"].write(np.zeros(1))
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            for sink in self._sinks.values():
                sink.close()
        except OSError as exc:  # what a full disk could not take is tried once more when a file is closed
            error = error or exc
        shutil.rmtree(self.scratch, ignore_errors=True)
        if isinstance(error, OSError):
            raise SpaceError(f"{self._folder} can't be written: {error.strerror or error}") from error

    def takes(self, title: str, counts: dict[str, int]) -> bool:
        """Give a document the next number; False: it is too short, and gets none."""
        words = sum(counts.values())
        self.note(title, words, max(counts.values(), default=0))
        return self._parameters.keeps(words)

    def note(self, title: str, words: int, peak: int) -> None:
        """Write down a document whose terms were counted elsewhere."""
        if not self._parameters.keeps(words):
            self._left_out += 1
            return
        data = title.encode("utf-8", "replace")
        self._title_end += len(data)
        self._sinks["titles.utf8"].write(data)
        self._sinks["titles.u64"].write(np.array([self._title_end]))
        self._sinks["peaks.u32"].write(np.array([peak]))
        self._documents += 1
        self._words += words

    def finish(self, postings: Iterable[Postings]) -> None:
        """Write the terms, which come in the order of their bytes, and give the space its name."""
        if not self._documents:
            raise SpaceError(
                f"no document has {self._parameters.least_words} words that count; {self._left_out:,} were read"
            )
        if not self._title_end:
            raise SpaceError(f"none of {self._documents:,} documents has a title")
        if not self._write_terms(postings):
            raise SpaceError(
                f"no term occurs in {self._parameters.least_documents} documents; {self._documents:,} were read"
            )
        files = {each: sink.close() for each, sink in self._sinks.items() if each != "lengths.f64"}
        lengths = self._sinks["lengths.f64"]
        lengths.write(self._lengths())
        files["lengths.f64"] = lengths.close()
        corpus = Corpus(self._name, self._documents, self._left_out, self._words)
        made = self.scratch / "made"
        made.mkdir()
        for each in FILES:
            (self.scratch / each).rename(made / each)
        (made / HEADER).write_text(Header(corpus, self._parameters, files).to_text(), "utf-8")
        made.chmod(0o755)
        try:
            os.rename(made, self._folder)
        except OSError as exc:
            raise SpaceError(f"{self._folder} can't be made: {exc.strerror}") from exc

    def _write_terms(self, postings: Iterable[Postings]) -> int:
        """Write the terms that occur in documents enough; say how many there are."""
        terms, ends, starts = (self._sinks[each] for each in ("terms.utf8", "terms.u64", "postings.u64"))
        documents, counts = self._sinks["documents.u32"], self._sinks["counts.u32"]
        text_end = posting_end = written = 0
        ends.write(np.zeros(1))
        starts.write(np.zeros(1))
        for each in postings:
            if len(each.documents) < self._parameters.least_documents:
                continue
            data = each.term.encode("utf-8", "replace")
            text_end += len(data)
            posting_end += len(each.documents)
            terms.write(data)
            ends.write(np.array([text_end]))
            starts.write(np.array([posting_end]))
            documents.write(each.documents)
            counts.write(each.counts)
            written += 1
        return written

    def _lengths(self) -> Array:
        starts, documents, counts = (
            np.memmap(self.scratch / each, FILES[each], mode="r")
            for each in ("postings.u64", "documents.u32", "counts.u32")
        )
        return weights.lengths(starts, documents, counts, self._documents)


class _Runs:
    """Postings that wait in memory, and those that were written sorted."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._written = 0
        self._documents = 0
        self._begin()

    def _begin(self) -> None:
        self._numbers: dict[str, int] = {}
        self._terms, self._in, self._counts = array("I"), array("I"), array("I")

    def add(self, counts: dict[str, int]) -> None:
        """Take the counts of the next document."""
        numbers = self._numbers
        self._terms.extend([numbers.setdefault(term, len(numbers)) for term in counts])
        self._in.extend([self._documents] * len(counts))
        self._counts.extend(counts.values())
        self._documents += 1
        if len(self._terms) >= self._limit:
            self._spill()

    def _spill(self) -> None:
        names, starts, documents, counts = self._sorted()
        at = self._folder / f"run-{self._written}"
        at.with_suffix(".terms").write_text("\n".join(names), "utf-8")
        for kind, values in (("starts", starts), ("documents", documents), ("counts", counts)):
            np.save(at.with_suffix(f".{kind}.npy"), values)
        self._written += 1
        self._begin()

    def _sorted(self) -> tuple[list[str], Array, Array, Array]:
        """The postings of this run by term; those of a term stay in the order of documents."""
        names = sorted(self._numbers)
        ranks = np.empty(len(names), np.uint32)
        ranks[[self._numbers[term] for term in names]] = np.arange(len(names), dtype=np.uint32)
        terms = ranks[np.frombuffer(self._terms, np.uint32)]
        order = np.argsort(terms, kind="stable")
        starts = np.append(0, np.cumsum(np.bincount(terms, minlength=len(names))))
        return names, starts, np.frombuffer(self._in, np.uint32)[order], np.frombuffer(self._counts, np.uint32)[order]

    def merged(self) -> Iterator[Postings]:
        """The postings of all runs, in the order of their terms."""
        runs = [self._read(number) for number in range(self._written)]
        if self._terms:
            runs.append(_postings(*self._sorted()))
        # Runs follow each other in time, and a merge keeps the order of equals: so documents keep rising.
        for term, group in groupby(merge(*runs, key=itemgetter(0)), key=itemgetter(0)):
            several = list(group)
            if len(several) == 1:
                yield several[0]
            else:
                yield Postings(
                    term,
                    np.concatenate([each.documents for each in several]),
                    np.concatenate([each.counts for each in several]),
                )

    def _read(self, number: int) -> Iterator[Postings]:
        at = self._folder / f"run-{number}"
        arrays = (np.load(at.with_suffix(f".{kind}.npy"), mmap_mode="r") for kind in ("starts", "documents", "counts"))
        with at.with_suffix(".terms").open(encoding="utf-8") as names:  # line by line: there may be many runs
            yield from _postings((line.rstrip("\n") for line in names), *arrays)


def _postings(names: Iterable[str], starts: Array, documents: Array, counts: Array) -> Iterator[Postings]:
    end = 0
    for number, term in enumerate(names, 1):
        begin, end = end, int(starts[number])
        yield Postings(term, documents[begin:end], counts[begin:end])
