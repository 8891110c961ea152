"""What every engine promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.filters import Filter
from tidegate.matching.events import Events


@dataclass(frozen=True, slots=True)
class Entry:
    """A filter and whoever subscribed with it."""

    filter: Filter
    owners: tuple[str, ...]


Found = tuple[Any, Any, Callable[[int], Entry]]
"""Event indexes, entry numbers, and what stood under a number when it was matched."""


class Index(Protocol):
    """A set of numbered entries that can be asked which of them match a batch.

    Changes come from one thread at a time and are seen by the next `match`;
    `match` may run in any number of threads at once and takes no lock.
    """

    def apply(self, put: Mapping[int, Entry], drop: Iterable[int] = ()) -> None:
        """Put and drop entries in one step: a match sees all of it or nothing.

        A number that is put again keeps its filter and changes its owners.
        """

    def match(self, events: Events) -> Found:
        """Give the pairs (event index, number), ordered by event, none twice."""

    def describe(self) -> dict[str, Any]:
        """Report shape and memory."""
