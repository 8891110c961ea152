"""A semantic space: every term as a vector over the documents of a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidegate.errors import MatcherError, did_you_mean
from tidegate.semantics.storage import Array, Corpus, Parameters, Texts, open_arrays, read_header
from tidegate.semantics.words import Analyser

if TYPE_CHECKING:
    from tidegate.semantics.measures import Semantics


class Occurrences(NamedTuple):
    """Where a term occurs: the numbers of documents, rising, and how often it does there."""

    documents: Array
    counts: Array


class Space:
    """An index of terms by the documents they occur in, mapped from a folder; open it with `Space.open`.

    It keeps raw frequencies, as the weight of a term depends on the theme it is looked at in. As `semantics` of a
    filter or a matcher it says how related terms are by its `mode`: `best`, or another of `default.MODES`.
    """

    def __init__(self, folder: Path, verify: bool, mode: str = "best") -> None:
        self.folder = folder
        self.mode = mode
        header = read_header(folder)
        arrays = open_arrays(folder, header, verify)
        self.corpus: Corpus = header.corpus
        self.parameters: Parameters = header.parameters
        self.terms = Texts(arrays["terms.utf8"], arrays["terms.u64"])
        self.titles = Texts(arrays["titles.utf8"], arrays["titles.u64"])
        self.starts = arrays["postings.u64"]
        """Where the postings of each term begin in `documents` and `counts`."""
        self.documents = arrays["documents.u32"]
        self.counts = arrays["counts.u32"]
        self.peaks = arrays["peaks.u32"]
        """How often the commonest term of each document occurs in it."""
        self.lengths = arrays["lengths.f64"]
        """Of each document, as the vector of its weights."""
        self._analyser = Analyser()

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = False, mode: str = "best") -> Space:
        """Open the folder of a space, in milliseconds; raise `SpaceError` where it is none, or not whole.

        `verify` reads every byte and compares checksums; else sizes and shapes are. `mode` is what a filter or a
        matcher gets that is given this space: `best`, what there is, an installed embedding too; `esa`, the same by
        this space alone; `paper`, the paper's measure with the rules for equal texts and numbers; `letter`, without.
        """
        from tidegate.semantics.default import MODES

        if mode not in MODES:
            hint = did_you_mean(str(mode), MODES) or f"; expected one of {', '.join(MODES)}"
            raise MatcherError(f"unknown mode {mode!r}{hint}")
        return cls(Path(path), verify, mode)

    @property
    def size(self) -> int:
        """How many documents there are: the dimensions."""
        return self.corpus.documents

    def words(self, text: str) -> list[str]:
        """The terms of a text as this space has them, known or not."""
        return self._analyser.terms(text)

    def occurrences(self, term: str) -> Occurrences | None:
        """Where a term occurs; None: it is unknown."""
        number = self.terms.find(term)
        if number is None:
            return None
        begin, end = int(self.starts[number]), int(self.starts[number + 1])
        return Occurrences(self.documents[begin:end], self.counts[begin:end])

    @cached_property
    def semantics(self) -> Semantics:
        """How related terms are, by this space's mode."""
        from tidegate.semantics.default import MODES

        return MODES[self.mode](self)

    @property
    def threshold(self) -> float:
        """The least degree of a match where nobody names one."""
        return self.semantics.threshold

    @property
    def rivalry(self) -> float:
        """How much it costs a predicate that another one fits a tuple better."""
        return self.semantics.rivalry

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: frozenset[str], of: frozenset[str]
    ) -> Array:
        """How related many terms are, by this space's mode; `best` asks an installed embedding too."""
        return self.semantics.relatedness(subscribed, terms, theme, of)

    def __reduce__(self) -> tuple[object, ...]:
        """A process that is handed a space maps the same files."""
        return partial(Space.open, mode=self.mode), (str(self.folder.resolve()),)

    def __repr__(self) -> str:
        mode = "" if self.mode == "best" else f", mode {self.mode!r}"
        return f"<Space {str(self.folder)!r}: {len(self.terms):,} terms over {self.size:,} documents{mode}>"
