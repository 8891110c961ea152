"""Names and their places in a block: as small as can be, since there may be a million.

An open hash table of 32-bit numbers beside the list of names: a sixth of what a dict
takes, and it never grows, so that no add waits for a table to be copied.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

BLOCK = 1 << 16
"""Places in a block."""
_MASK = 2 * BLOCK - 1
_EMPTY = -1


class Places:
    """Up to `BLOCK` names, each at a place of its own; what is given back is taken again."""

    def __init__(self) -> None:
        self.names: list[str | None] = []
        self._table = array("i", [_EMPTY]) * (_MASK + 1)
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.names) - len(self._free)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.names if name is not None)

    @property
    def has_room(self) -> bool:
        """Whether one more name finds a place."""
        return bool(self._free) or len(self.names) < BLOCK

    def get(self, name: str) -> int | None:
        """The place of a name; None: it has none."""
        table, names = self._table, self.names
        at = hash(name) & _MASK
        while (place := table[at]) != _EMPTY:
            if names[place] == name:
                return place
            at = (at + 1) & _MASK
        return None

    def take(self, name: str) -> int:
        """Take a place for a name that has none."""
        if self._free:
            place = self._free.pop()
            self.names[place] = name
        else:
            place = len(self.names)
            self.names.append(name)
        at = hash(name) & _MASK
        while self._table[at] != _EMPTY:
            at = (at + 1) & _MASK
        self._table[at] = place
        return place

    def release(self, name: str) -> int:
        """Give back the place of a name that has one."""
        table, names = self._table, self.names
        at = hash(name) & _MASK
        while names[table[at]] != name:
            at = (at + 1) & _MASK
        place = table[at]
        names[place] = None
        self._free.append(place)
        self._close(at)
        return place

    def _close(self, gap: int) -> None:
        """Move up what stands behind a gap because its own place was taken: nobody looks beyond a gap."""
        at = gap
        while True:
            at = (at + 1) & _MASK
            if self._table[at] == _EMPTY:
                break
            name = self.names[self._table[at]]
            assert name is not None
            if (at - (hash(name) & _MASK)) & _MASK >= (at - gap) & _MASK:
                self._table[gap] = self._table[at]
                gap = at
        self._table[gap] = _EMPTY
