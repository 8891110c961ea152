"""How related subscribed terms are to those of events: what a matcher asks for, many at once.

Every answer is a matrix, a row a subscribed term and a column a term of events. A *source* says what it knows by
itself, with NaN for what it does not know; a *semantics* is what a matcher uses: a source by the common rules
(`Alone`), or several together (`competition.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np

from tidegate.filters import meaning
from tidegate.semantics.relatedness import Measure, PaperEsa, Relatedness
from tidegate.semantics.rules import all_settled
from tidegate.semantics.space import Space
from tidegate.semantics.storage import Array


class Semantics(meaning.Semantics, Protocol):
    """What a matcher by meaning needs."""

    @property
    def name(self) -> str:
        """What explains and benchmarks call it."""

    @property
    def documents(self) -> Relatedness | None:
        """What knows terms by documents, which can be shown; None: nothing here does."""


class Source(Protocol):
    """One way to know how related terms are."""

    name: str

    def figures(
        self, subscribed: Sequence[str], terms: Sequence[str], themes: Collection[str], event_themes: Collection[str]
    ) -> Array:
        """At most 1; NaN where a side is unknown."""


class Esa:
    """The documents of a space, weighed by a measure."""

    def __init__(self, space: Space, measure: Measure | None = None) -> None:
        self.related = Relatedness(space, measure)
        self.name = f"esa-{self.related.measure.name}"

    def figures(
        self, subscribed: Sequence[str], terms: Sequence[str], themes: Collection[str], event_themes: Collection[str]
    ) -> Array:
        """What the measure says of them."""
        return self.related.figures(subscribed, terms, themes, event_themes)


class Alone:
    """One source as a matcher can use it: what it does not know is 0.

    With `rules`, the same text is 1 in any theme and numbers are compared as numbers; without, everything is what the
    source says: the paper by the letter.
    """

    def __init__(self, source: Source, threshold: float, *, rules: bool = True) -> None:
        self.name = source.name if rules else f"{source.name}-by-the-letter"
        self.threshold = threshold
        self.rivalry = 0.0
        self.documents = source.related if isinstance(source, Esa) else None
        self._source = source
        self._rules = rules

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: Collection[str] = (), of: Collection[str] = ()
    ) -> Array:
        """The source's figures."""
        raw = self._source.figures(subscribed, terms, theme, of)
        found = np.asarray(np.clip(np.nan_to_num(raw), 0.0, 1.0))
        if not self._rules:
            return found
        known = all_settled(subscribed, terms)
        return np.where(np.isnan(known), found, known)


PAPER_THRESHOLD = 0.2
"""Where precision and recall of `paper` met on our own events; the paper has none, it cuts by recall."""


def paper(space: Space, *, rules: bool = True) -> Alone:
    """The paper's measure, equation by equation; `rules=False` also without the identical-string rule."""
    return Alone(Esa(space, PaperEsa()), PAPER_THRESHOLD, rules=rules)
