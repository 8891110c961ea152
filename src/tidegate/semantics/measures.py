"""Relatedness of many subscribed terms to many terms of events at once, as a matcher needs it.

Every result is a matrix: one row per subscribed term, one column per term of events. A *source* returns NaN for terms
that it does not know. A matcher uses a *semantics*: one source with the common rules (`Alone`), or several
(`competition.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np

from tidegate.filters import meaning
from tidegate.filters.vectors import NumpyArray
from tidegate.semantics.relatedness import Measure, PaperEsa, Relatedness
from tidegate.semantics.rules import all_settled
from tidegate.semantics.space import Space


class NamedSemantics(meaning.Semantics, Protocol):
    """A `Semantics` with a name, and with access to the documents that it is based on."""

    @property
    def name(self) -> str:
        """The name that explanations and benchmarks show."""

    @property
    def documents(self) -> Relatedness | None:
        """Relatedness by documents, which can be shown; None if this semantics has no documents."""


class RelatednessSource(Protocol):
    """One way to compute how related terms are."""

    name: str

    def figures(
        self, subscribed: Sequence[str], terms: Sequence[str], themes: Collection[str], event_themes: Collection[str]
    ) -> NumpyArray:
        """Return relatedness, at most 1; NaN if one of the two terms is unknown."""


class Esa:
    """Relatedness by the documents of a space (explicit semantic analysis), with a measure."""

    def __init__(self, space: Space, measure: Measure | None = None) -> None:
        self.related = Relatedness(space, measure)
        self.name = f"esa-{self.related.measure.name}"

    def figures(
        self, subscribed: Sequence[str], terms: Sequence[str], themes: Collection[str], event_themes: Collection[str]
    ) -> NumpyArray:
        """Return the relatedness by the measure; NaN if one of the two terms is unknown."""
        return self.related.figures(subscribed, terms, themes, event_themes)


class Alone:
    """One source as a semantics: an unknown term has relatedness 0.

    With `rules`, equal texts have relatedness 1 in any theme, and numbers are compared as numbers. Without, all results
    are the source's, as in the paper.
    """

    def __init__(self, source: RelatednessSource, threshold: float, *, rules: bool = True) -> None:
        self.name = source.name if rules else f"{source.name}-by-the-letter"
        self.threshold = threshold
        self.rivalry = 0.0
        self.documents = source.related if isinstance(source, Esa) else None
        self._source = source
        self._rules = rules

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: Collection[str] = (), of: Collection[str] = ()
    ) -> NumpyArray:
        """Return the relatedness by the source, from 0 to 1."""
        raw = self._source.figures(subscribed, terms, theme, of)
        clipped = np.asarray(np.clip(np.nan_to_num(raw), 0.0, 1.0))
        if not self._rules:
            return clipped
        known = all_settled(subscribed, terms)
        return np.where(np.isnan(known), clipped, known)


PAPER_THRESHOLD = 0.2
"""Threshold at which precision equals recall for `paper` on our own events. The paper has no threshold."""


def paper(space: Space, *, rules: bool = True) -> Alone:
    """Return the paper's measure, equation by equation; `rules=False` also without the rule for identical strings."""
    return Alone(Esa(space, PaperEsa()), PAPER_THRESHOLD, rules=rules)
