"""A semantic space: every term as a vector over the documents of a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidegate.errors import MatcherError, did_you_mean
from tidegate.filters.vectors import NumpyArray
from tidegate.semantics.storage import CorpusSummary, Parameters, TextArray, open_arrays, read_header
from tidegate.semantics.words import Analyser

if TYPE_CHECKING:
    from tidegate.semantics.measures import NamedSemantics


class Occurrences(NamedTuple):
    """The documents in which a term occurs, ascending, and how often it occurs in each."""

    documents: NumpyArray
    counts: NumpyArray


class Space:
    """An index of terms by the documents that they occur in, memory-mapped from a folder. Open it with `Space.open`.

    Stores raw frequencies, because the weight of a term depends on the theme. As the `semantics` of a filter or a
    matcher it computes relatedness by its `mode`: `best`, or another of `default.MODES`. Not thread-safe:
    `shared.Shared` adds a lock.
    """

    def __init__(self, folder: Path, verify: bool, mode: str = "best") -> None:
        self.folder = folder
        self.mode = mode
        header = read_header(folder)
        arrays = open_arrays(folder, header, verify)
        self.corpus: CorpusSummary = header.corpus
        self.parameters: Parameters = header.parameters
        self.terms = TextArray(arrays["terms.utf8"], arrays["terms.u64"])
        self.titles = TextArray(arrays["titles.utf8"], arrays["titles.u64"])
        self.starts = arrays["postings.u64"]
        """Offset of each term's postings in `documents` and `counts`."""
        self.documents = arrays["documents.u32"]
        self.counts = arrays["counts.u32"]
        self.peaks = arrays["peaks.u32"]
        """Occurrences of the most frequent term of each document."""
        self.lengths = arrays["lengths.f64"]
        """Length of each document as the vector of its weights."""
        self._analyser = Analyser()

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = False, mode: str = "best") -> Space:
        """Open the folder of a space; takes milliseconds. Raises `SpaceError` if it is none or incomplete.

        `verify` reads every byte and compares checksums; otherwise only sizes and shapes are checked. `mode` says how
        relatedness is computed: `best` uses an installed embedding too; `esa` is the same by this space alone; `paper`
        is the paper's measure with the rules for equal texts and numbers; `letter` is the same without these rules.
        Raises `MatcherError` for another mode.
        """
        from tidegate.semantics.default import MODES

        if mode not in MODES:
            hint = did_you_mean(str(mode), MODES) or f"; expected one of {', '.join(MODES)}"
            raise MatcherError(f"unknown mode {mode!r}{hint}")
        return cls(Path(path), verify, mode)

    @property
    def size(self) -> int:
        """Number of documents: the dimensions of the space."""
        return self.corpus.documents

    def words(self, text: str) -> list[str]:
        """Return the terms of a text as this space forms them, also unknown ones."""
        return self._analyser.terms(text)

    def occurrences(self, term: str) -> Occurrences | None:
        """Return where a term occurs; None if it is unknown."""
        number = self.terms.find(term)
        if number is None:
            return None
        begin, end = int(self.starts[number]), int(self.starts[number + 1])
        return Occurrences(self.documents[begin:end], self.counts[begin:end])

    @cached_property
    def semantics(self) -> NamedSemantics:
        """The semantics of this space's mode."""
        from tidegate.semantics.default import MODES

        return MODES[self.mode](self)

    @property
    def threshold(self) -> float:
        """Minimum degree of a match for filters that name none."""
        return self.semantics.threshold

    @property
    def rivalry(self) -> float:
        """How much a predicate loses if another predicate fits a tuple better."""
        return self.semantics.rivalry

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: frozenset[str], of: frozenset[str]
    ) -> NumpyArray:
        """Return how related terms are by this space's mode; `best` uses an installed embedding too."""
        return self.semantics.relatedness(subscribed, terms, theme, of)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by path: another process maps the same files."""
        return partial(Space.open, mode=self.mode), (str(self.folder.resolve()),)

    def __repr__(self) -> str:
        mode = "" if self.mode == "best" else f", mode {self.mode!r}"
        return f"<Space {str(self.folder)!r}: {len(self.terms):,} terms over {self.size:,} documents{mode}>"
