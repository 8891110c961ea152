"""The bit vectors of all services, stored as bit slices; each service has a slot.

A word holds one bit of 64 services, not 64 bits of one service:

                  slot  0 ... 63   64 ... 127
    bit 0        [ word          | word ... ]     a request with forty bits reads forty of a
    bit 1        [ word          | word ... ]     thousand lines, 64 services at a time, and
    ...                                           counts them by adding lines

Slots are in blocks, not in one growing array: copying a hundred megabytes takes longer than an addition may take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tidegate.discovery import kernels
from tidegate.discovery.bloom import BitVector
from tidegate.discovery.slot_table import BLOCK, SlotTable

WORDS = BLOCK // 64
"""Words per line. A block with a thousand bits per slot takes 8 MB, which the system allocates page by page."""

Forms = tuple[Any, Any, Any]
"""Input of `kernels.count`: first form of each attribute, first bit of each form, bits."""


class Vectors:
    """One bit vector per name. Not thread-safe."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._names: list[SlotTable] = []
        self._slices: list[Any] = []

    def __len__(self) -> int:
        return sum(map(len, self._names))

    @property
    def size(self) -> int:
        """Number of slots, including empty ones."""
        return BLOCK * (len(self._names) - 1) + len(self._names[-1].names) if self._names else 0

    def slot(self, name: str) -> int | None:
        """Return the slot of a name; None if it has none."""
        for n, names in enumerate(self._names):
            slot_in_block = names.get(name)
            if slot_in_block is not None:
                return n * BLOCK + slot_in_block
        return None

    def name(self, slot: int) -> str | None:
        """Return the name in a slot; None if it is empty."""
        return self._names[slot // BLOCK].names[slot % BLOCK]

    def names(self) -> Iterator[str]:
        """Yield all names."""
        for names in self._names:
            yield from names

    def take(self, name: str) -> int:
        """Assign a slot to a name that has none, and return it; its vector is empty."""
        for n, names in enumerate(self._names):
            if names.has_room:
                return n * BLOCK + names.take(name)
        self._names.append(SlotTable())
        self._slices.append(np.zeros((self.bits, WORDS), np.uint64))
        return (len(self._names) - 1) * BLOCK + self._names[-1].take(name)

    def release(self, slot: int) -> None:
        """Release a slot, whose vector must be empty."""
        name = self.name(slot)
        assert name is not None
        self._names[slot // BLOCK].release(name)

    def turn(self, slot: int, positions: Any, on: bool) -> None:
        """Set or clear bits of the vector in a slot."""
        kernels.turn(self._slices[slot // BLOCK], slot % BLOCK, positions, on)

    def row(self, slot: int) -> BitVector:
        """Return the vector in a slot."""
        at = slot % BLOCK
        line = self._slices[slot // BLOCK][:, at >> 6] >> np.uint64(at & 63) & np.uint64(1)
        return packed(np.flatnonzero(line), self.bits)

    def widen(self, bits: int) -> list[Any]:
        """Replace all vectors by empty ones of another length, and return the slices of each block."""
        self.bits = bits
        for n in range(len(self._slices)):
            self._slices[n] = None  # before the new one is there, or both would be
            self._slices[n] = np.zeros((bits, WORDS), np.uint64)
        return self._slices

    def count(self, forms: Forms, least: int) -> Any:
        """Return for each slot how many attributes it has; 0 if fewer than `least`, which is 1 or more."""
        out = np.zeros(self.size, np.uint16)
        for n, slices in enumerate(self._slices):
            kernels.count(slices, *forms, max(1, least), out[n * BLOCK : (n + 1) * BLOCK])
        return out


def packed(positions: Sequence[int] | Any, bits: int) -> BitVector:
    """Return the vector in which these bits are set."""
    words = np.zeros((bits + 63) // 64, np.uint64)
    for at in positions:
        words[int(at) >> 6] |= np.uint64(1 << (int(at) & 63))
    return words


def positions(vector: BitVector) -> Any:
    """Return the bits that are set in a vector."""
    return np.flatnonzero(np.unpackbits(vector.astype("<u8").view(np.uint8), bitorder="little"))


def forms(wanted: Iterable[Iterable[Iterable[int]]]) -> Forms:
    """Return the input of `kernels.count` for the bits of each form of each requested attribute.

    An attribute has several forms if its name or type may differ; one without forms is never found.
    """
    first, begins = [0], [0]
    bits: list[int] = []
    for attribute_forms in wanted:
        for form in attribute_forms:
            bits += dict.fromkeys(form)
            begins.append(len(bits))
        first.append(len(begins) - 1)
    return np.array(first, np.int32), np.array(begins, np.int32), np.array(bits, np.int32)


def each_bit(vector: BitVector) -> Forms:
    """Return the input of `kernels.count` for B-Coverage: every bit of a request's vector alone."""
    return forms([[at]] for at in positions(vector).tolist())
