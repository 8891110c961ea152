"""Assigns slots of a block to service names, in little memory, because there may be a million.

An open-addressing hash table of 32-bit slot numbers beside the list of names. It takes a sixth of the memory of a dict
and never grows, so that no addition waits for a copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

BLOCK = 1 << 16
"""Slots in a block."""
_MASK = 2 * BLOCK - 1
_EMPTY = -1


class SlotTable:
    """Up to `BLOCK` names, each in a slot of its own. A released slot is used again."""

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
        """True if there is a free slot."""
        return bool(self._free) or len(self.names) < BLOCK

    def get(self, name: str) -> int | None:
        """Return the slot of a name; None if it has none."""
        table, names = self._table, self.names
        at = hash(name) & _MASK
        while (slot := table[at]) != _EMPTY:
            if names[slot] == name:
                return slot
            at = (at + 1) & _MASK
        return None

    def take(self, name: str) -> int:
        """Assign a slot to a name that has none, and return it."""
        if self._free:
            slot = self._free.pop()
            self.names[slot] = name
        else:
            slot = len(self.names)
            self.names.append(name)
        at = hash(name) & _MASK
        while self._table[at] != _EMPTY:
            at = (at + 1) & _MASK
        self._table[at] = slot
        return slot

    def release(self, name: str) -> int:
        """Release the slot of a name that has one, and return it."""
        table, names = self._table, self.names
        at = hash(name) & _MASK
        while names[table[at]] != name:
            at = (at + 1) & _MASK
        slot = table[at]
        names[slot] = None
        self._free.append(slot)
        self._close(at)
        return slot

    def _close(self, gap: int) -> None:
        """Move later entries of a probe sequence into a gap, because a lookup stops at the first gap."""
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
