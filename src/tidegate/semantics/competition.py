"""Combines several sources of relatedness, and sets how strongly predicates compete.

    figures of each source ──scale──▶ evidence, their mean ──▶ belief       ──thematic.competed──▶ similarity

- *Evidence* is how far a figure lies above that of unrelated terms, in the unit of the source. The evidence of several
  sources is their mean over those that know both terms. The more words both terms have, the more of a figure is chance:
  `increased noise event` and `increased ozone event` share two thirds of their words.
- *Belief* is evidence as a number from 0 to 1: 1 / (1 + e^-evidence). A single predicate has its belief as similarity.
- *Rivalry* is applied by the matcher, which knows the other subscriptions (`tidegate.filters.thematic.competed`).

So the degrees of a filter depend on the other subscriptions. That is the price of most of the accuracy: see
`docs/spec/semantics.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.filters.vectors import NumpyArray
from tidegate.semantics.measures import Esa, RelatednessSource
from tidegate.semantics.rules import all_opposed, all_settled, all_shorter


@dataclass(frozen=True, slots=True)
class Scale:
    """How the figures of a source become evidence."""

    centre: float
    """Figure, after applying `power`, at which terms are related with probability 1/2."""
    unit: float
    """Distance from the centre that multiplies the odds by e."""
    power: float = 1.0
    """Exponent of the figures: a root spreads small figures."""

    def evidence(self, figures: NumpyArray) -> NumpyArray:
        """Return how far figures lie above the centre, in units."""
        if self.power != 1:
            figures = np.maximum(figures, 0.0) ** self.power
        return np.asarray((figures - self.centre) / self.unit)


@dataclass(frozen=True, slots=True)
class Competition:
    """Settings that all sources share."""

    rivalry: float
    """Weight of one unit of evidence ahead of the best other predicate; 0: no competition."""
    threshold: float


USUAL_WORDS, MAX_COUNTED_WORDS = 2, 4
"""Number of words without a deduction, and the number beyond which the deduction does not grow."""


class Best:
    """Several sources, each with its scale, and competition between predicates."""

    def __init__(self, sources: Sequence[tuple[RelatednessSource, Scale]], competition: Competition) -> None:
        self.name = "best-" + "+".join(source.name for source, _ in sources)
        self.threshold = competition.threshold
        self.rivalry = competition.rivalry
        self.sources = tuple(sources)
        self.documents = next((source.related for source, _ in sources if isinstance(source, Esa)), None)

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: Collection[str] = (), of: Collection[str] = ()
    ) -> NumpyArray:
        """Return belief; 1 for equal texts, 0 if no source knows both terms."""
        known = all_settled(subscribed, terms)
        if not known.size:
            return known
        known[np.isnan(known) & all_opposed(subscribed, terms)] = 0.0
        return np.where(np.isnan(known), _belief(self.evidence(subscribed, terms, theme, of)), known)

    def evidence(
        self,
        subscribed: Sequence[str],
        terms: Sequence[str],
        themes: Collection[str] = (),
        event_themes: Collection[str] = (),
    ) -> NumpyArray:
        """Return the mean evidence of the sources that know both terms, less one unit per word beyond `USUAL_WORDS`.

        Minus infinity if no source knows both. (The deduction per word is that of a logistic regression on half of
        EuroVoc.)
        """
        total = np.zeros((len(subscribed), len(terms)))
        voices = np.zeros_like(total)
        for source, scale in self.sources:
            evidence = scale.evidence(source.figures(subscribed, terms, themes, event_themes))
            knows = ~np.isnan(evidence)
            total[knows] += evidence[knows]
            voices += knows
        mean = np.divide(total, voices, out=np.full_like(total, -np.inf), where=voices > 0)
        return np.asarray(mean - (np.clip(all_shorter(subscribed, terms), 1, MAX_COUNTED_WORDS) - USUAL_WORDS))


def _belief(evidence: NumpyArray) -> NumpyArray:
    with np.errstate(over="ignore"):  # 0 if no source knows the terms
        return np.asarray(1 / (1 + np.exp(-evidence)))
