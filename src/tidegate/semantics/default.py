"""Chooses the semantics that a user gets: a semantic space, the installed embedding, or both.

The numbers below were fitted on events of our own generator: the scales on sensor vocabulary and one half of the
concepts of EuroVoc, the threshold on these, the other half, and the words of the paper's table 3 (`tidegate bench
thematic`, `docs/spec/semantics.md`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidegate.errors import EnvironmentProblem
from tidegate.semantics.competition import Best, Competition, Scale
from tidegate.semantics.embedding import Embedding
from tidegate.semantics.measures import Esa, NamedSemantics, paper
from tidegate.semantics.space import Space

ESA_SCALE = Scale(centre=0.5, unit=0.08, power=0.5)
EMBEDDING_SCALE = Scale(centre=0.35, unit=0.08)
COMPETITION = Competition(rivalry=1.0, threshold=0.4)
"""One threshold for one filter and for hundreds: odds depend on the number of filters (`filters.thematic.company`)."""


def default_semantics(space: Space | Path | str | None = None) -> NamedSemantics:
    """Return the best semantics available: a space (or the folder of one), the installed embedding, or both.

    A space that was opened in another mode than `best` keeps that mode. Raises `SpaceError` if the folder is no space,
    `EnvironmentProblem` if there is neither.
    """
    opened = Space.open(space) if isinstance(space, Path | str) else space
    if opened is not None:
        return MODES[opened.mode](opened)
    if Embedding.installed():
        return embedding_only(Embedding.open())
    raise EnvironmentProblem(
        "a filter with ~ needs semantics: install an embedding (pip install 'tidegate[embedding]'), "
        "or build a space from a corpus (tidegate semantics build CORPUS -o space/) and name its folder"
    )


def best(space: Space) -> Best:
    """Use a space, and the embedding if one is installed."""
    return both(space, Embedding.open()) if Embedding.installed() else esa_only(space)


def esa_only(space: Space) -> Best:
    """Use the documents of a space only: themes count, unknown words have relatedness 0."""
    return Best([(Esa(space), ESA_SCALE)], COMPETITION)


def embedding_only(embedding: Embedding) -> Best:
    """Use the embedding only: no corpus is needed, and themes do not count."""
    return Best([(embedding, EMBEDDING_SCALE)], COMPETITION)


def both(space: Space, embedding: Embedding) -> Best:
    """Use both; if one does not know a word, the other decides."""
    return Best([(Esa(space), ESA_SCALE), (embedding, EMBEDDING_SCALE)], COMPETITION)


MODES: dict[str, Callable[[Space], NamedSemantics]] = {
    "best": best,
    "esa": esa_only,
    "paper": paper,
    "letter": partial(paper, rules=False),
}
"""The modes in which a space may be opened."""
