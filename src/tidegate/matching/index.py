"""What every engine promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.filters import Filter
from tidegate.filters.nodes import Node
from tidegate.filters.normalize import push_not_inwards, to_dnf
from tidegate.matching.events import Events


@dataclass(frozen=True, slots=True)
class Entry:
    """A filter and whoever subscribed with it."""

    filter: Filter
    owners: tuple[str, ...]

    def alternatives(self) -> list[tuple[Node, ...]]:
        """The filter as conjuncts, as it was written: nothing is concluded from its schema."""
        return to_dnf(push_not_inwards(self.filter.tree.root))


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
