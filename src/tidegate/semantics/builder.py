"""Builds a space from documents in bounded memory. A build that was killed continues from its finished parts.

Documents are counted one by one, in *parts*. When enough postings are in memory, they are written as a sorted run. At
the end all runs are merged, term by term. So memory holds one run for a corpus of any size, and a finished part is
never counted again.

    documents ──count──▶ part 0, part 1, ... ──merge──▶ the space
                         each sorted by term            without terms in too few documents
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from tidegate.errors import SpaceError
from tidegate.filters.vectors import NumpyArray
from tidegate.semantics import weights
from tidegate.semantics.build_folder import BuildFolder, counting, plan_of
from tidegate.semantics.corpora import Corpus
from tidegate.semantics.corpora import Document as Document
from tidegate.semantics.runs import POSTINGS_IN_MEMORY, Postings, documents_of, merge_runs, postings_of
from tidegate.semantics.storage import FILES, HEADER, ArrayFileWriter, CorpusSummary, Header, Parameters


def build(
    documents: Corpus | Iterable[Document],
    folder: Path | str,
    *,
    name: str = "",
    parameters: Parameters | None = None,
    postings_in_memory: int = POSTINGS_IN_MEMORY,
    counted: Callable[[int], None] | None = None,
) -> None:
    """Build a space from documents in a new folder.

    Documents are numbered in the order in which they come. `counted` is called after each document with the number read
    so far. A `Corpus` that a killed build read in part is read from there. Raises `SpaceError` if the folder exists or
    can't be written, or if no document or term is left.
    """
    parameters = parameters or Parameters()
    plan = None
    if isinstance(documents, Corpus):
        plan, name = plan_of(documents.fingerprint, parameters, "plain"), name or documents.name
    with BuildFolder(Path(folder), parameters, plan) as parts:
        if not parts.is_counted:
            number, read = _progress(parts)
            remaining = documents.read(read) if isinstance(documents, Corpus) else iter(documents)
            while _count(parts, number, read, remaining, parameters, postings_in_memory, counted):
                number, read = _progress(parts)
            parts.all_counted()
        write(parts, Path(folder), name, parameters)


def _progress(parts: BuildFolder) -> tuple[int, int]:
    """Return the number of the next part, and the number of documents in the parts before it."""
    runs = parts.runs()
    if not runs:
        return 0, 0
    *_, last = documents_of(runs[-1:])
    return len(parts.finished()), last.position + 1


def _count(
    parts: BuildFolder,
    number: int,
    read: int,
    remaining: Iterator[Document],
    parameters: Parameters,
    postings_in_memory: int,
    counted: Callable[[int], None] | None,
) -> bool:
    """Count documents until a part is full; return True if there may be more."""
    with counting(parts.folder, number, parameters, postings_in_memory) as part:
        for position, document in enumerate(remaining, read):
            part.add(position, document.title, document.text)
            if counted is not None:
                counted(position + 1)
            if part.written:
                return True
    return False


def write(parts: BuildFolder, folder: Path, name: str, parameters: Parameters) -> None:
    """Write the space from the counted parts. Raises `SpaceError` if nothing is left to write."""
    runs = merge_runs(parts.runs(), parts.folder)
    with SpaceWriter(parts.folder / "space", folder, name, parameters) as writing:
        kept_positions = array("q")
        for document in documents_of(runs):
            if writing.note(document.title, document.words, document.peak):
                kept_positions.append(document.position)
        positions = np.frombuffer(kept_positions, np.int64)
        # A document's number is its rank among the documents kept, which is known only now.
        writing.finish(Postings(term, np.searchsorted(positions, at), counts) for term, at, counts in postings_of(runs))


class SpaceWriter:
    """Writes a space: documents first, then terms in order, then its name."""

    def __init__(self, scratch: Path, folder: Path, name: str, parameters: Parameters) -> None:
        self.scratch = scratch
        self._folder = folder
        self._name = name
        self._parameters = parameters
        self._documents = self._skipped = self._words = 0

    def __enter__(self) -> SpaceWriter:
        self.scratch.mkdir()
        self._sinks = {file: ArrayFileWriter(self.scratch, file) for file in FILES}
        self._title_end = 0
        self._sinks["titles.u64"].write(np.zeros(1))
        return self

    def __exit__(self, _kind: object, _error: object, _trace: object) -> None:
        for sink in self._sinks.values():
            sink.close()

    def note(self, title: str, words: int, peak: int) -> bool:
        """Give a document the next number; return False for one that is too short and gets none."""
        if not self._parameters.keeps(words):
            self._skipped += 1
            return False
        data = title.encode("utf-8", "replace")
        self._title_end += len(data)
        self._sinks["titles.utf8"].write(data)
        self._sinks["titles.u64"].write(np.array([self._title_end]))
        self._sinks["peaks.u32"].write(np.array([peak]))
        self._documents += 1
        self._words += words
        return True

    def finish(self, postings: Iterable[Postings]) -> None:
        """Write the terms, which come in the order of their bytes, and rename the folder to its final name."""
        if not self._documents:
            raise SpaceError(
                f"no document has {self._parameters.least_words} content words; {self._skipped:,} were read: "
                "expected longer documents, or a lower --least-words"
            )
        if not self._title_end:
            raise SpaceError(f"none of {self._documents:,} documents has a title")
        if not self._write_terms(postings):
            raise SpaceError(
                f"no term occurs in {self._parameters.least_documents} documents; {self._documents:,} were read: "
                "expected more documents, or a lower --least-documents"
            )
        files = {file: sink.close() for file, sink in self._sinks.items() if file != "lengths.f64"}
        lengths = self._sinks["lengths.f64"]
        lengths.write(self._lengths())
        files["lengths.f64"] = lengths.close()
        corpus = CorpusSummary(self._name, self._documents, self._skipped, self._words)
        (self.scratch / HEADER).write_text(Header(corpus, self._parameters, files).to_text(), "utf-8")
        try:
            os.rename(self.scratch, self._folder)
        except OSError as exc:
            raise SpaceError(f"{self._folder} can't be created: {exc.strerror}") from exc

    def _write_terms(self, postings: Iterable[Postings]) -> int:
        """Write the terms that occur in enough documents, and return their number."""
        terms, ends, starts = (self._sinks[term] for term in ("terms.utf8", "terms.u64", "postings.u64"))
        documents, counts = self._sinks["documents.u32"], self._sinks["counts.u32"]
        text_end = posting_end = written = 0
        ends.write(np.zeros(1))
        starts.write(np.zeros(1))
        for term in postings:
            if len(term.documents) < self._parameters.least_documents:
                continue
            data = term.term.encode("utf-8", "replace")
            text_end += len(data)
            posting_end += len(term.documents)
            terms.write(data)
            ends.write(np.array([text_end]))
            starts.write(np.array([posting_end]))
            documents.write(term.documents)
            counts.write(term.counts)
            written += 1
        return written

    def _lengths(self) -> NumpyArray:
        starts, documents, counts = (
            np.memmap(self.scratch / file, FILES[file], mode="r")
            for file in ("postings.u64", "documents.u32", "counts.u32")
        )
        return weights.lengths(starts, documents, counts, self._documents)
