"""Which semantics a user gets: the documents of a space, the installed embedding, or both.

The figures below were fitted on events that our own generator makes: scales on sensors' words and one half of the
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
from tidegate.semantics.measures import Esa, Semantics, paper
from tidegate.semantics.space import Space

ESA_SCALE = Scale(centre=0.5, unit=0.08, power=0.5)
EMBEDDING_SCALE = Scale(centre=0.35, unit=0.08)
COMPETITION = Competition(rivalry=1.0, threshold=0.4)
"""One threshold for a lone filter and for hundreds: odds go with how many there are (`filters.thematic.company`)."""


def default_semantics(space: Space | Path | str | None = None) -> Semantics:
    """The best of what there is: a space (or the folder of one), the installed embedding, or both together.

    A space that was opened in another mode than `best` stays in it.
    Raise `SpaceError` where the folder is no space, `EnvironmentProblem` where there is neither.
    """
    opened = Space.open(space) if isinstance(space, Path | str) else space
    if opened is not None:
        return MODES[opened.mode](opened)
    if Embedding.installed():
        return embedding_only(Embedding.open())
    raise EnvironmentProblem(
        "a filter with ~ needs to know what words mean: install an embedding (pip install 'tidegate[embedding]'), "
        "or build a space from a corpus (tidegate semantics build CORPUS -o space/) and name its folder"
    )


def best(space: Space) -> Best:
    """By a space, and by the embedding where one is installed."""
    return both(space, Embedding.open()) if Embedding.installed() else esa_only(space)


def esa_only(space: Space) -> Best:
    """By the documents of a space alone: themes count, unknown words do not."""
    return Best([(Esa(space), ESA_SCALE)], COMPETITION)


def embedding_only(embedding: Embedding) -> Best:
    """By the embedding alone: no corpus is needed, and themes do not count."""
    return Best([(embedding, EMBEDDING_SCALE)], COMPETITION)


def both(space: Space, embedding: Embedding) -> Best:
    """By both: what one does not know, the other decides."""
    return Best([(Esa(space), ESA_SCALE), (embedding, EMBEDDING_SCALE)], COMPETITION)


MODES: dict[str, Callable[[Space], Semantics]] = {
    "best": best,
    "esa": esa_only,
    "paper": paper,
    "letter": partial(paper, rules=False),
}
"""What a space may be opened as."""
