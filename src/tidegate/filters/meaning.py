"""What filters with `~` need from a semantic model.

This package knows no semantic space and no embedding: it passes words to a `Semantics` and gets back how related they
are. `tidegate.semantics` has the implementations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.errors import MatcherError

if TYPE_CHECKING:
    import numpy as np

NO_SEMANTICS = (
    "install an embedding (pip install 'tidegate[embedding]'), or build a space (tidegate semantics build CORPUS "
    "-o space/) and name it: `tidegate up --semantics space/`. In Python pass semantics=Space.open('space/'), or "
    "semantics=tidegate.semantics.default_semantics()"
)
"""Tells a user how to get a `Semantics`."""
NO_SPACE = f"likeness of meaning (~) needs a semantic space or an embedding: {NO_SEMANTICS}"
"""Message for a filter with ~ if there is no `Semantics`."""


class Semantics(Protocol):
    """Knows how related terms are: a semantic space, an embedding, or a combination.

    Need not be thread-safe: callers make sure that one thread calls it at a time.
    """

    @property
    def threshold(self) -> float:
        """Minimum degree of a match if neither the filter nor the matcher names one; tuned on known matches."""

    @property
    def rivalry(self) -> float:
        """How much a predicate loses if another predicate fits a tuple better (see `thematic.competed`); 0: nothing."""

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: frozenset[str], of: frozenset[str]
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return how related terms are, from 0 to 1: one row per subscribed term, one column per term of events.

        `theme` has the tags of the subscriptions, `of` those of the events. Each number depends on its two terms and
        their themes only.
        """


@dataclass(frozen=True, slots=True)
class Meaning:
    """How filters with `~` are evaluated: the semantics, the default threshold, and the tags of the service.

    Raises `MatcherError` if `semantics` is not a `Semantics` or the threshold is not between 0 and 1.
    """

    semantics: Semantics
    threshold: float | None = None
    """None: the threshold of `semantics`."""
    themes: frozenset[str] = frozenset()
    """Tags of the service; each of its events has them."""

    def __post_init__(self) -> None:
        if not hasattr(self.semantics, "relatedness"):
            raise MatcherError(f"semantics: expected a Space, such as Space.open('space/'), not {self.semantics!r:.60}")
        is_number = isinstance(self.threshold, int | float)
        if self.threshold is not None and not (is_number and 0 <= self.threshold <= 1):
            raise MatcherError(f"threshold: expected a number from 0 to 1, not {self.threshold!r}")

    @classmethod
    def of(
        cls, semantics: Semantics | Meaning | None, threshold: float | None = None, themes: Iterable[str] = ()
    ) -> Meaning | None:
        """Return a `Meaning` from semantics, or a `Meaning` unchanged; None if `semantics` is None.

        Raises `MatcherError` if `themes` is a string, or as the constructor does.
        """
        if semantics is None or isinstance(semantics, Meaning):
            return semantics
        if isinstance(themes, str):
            raise MatcherError(f"themes: expected a list of tags, such as [{themes!r}], not a text")
        return cls(semantics, threshold, frozenset(themes))

    @property
    def least(self) -> float:
        """Minimum degree of a match for filters that name none."""
        return self.semantics.threshold if self.threshold is None else self.threshold
