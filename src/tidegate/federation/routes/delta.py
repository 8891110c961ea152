"""Changes of a table of forwarded filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.filters import Filter


@dataclass(frozen=True, slots=True)
class Delta:
    """One step of a table: entries to add, by number, and numbers to remove. The receiver adds before it removes."""

    add: Mapping[int, Filter]
    remove: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.add or self.remove)


NOTHING = Delta({}, ())


class TableChanges:
    """Collects the changes of one step. An entry that is added and removed within the step is left out."""

    def __init__(self) -> None:
        self._add: dict[int, Filter] = {}
        self._remove: set[int] = set()

    def add(self, number: int, filter_: Filter) -> None:
        """Add an entry."""
        if number in self._remove:
            self._remove.discard(number)
        else:
            self._add[number] = filter_

    def remove(self, number: int) -> None:
        """Remove an entry."""
        if self._add.pop(number, None) is None:
            self._remove.add(number)

    def take(self) -> Delta:
        """Return the collected changes and start an empty step."""
        delta = Delta(self._add, tuple(sorted(self._remove)))
        self._add, self._remove = {}, set()
        return delta or NOTHING
