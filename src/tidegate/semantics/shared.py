"""A thread-safe `Semantics` for many subscribers, without competition between predicates."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

from tidegate.filters.meaning import Semantics
from tidegate.filters.vectors import NumpyArray

LONE_THRESHOLD = 0.62
"""Minimum degree of a match if competition is turned off: see `docs/spec/semantics.md`."""


class Shared:
    """Wraps a `Semantics`: adds a lock, and turns competition off.

    Whether an event reaches a subscriber must not depend on who else subscribes, nor on who reads the same part of a
    stream. Polling, catching up and live delivery must give the same events. So predicates do not compete here.
    """

    rivalry = 0.0

    def __init__(self, semantics: Semantics) -> None:
        self.semantics = semantics
        self.lock = RLock()
        """Held while the wrapped semantics, or its parts, are used."""

    @property
    def threshold(self) -> float:
        """Minimum degree of a match for filters that name none."""
        return LONE_THRESHOLD if self.semantics.rivalry else self.semantics.threshold

    def relatedness(
        self, subscribed: Sequence[str], terms: Sequence[str], theme: frozenset[str], of: frozenset[str]
    ) -> NumpyArray:
        """Return how related terms are: one row per subscribed term, one column per term of events. Takes the lock."""
        with self.lock:
            return self.semantics.relatedness(subscribed, terms, theme, of)
