"""A space out of documents, in bounded memory; a build that was killed goes on from what it had finished.

Documents are counted one by one, in *parts*: whenever enough postings wait, they are written as a sorted run. At the
end all runs are merged, term by term. So memory holds one run, whatever the corpus, and a part that is whole is never
counted again.

    documents ──count──▶ part 0, part 1, ... ──merge──▶ the space
                         each sorted by term            terms in too few documents left out
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from tidegate.errors import SpaceError
from tidegate.semantics import weights
from tidegate.semantics.corpora import Corpus
from tidegate.semantics.corpora import Document as Document
from tidegate.semantics.parts import Parts, counting, plan_of
from tidegate.semantics.runs import POSTINGS_IN_MEMORY, Postings, documents_of, few, postings_of
from tidegate.semantics.storage import FILES, HEADER, Array, Header, Parameters, Sink
from tidegate.semantics.storage import Corpus as Told


def build(
    documents: Corpus | Iterable[Document],
    folder: Path | str,
    *,
    name: str = "",
    parameters: Parameters | None = None,
    postings_in_memory: int = POSTINGS_IN_MEMORY,
    counted: Callable[[int], None] | None = None,
) -> None:
    """Make a space of documents in a folder that is not there yet.

    Documents get their numbers in the order they come in. `counted` is called with
    how many were read, after each. A `Corpus` that was read in part by a build that
    was killed is read on from there. Raises `SpaceError` where nothing is left to
    make a space of, or the folder exists.
    """
    parameters = parameters or Parameters()
    plan = None
    if isinstance(documents, Corpus):
        plan, name = plan_of(documents.fingerprint, parameters, "plain"), name or documents.name
    with Parts(Path(folder), parameters, plan) as parts:
        if not parts.is_counted:
            number, read = _reached(parts)
            coming = documents.read(read) if isinstance(documents, Corpus) else iter(documents)
            while _count(parts, number, read, coming, parameters, postings_in_memory, counted):
                number, read = _reached(parts)
            parts.all_counted()
        write(parts, Path(folder), name, parameters)


def _reached(parts: Parts) -> tuple[int, int]:
    """The number of the next part, and how many documents are in those before it."""
    runs = parts.runs()
    if not runs:
        return 0, 0
    *_, last = documents_of(runs[-1:])
    return len(parts.finished()), last.place + 1


def _count(
    parts: Parts,
    number: int,
    read: int,
    coming: Iterator[Document],
    parameters: Parameters,
    postings_in_memory: int,
    counted: Callable[[int], None] | None,
) -> bool:
    """Count documents until a part is full; say whether more may come."""
    with counting(parts.folder, number, parameters, postings_in_memory) as part:
        for place, document in enumerate(coming, read):
            part.add(place, document.title, document.text)
            if counted is not None:
                counted(place + 1)
            if part.written:
                return True
    return False


def write(parts: Parts, folder: Path, name: str, parameters: Parameters) -> None:
    """Make the space of what was counted."""
    runs = few(parts.runs(), parts.folder)
    with Writing(parts.folder / "space", folder, name, parameters) as writing:
        kept = array("q")
        for each in documents_of(runs):
            if writing.note(each.title, each.words, each.peak):
                kept.append(each.place)
        places = np.frombuffer(kept, np.int64)
        # A document goes by its place until it is known how many before it were too short; then it gets its number.
        writing.finish(Postings(term, np.searchsorted(places, at), counts) for term, at, counts in postings_of(runs))


class Writing:
    """A space that is being written: documents first, then terms in order, then its name."""

    def __init__(self, scratch: Path, folder: Path, name: str, parameters: Parameters) -> None:
        self.scratch = scratch
        self._folder = folder
        self._name = name
        self._parameters = parameters
        self._documents = self._left_out = self._words = 0

    def __enter__(self) -> Writing:
        self.scratch.mkdir()
        self._sinks = {each: Sink(self.scratch, each) for each in FILES}
        self._title_end = 0
        self._sinks["titles.u64"].write(np.zeros(1))
        return self

    def __exit__(self, _kind: object, _error: object, _trace: object) -> None:
        for sink in self._sinks.values():
            sink.close()

    def note(self, title: str, words: int, peak: int) -> bool:
        """Give a document the next number; False: it is too short, and gets none."""
        if not self._parameters.keeps(words):
            self._left_out += 1
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
        """Write the terms, which come in the order of their bytes, and give the space its name."""
        if not self._documents:
            raise SpaceError(
                f"no document has {self._parameters.least_words} words that count; {self._left_out:,} were read: "
                "expected longer ones, or fewer words to be asked for (--least-words)"
            )
        if not self._title_end:
            raise SpaceError(f"none of {self._documents:,} documents has a title")
        if not self._write_terms(postings):
            raise SpaceError(
                f"no term occurs in {self._parameters.least_documents} documents; {self._documents:,} were read: "
                "expected more of them, or fewer to be asked for (--least-documents)"
            )
        files = {each: sink.close() for each, sink in self._sinks.items() if each != "lengths.f64"}
        lengths = self._sinks["lengths.f64"]
        lengths.write(self._lengths())
        files["lengths.f64"] = lengths.close()
        corpus = Told(self._name, self._documents, self._left_out, self._words)
        (self.scratch / HEADER).write_text(Header(corpus, self._parameters, files).to_text(), "utf-8")
        try:
            os.rename(self.scratch, self._folder)
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
