"""What matched: (event, subscription) pairs as arrays, never as Python tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

Pairs = tuple[Any, Any]
"""Two arrays of equal length: event index, number of a filter."""


class Matches:
    """The outcome of matching one batch, ordered by event.

    It is of one moment: later changes to the matcher do not change it.
    """

    def __init__(
        self, events: int, event: Any, owner: Any, ids: Sequence[str], degrees: Callable[[Any, Any], Any]
    ) -> None:
        self.events = events
        """How many events the batch had."""
        self._event, self._owner, self._ids, self._degrees = event, owner, ids, degrees

    def __len__(self) -> int:
        return len(self._event)

    @cached_property
    def _offsets(self) -> Any:
        return np.searchsorted(self._event, np.arange(self.events + 1))

    @cached_property
    def _names(self) -> Any:
        return np.array(self._ids, dtype=object)[self._owner] if len(self._owner) else np.empty(0, dtype=object)

    def pairs(self) -> Pairs:
        """Give two arrays of equal length: event index, subscription id."""
        return self._event, self._names

    def for_event(self, index: int) -> list[str]:
        """Give the ids of the subscriptions that an event matches."""
        if not -self.events <= index < self.events:
            raise IndexError(f"expected an event from 0 to {self.events - 1}, not {index}")
        index %= self.events
        return list(self._names[self._offsets[index] : self._offsets[index + 1]])

    def for_subscription(self, subscription: str) -> Any:
        """Give the indexes of the events that a subscription gets."""
        return self._event[self._names == subscription]

    def degrees(self) -> Any:
        """Say how well each pair fits, 0 to 1, parallel to `pairs`."""
        found = np.zeros(len(self._event))
        for number in np.unique(self._owner):
            of_it = self._owner == number
            found[of_it] = self._degrees(number, self._event[of_it])
        return found
