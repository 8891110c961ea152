"""What a filter with `~` asks of whoever knows what words mean.

The language knows no space and no model: it hands over words and is told how related they are. `tidegate.semantics`
has what knows.
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
    "-o space/) and name it: `tidegate up --semantics space/`. In Python give semantics=Space.open('space/'), or what "
    "is installed: semantics=tidegate.semantics.default_semantics()"
)
"""How to get what knows words."""
NO_SPACE = f"likeness of meaning (~) needs a semantic space or an embedding: {NO_SEMANTICS}"
"""What a filter with ~ is told that has nothing to be evaluated by."""


class Semantics(Protocol):
    """What knows how related terms are: a space, a model, or several together.

    It may be asked from one thread at a time.
    """

    @property
    def threshold(self) -> float:
        """The least degree of a match where nobody names one: what was found to tell matches from others."""

    @property
    def rivalry(self) -> float:
        """How much it costs a predicate that another one fits a tuple better (`thematic.competed`); 0: nothing."""

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: frozenset[str], of: frozenset[str]
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        """How related terms are, from 0 to 1: a row a subscribed term, a column a term of events.

        `theme` are the tags of the subscriptions, `of` those of the events. Each figure depends on its two terms and
        their themes alone.
        """


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a filter is evaluated by: who knows, the threshold of filters that name none, the tags of the service."""

    semantics: Semantics
    threshold: float | None = None
    """None: as `semantics` has it."""
    themes: frozenset[str] = frozenset()
    """The tags of the service, which are those of each of its events."""

    def __post_init__(self) -> None:
        if not hasattr(self.semantics, "relatedness"):
            raise MatcherError(f"semantics: expected a Space, such as Space.open('space/'), not {self.semantics!r:.60}")
        number = isinstance(self.threshold, int | float)
        if self.threshold is not None and not (number and 0 <= self.threshold <= 1):
            raise MatcherError(f"threshold: expected a number from 0 to 1, not {self.threshold!r}")

    @classmethod
    def of(
        cls, given: Semantics | Meaning | None, threshold: float | None = None, themes: Iterable[str] = ()
    ) -> Meaning | None:
        """What was given, made one; None: nothing was."""
        if given is None or isinstance(given, Meaning):
            return given
        if isinstance(themes, str):
            raise MatcherError(f"themes: expected a list of tags, such as [{themes!r}], not a text")
        return cls(given, threshold, frozenset(themes))

    @property
    def least(self) -> float:
        """The least degree of a match where its filter names none."""
        return self.semantics.threshold if self.threshold is None else self.threshold
