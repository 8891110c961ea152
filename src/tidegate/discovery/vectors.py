"""Packed vectors of all services, cut into slices: a place for each, taken and given back at any time.

A word holds one bit of 64 services, and not 64 bits of one:

                  place 0 ... 63   64 ... 127
    bit 0        [ word          | word ... ]     a request of forty bits reads forty of a
    bit 1        [ word          | word ... ]     thousand lines, 64 services at a time, and
    ...                                           counts them by adding lines

Blocks, and not one array that grows: to copy a hundred megabytes takes longer than an
add may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tidegate.discovery import kernels
from tidegate.discovery.bloom import Vector
from tidegate.discovery.places import BLOCK, Places

WORDS = BLOCK // 64
"""Words of a line: a block is 8 MB of a thousand bits a place, which the system hands out page by page."""

Forms = tuple[Any, Any, Any]
"""What `kernels.count` counts: see there."""


class Vectors:
    """A vector of bits for each name."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._names: list[Places] = []
        self._slices: list[Any] = []

    def __len__(self) -> int:
        return sum(map(len, self._names))

    @property
    def size(self) -> int:
        """How many places there are, the empty ones among them included."""
        return BLOCK * (len(self._names) - 1) + len(self._names[-1].names) if self._names else 0

    def place(self, name: str) -> int | None:
        """Where a name stands."""
        for n, names in enumerate(self._names):
            found = names.get(name)
            if found is not None:
                return n * BLOCK + found
        return None

    def name(self, place: int) -> str | None:
        """The name at a place; None: it is empty."""
        return self._names[place // BLOCK].names[place % BLOCK]

    def names(self) -> Iterator[str]:
        """All names."""
        for names in self._names:
            yield from names

    def take(self, name: str) -> int:
        """Take a place for a name that has none, its vector empty."""
        for n, names in enumerate(self._names):
            if names.has_room:
                return n * BLOCK + names.take(name)
        self._names.append(Places())
        self._slices.append(np.zeros((self.bits, WORDS), np.uint64))
        return (len(self._names) - 1) * BLOCK + self._names[-1].take(name)

    def release(self, place: int) -> None:
        """Give back a place whose vector is empty."""
        name = self.name(place)
        assert name is not None
        self._names[place // BLOCK].release(name)

    def turn(self, place: int, positions: Any, on: bool) -> None:
        """Set or clear bits of the vector at a place."""
        kernels.turn(self._slices[place // BLOCK], place % BLOCK, positions, on)

    def row(self, place: int) -> Vector:
        """The vector at a place."""
        at = place % BLOCK
        line = self._slices[place // BLOCK][:, at >> 6] >> np.uint64(at & 63) & np.uint64(1)
        return packed(np.flatnonzero(line), self.bits)

    def widen(self, bits: int) -> list[Any]:
        """Make all vectors empty ones of another length; give their slices, block by block."""
        self.bits = bits
        for n in range(len(self._slices)):
            self._slices[n] = None  # before the new one is there, or both would be
            self._slices[n] = np.zeros((bits, WORDS), np.uint64)
        return self._slices

    def count(self, forms: Forms, least: int) -> Any:
        """Count for each place what it has of some forms; 0 where that is less than `least`, which is 1 or more."""
        out = np.zeros(self.size, np.uint16)
        for n, slices in enumerate(self._slices):
            kernels.count(slices, *forms, max(1, least), out[n * BLOCK : (n + 1) * BLOCK])
        return out


def packed(positions: Sequence[int] | Any, bits: int) -> Vector:
    """A vector as words, out of the bits that are set."""
    found = np.zeros((bits + 63) // 64, np.uint64)
    for at in positions:
        found[int(at) >> 6] |= np.uint64(1 << (int(at) & 63))
    return found


def positions(vector: Vector) -> Any:
    """The bits that are set in a vector of words."""
    return np.flatnonzero(np.unpackbits(vector.astype("<u8").view(np.uint8), bitorder="little"))


def forms(wanted: Iterable[Iterable[Iterable[int]]]) -> Forms:
    """Make what is counted out of the bits of each form of each wanted attribute.

    A wanted attribute has several forms where names or types may differ; one without
    any is never found.
    """
    first, begins = [0], [0]
    bits: list[int] = []
    for each in wanted:
        for form in each:
            bits += dict.fromkeys(form)
            begins.append(len(bits))
        first.append(len(begins) - 1)
    return np.array(first, np.int32), np.array(begins, np.int32), np.array(bits, np.int32)


def each_bit(vector: Vector) -> Forms:
    """Make what is counted for B-Coverage: every bit of a request's vector for itself."""
    return forms([[at]] for at in positions(vector).tolist())
