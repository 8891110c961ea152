"""The best that is known of terms: sources together, and subscribed terms that compete for each term of events.

    figures of each source ──scale──▶ evidence, their mean ──▶ belief times rivalry

- *Evidence* is how far a figure lies above what unrelated terms have, in the source's own unit; that of several
  sources is their mean. What one source does not know, the others decide.
- *Belief* is evidence as a figure from 0 to 1: 1 / (1 + e^-evidence). It is what a lone filter has.
- *Rivalry*: of all subscribed terms the one with the most evidence for a term keeps its belief; another loses by how
  far it is behind. `Eire` is somewhat related to `Spain`, yet where somebody asks for `Ireland`, that is what is meant.
  As only the best counts, not how many there are, terms that mean the same do not take from each other.

So a filter's degrees depend on what else is subscribed to. That is the price, and the gain is most of what there is:
see `docs/spec/semantics.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.semantics.measures import Esa, Source
from tidegate.semantics.rules import settled
from tidegate.semantics.storage import Array


@dataclass(frozen=True, slots=True)
class Scale:
    """How a source's figures become evidence."""

    centre: float
    """The figure at which terms are as likely related as not."""
    unit: float
    """The distance from it that makes the odds 2.7 times as great."""


@dataclass(frozen=True, slots=True)
class Competition:
    """What is the same for all sources."""

    rivalry: float
    """How much a unit of evidence behind the best costs; 0: no competition."""
    same: float
    """The evidence that the same text counts with, as a rival."""
    threshold: float


class Best:
    """Sources, each with its scale, and how their terms compete."""

    def __init__(self, sources: Sequence[tuple[Source, Scale]], competition: Competition) -> None:
        self.name = "best-" + "+".join(source.name for source, _ in sources)
        self.threshold = competition.threshold
        self.competes = True
        self.sources = tuple(sources)
        self.documents = next((source.related for source, _ in sources if isinstance(source, Esa)), None)
        self._competition = competition

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: Collection[str] = (), of: Collection[str] = ()
    ) -> Array:
        """Belief times rivalry; 1 for the same text, 0 for what no source knows."""
        known = settled(subscribed, terms)
        if not known.size:
            return known
        evidence = self.evidence(subscribed, terms, theme, of)
        evidence = np.where(np.isnan(known), evidence, np.where(known == 1, self._competition.same, -np.inf))
        most = evidence.max(axis=0)
        behind = evidence - np.where(np.isfinite(most), most, 0.0)
        found = _belief(evidence) * np.exp(np.maximum(self._competition.rivalry * behind, _LEAST))
        return np.where(np.isnan(known), np.where(np.isfinite(evidence), found, 0.0), known)

    def evidence(
        self,
        subscribed: Sequence[str],
        terms: Sequence[str],
        themes: Collection[str] = (),
        event_themes: Collection[str] = (),
    ) -> Array:
        """The mean over the sources that know both terms; -inf where none does."""
        total = np.zeros((len(subscribed), len(terms)))
        voices = np.zeros_like(total)
        for source, scale in self.sources:
            found = (source.figures(subscribed, terms, themes, event_themes) - scale.centre) / scale.unit
            knows = ~np.isnan(found)
            total[knows] += found[knows]
            voices += knows
        return np.divide(total, voices, out=np.full_like(total, -np.inf), where=voices > 0)


_LEAST = -50.0


def _belief(evidence: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.maximum(evidence, _LEAST))))
