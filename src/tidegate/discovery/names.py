"""Finds the attribute names that a requested name may refer to.

A `NameMatcher` takes the requested name and all known names, and returns those that may be meant, each with its
similarity from 0 to 1. There are three: exact, by edit distance, by relatedness.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tidegate.errors import DiscoveryError
from tidegate.filters.meaning import NO_SEMANTICS, Semantics
from tidegate.filters.patterns import default_edits
from tidegate.filters.thematic import readable

MAX_SIMILAR_NAMES = 16
"""Maximum number of names that one may refer to: `sensor1` to `sensor999` are similar, but none of them is meant."""

MIN_SIMILARITY = 0.05
"""Minimum relatedness of two names of nearly the same meaning, if the threshold of the semantics is lower."""

NameMatcher = Callable[[str, Collection[str]], Mapping[str, float]]


def exact(requested: str, known: Collection[str]) -> Mapping[str, float]:
    """Return only the requested name."""
    del known  # also returned if no service here has it: other registries may
    return {requested: 1.0}


def by_edits(requested: str, known: Collection[str]) -> Mapping[str, float]:
    """Return the names within a few edits: as many as STRLIKE allows for the length of the requested name.

    >>> by_edits("temperatur", ["temperature", "humidity"])
    {'temperatur': 1.0, 'temperature': 0.9090909090909091}
    """
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    budget = default_edits(requested)
    candidates = process.extract(requested, list(known), scorer=Levenshtein.distance, score_cutoff=budget, limit=None)
    near = sorted((-1.0 + edits / max(len(requested), len(name)), name) for name, edits, _ in candidates if edits)
    return {requested: 1.0, **{name: -unlike for unlike, name in near[: MAX_SIMILAR_NAMES - 1]}}


def by_meaning(semantics: Semantics | None) -> NameMatcher:
    """Return a matcher for names of nearly the same meaning, as `semantics` knows it.

    If `semantics` is None, the matcher raises `DiscoveryError`.
    """

    def alike(requested: str, known: Collection[str]) -> Mapping[str, float]:
        if semantics is None:
            raise DiscoveryError.one("names", f"names can't be compared by meaning here: {NO_SEMANTICS}")
        others = sorted(name for name in known if name != requested)
        everywhere: frozenset[str] = frozenset()
        figures = semantics.relatedness(
            [readable(requested)], [readable(name) for name in others], everywhere, everywhere
        )
        near = sorted((-float(figure), name) for figure, name in zip(figures[0], others, strict=True))
        similar = [(name, -unlike) for unlike, name in near if -unlike >= max(MIN_SIMILARITY, semantics.threshold)]
        return {requested: 1.0, **dict(similar[: MAX_SIMILAR_NAMES - 1])}

    return alike


def cached(alike: NameMatcher) -> NameMatcher:
    """Return the matcher with a cache, for use in one request: each name is looked up once, for all services."""
    cache: dict[str, Mapping[str, float]] = {}

    def ask(requested: str, known: Collection[str]) -> Mapping[str, float]:
        if requested not in cache:
            cache[requested] = alike(requested, known)
        return cache[requested]

    return ask
