"""What changes in a table of forwarded filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.filters import Filter


@dataclass(frozen=True, slots=True)
class Delta:
    """Entries that come, by number, and numbers that go: one step, in which the coming is first."""

    add: Mapping[int, Filter]
    remove: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.add or self.remove)


NOTHING = Delta({}, ())


class TableChanges:
    """Collects what a step does to a table; what comes and goes within it is nothing."""

    def __init__(self) -> None:
        self._add: dict[int, Filter] = {}
        self._remove: set[int] = set()

    def add(self, number: int, filter_: Filter) -> None:
        """An entry comes."""
        if number in self._remove:
            self._remove.discard(number)
        else:
            self._add[number] = filter_

    def remove(self, number: int) -> None:
        """An entry goes."""
        if self._add.pop(number, None) is None:
            self._remove.add(number)

    def taken(self) -> Delta:
        """The step as a whole; the next one begins empty."""
        found = Delta(self._add, tuple(sorted(self._remove)))
        self._add, self._remove = {}, set()
        return found if found else NOTHING
