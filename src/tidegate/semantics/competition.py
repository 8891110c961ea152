"""The best that is known of terms: sources together, and how much predicates compete for the tuples of events.

    figures of each source ──scale──▶ evidence, their mean ──▶ belief       ──thematic.competed──▶ similarity

- *Evidence* is how far a figure lies above what unrelated terms have, in the source's own unit; that of several
  sources is their mean. What one source does not know, the others decide. The more words both terms have, the more of
  a figure is chance: `increased noise event` and `increased ozone event` are two thirds the same.
- *Belief* is evidence as a figure from 0 to 1: 1 / (1 + e^-evidence). It is what a lone predicate has.
- *Rivalry* is left to who matches: it knows what else is subscribed to (`tidegate.filters.thematic.competed`).

So a filter's degrees depend on what else is subscribed to. That is the price, and the gain is most of what there is:
see `docs/spec/semantics.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.semantics.measures import Esa, Source
from tidegate.semantics.rules import all_opposed, all_settled, all_shorter
from tidegate.semantics.storage import Array


@dataclass(frozen=True, slots=True)
class Scale:
    """How a source's figures become evidence."""

    centre: float
    """The figure, by its power, at which terms are as likely related as not."""
    unit: float
    """The distance from it that makes the odds 2.7 times as great."""
    power: float = 1.0
    """Of the figures: by a root, small ones are told apart as well as great ones are."""

    def evidence(self, figures: Array) -> Array:
        """How far figures lie above the centre, in units."""
        if self.power != 1:
            figures = np.maximum(figures, 0.0) ** self.power
        return np.asarray((figures - self.centre) / self.unit)


@dataclass(frozen=True, slots=True)
class Competition:
    """What is the same for all sources."""

    rivalry: float
    """How much a unit of evidence ahead of the best other predicate gives; 0: no competition."""
    threshold: float


USUAL, LONG = 2, 4
"""Words of terms whose figures are taken as they are, and beyond which more of them change nothing."""


class Best:
    """Sources, each with its scale, and how much what is subscribed to competes."""

    def __init__(self, sources: Sequence[tuple[Source, Scale]], competition: Competition) -> None:
        self.name = "best-" + "+".join(source.name for source, _ in sources)
        self.threshold = competition.threshold
        self.rivalry = competition.rivalry
        self.sources = tuple(sources)
        self.documents = next((source.related for source, _ in sources if isinstance(source, Esa)), None)

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: Collection[str] = (), of: Collection[str] = ()
    ) -> Array:
        """Belief; 1 for the same text, 0 for what no source knows."""
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
    ) -> Array:
        """The mean over the sources that know both terms, less a unit for each word that both have beyond the usual.

        -inf where no source knows both. (The toll is as a logistic regression on pairs of half of EuroVoc has it.)
        """
        total = np.zeros((len(subscribed), len(terms)))
        voices = np.zeros_like(total)
        for source, scale in self.sources:
            found = scale.evidence(source.figures(subscribed, terms, themes, event_themes))
            knows = ~np.isnan(found)
            total[knows] += found[knows]
            voices += knows
        mean = np.divide(total, voices, out=np.full_like(total, -np.inf), where=voices > 0)
        return np.asarray(mean - (np.clip(all_shorter(subscribed, terms), 1, LONG) - USUAL))


def _belief(evidence: Array) -> Array:
    with np.errstate(over="ignore"):  # of what nobody knows, 0
        return np.asarray(1 / (1 + np.exp(-evidence)))
