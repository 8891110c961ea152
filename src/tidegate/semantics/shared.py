"""What knows words, for many subscribers and threads: asked by one at a time, and nobody has rivals."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

from tidegate.filters.meaning import Semantics
from tidegate.semantics.storage import Array

LONE_THRESHOLD = 0.62
"""The least degree of a match where predicates that would compete do not: see `docs/spec/semantics.md`."""


class Shared:
    """As `semantics`, but that no predicate competes with others.

    Whether an event reaches a subscriber must not depend on who else subscribes, nor on who reads the same stretch of
    a stream: a page, one who catches up and one who is live get the same. So here nobody has rivals.
    """

    rivalry = 0.0

    def __init__(self, semantics: Semantics) -> None:
        self.semantics = semantics
        self.lock = RLock()
        """Held by whoever asks it, or what is in it."""

    @property
    def threshold(self) -> float:
        """The least degree of a match where nobody names one."""
        return LONE_THRESHOLD if self.semantics.rivalry else self.semantics.threshold

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: frozenset[str], of: frozenset[str]
    ) -> Array:
        """How related terms are: a row a subscribed term, a column a term of events."""
        with self.lock:
            return self.semantics.relatedness(subscribed, terms, theme, of)
