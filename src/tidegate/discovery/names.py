"""Which of the names that services have a consumer may mean.

An `Alike` takes the wanted name and all known ones and gives those that may be meant,
each with its likeness from 0 to 1: exact, by edit distance, by meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tidegate.errors import DiscoveryError
from tidegate.filters.meaning import NO_SEMANTICS, Semantics
from tidegate.filters.patterns import default_edits
from tidegate.filters.thematic import readable

MOST_ALIKE = 16
"""Names that one may stand for: `sensor1` to `sensor999` are all alike, and to mean all of them is to mean none."""

LEAST_ALIKE = 0.05
"""What two names of nearly the same meaning reach, whatever the threshold of those who compare them."""

Alike = Callable[[str, Collection[str]], Mapping[str, float]]


def exact(wanted: str, known: Collection[str]) -> Mapping[str, float]:
    """Just the name itself."""
    del known  # asked for whether or not it is there: vectors of others may have it
    return {wanted: 1.0}


def by_edits(wanted: str, known: Collection[str]) -> Mapping[str, float]:
    """The names a few edits away: as many edits as STRLIKE allows by the wanted name's length.

    >>> by_edits("temperatur", ["temperature", "humidity"])
    {'temperatur': 1.0, 'temperature': 0.9090909090909091}
    """
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    budget = default_edits(wanted)
    found = process.extract(wanted, list(known), scorer=Levenshtein.distance, score_cutoff=budget, limit=None)
    near = sorted((-1.0 + edits / max(len(wanted), len(name)), name) for name, edits, _ in found if edits)
    return {wanted: 1.0, **{name: -unlike for unlike, name in near[: MOST_ALIKE - 1]}}


def by_meaning(semantics: Semantics | None) -> Alike:
    """The names that mean nearly the same, as far as `semantics` knows; None: nothing here knows what words mean."""

    def alike(wanted: str, known: Collection[str]) -> Mapping[str, float]:
        if semantics is None:
            raise DiscoveryError.one("names", f"names can't be compared by meaning here: {NO_SEMANTICS}")
        others = sorted(name for name in known if name != wanted)
        everywhere: frozenset[str] = frozenset()
        figures = semantics.relatedness([readable(wanted)], [readable(name) for name in others], everywhere, everywhere)
        near = sorted((-float(figure), name) for figure, name in zip(figures[0], others, strict=True))
        found = [(name, -unlike) for unlike, name in near if -unlike >= max(LEAST_ALIKE, semantics.threshold)]
        return {wanted: 1.0, **dict(found[: MOST_ALIKE - 1])}

    return alike


def remembered(alike: Alike) -> Alike:
    """The same for one request: a name is looked for once, however many services it is explained for."""
    found: dict[str, Mapping[str, float]] = {}

    def ask(wanted: str, known: Collection[str]) -> Mapping[str, float]:
        if wanted not in found:
            found[wanted] = alike(wanted, known)
        return found[wanted]

    return ask
