"""What a broker forwards over one link of the filters that it needs events for: five ways, one protocol.

`flooding` forwards nothing and sends every event everywhere; `simple` forwards every filter;
`identity` each filter once; `covering` only what nothing else covers; `merging` also makes one
filter of several where it matches exactly what they match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from tidegate.federation.routes.delta import NOTHING, Delta, TableChanges
from tidegate.federation.routes.forest import Forest
from tidegate.federation.routes.merging import Merger
from tidegate.filters import Filter

Fresh = Callable[[], int]
"""Gives a number that nothing had before."""


class Strategy(Protocol):
    """One link's table of one service, as its sender keeps it."""

    floods: bool
    """Whether events cross the link without being asked for."""

    @property
    def pending(self) -> bool:
        """Whether the table has more than it must, until `work` has been called some more times."""

    def work(self) -> Delta:
        """Take one of the steps that are pending."""

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Delta:
        """Take needed filters under new numbers, forget others, in one step; say what changes in the table."""


class Prompt:
    """Does with each change all that follows from it."""

    floods = False
    pending = False

    def work(self) -> Delta:
        """Nothing is left to do."""
        return NOTHING


class Flooding(Prompt):
    """Forwards no filter: the neighbour gets every event."""

    floods = True

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Delta:  # noqa: ARG002 - nobody is asked
        """Nothing to say."""
        return NOTHING


class Simple(Prompt):
    """Forwards every filter, however often it came."""

    def __init__(self) -> None:
        self._changes = TableChanges()

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Delta:
        """Pass everything on."""
        for number, each in put.items():
            self._changes.add(number, each)
        for number in drop:
            self._changes.remove(number)
        return self._changes.taken()


class Identity(Prompt):
    """Forwards each filter once, and counts who needs it."""

    def __init__(self) -> None:
        self._changes = TableChanges()
        self._numbers: dict[Filter, int] = {}
        self._needing: dict[Filter, set[int]] = {}
        self._filters: dict[int, Filter] = {}

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Delta:
        """Forward the first of equal filters, take it back with the last."""
        for number, each in put.items():
            self._filters[number] = each
            self._needing.setdefault(each, set()).add(number)
            if each not in self._numbers:
                self._numbers[each] = number
                self._changes.add(number, each)
        for number in drop:
            gone = self._filters.pop(number)
            self._needing[gone].discard(number)
            if not self._needing[gone]:
                del self._needing[gone]
                self._changes.remove(self._numbers.pop(gone))
        return self._changes.taken()


STRATEGIES: dict[str, Callable[[Fresh], Strategy]] = {
    "flooding": lambda _: Flooding(),
    "simple": lambda _: Simple(),
    "identity": lambda _: Identity(),
    "covering": lambda _: Forest(),
    "merging": lambda fresh: Forest(Merger(fresh)),
}
"""By name, each made with what gives new numbers."""
