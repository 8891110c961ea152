"""Routing strategies: which of the needed filters a broker requests over one link.

- `flooding` requests none, and every event is sent over every link.
- `simple` requests every filter.
- `identity` requests equal filters once.
- `covering` requests only filters that no other filter covers.
- `merging` does the same, and replaces several filters by one that matches exactly the same events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from tidegate.federation.routes.delta import NOTHING, Delta, TableChanges
from tidegate.federation.routes.forest import Forest
from tidegate.federation.routes.merging import Merger
from tidegate.filters import Filter

NextNumber = Callable[[], int]
"""Returns an unused entry number."""


class Strategy(Protocol):
    """Computes the table that is requested over one link for one service. Not thread-safe."""

    floods: bool
    """True if events are forwarded without a request."""

    @property
    def pending(self) -> bool:
        """True if the table is correct but has more entries than necessary: call `work` until it is False."""

    def work(self) -> Delta:
        """Do a bounded part of the pending work. Returns the change of the table, which may be empty."""

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Delta:
        """Add needed filters under unused numbers, remove others by number. Returns the change of the table."""


class Immediate:
    """Base of the strategies that complete every change at once."""

    floods = False
    pending = False

    def work(self) -> Delta:
        """Return an empty change."""
        return NOTHING


class Flooding(Immediate):
    """Requests no filter: every event is forwarded anyway."""

    floods = True

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Delta:  # noqa: ARG002 - needs no filters
        """Return an empty change."""
        return NOTHING


class Simple(Immediate):
    """Requests every filter, also equal ones."""

    def __init__(self) -> None:
        self._changes = TableChanges()

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Delta:
        """Add and remove the same filters in the table."""
        for number, filter_ in put.items():
            self._changes.add(number, filter_)
        for number in drop:
            self._changes.remove(number)
        return self._changes.take()


class Identity(Immediate):
    """Requests equal filters once."""

    def __init__(self) -> None:
        self._changes = TableChanges()
        self._numbers: dict[Filter, int] = {}
        """The entry number of each requested filter."""
        self._owners: dict[Filter, set[int]] = {}
        """The numbers of the needed filters that are equal to a requested one."""
        self._filters: dict[int, Filter] = {}

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Delta:
        """Add the first of equal filters to the table; remove it with the last of them."""
        for number, filter_ in put.items():
            self._filters[number] = filter_
            self._owners.setdefault(filter_, set()).add(number)
            if filter_ not in self._numbers:
                self._numbers[filter_] = number
                self._changes.add(number, filter_)
        for number in drop:
            filter_ = self._filters.pop(number)
            self._owners[filter_].discard(number)
            if not self._owners[filter_]:
                del self._owners[filter_]
                self._changes.remove(self._numbers.pop(filter_))
        return self._changes.take()


STRATEGIES: dict[str, Callable[[NextNumber], Strategy]] = {
    "flooding": lambda _: Flooding(),
    "simple": lambda _: Simple(),
    "identity": lambda _: Identity(),
    "covering": lambda _: Forest(),
    "merging": lambda next_number: Forest(Merger(next_number)),
}
"""A factory of each strategy by name. Its argument returns an unused entry number."""
