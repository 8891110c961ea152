"""Sets of attributes as Bloom filters, and what theory says of them (Zhao et al.).

The papers' words: *Coverage* C is the share of a request's attributes that a service
has; *B-Coverage* C_BF the share of the request's bits that are set in the service's
vector. B-Coverage is no bound of Coverage: the bits of attributes that a service has
not may fall on each other, so that what it lacks weighs more than it should. The
number of wanted attributes whose bits are *all* set is a bound: a Bloom filter never
forgets. So a search counts those (`kernels.count`), and B-Coverage is what the paper
ranks by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.discovery.attributes import Key

MOST_HASHES = 8
"""One digest has so many hashes of 64 bits."""
MOST_BITS = 1 << 20

Vector = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True, slots=True)
class Bloom:
    """How attributes become bits: vectors of the same settings can be compared, all others can't."""

    bits: int = 1_024
    """m. Two cache lines: with ten attributes one in 600,000 others is taken for one of them."""
    hashes: int = 4
    """k. More make false positives rarer, until a service of a hundred attributes fills its vector."""

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MOST_BITS:
            raise ValueError(f"expected 1 to {MOST_BITS:,} bits, not {self.bits}")
        if not 1 <= self.hashes <= MOST_HASHES:
            raise ValueError(f"expected 1 to {MOST_HASHES} hashes, not {self.hashes}")

    @property
    def words(self) -> int:
        """How many words of 64 bits a vector takes."""
        return (self.bits + 63) // 64

    def positions(self, key: Key) -> tuple[int, ...]:
        """The bits of an attribute: part of the exchange format, so they never change.

        >>> Bloom(1000, 3).positions(("speed", "number"))
        (878, 519, 344)
        """
        text = "\x1f".join(key).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, digest_size=8 * self.hashes, person=b"tidegate").digest()
        return tuple(int.from_bytes(digest[at : at + 8], "little") % self.bits for at in range(0, len(digest), 8))

    def vector(self, keys: Iterable[Key]) -> Vector:
        """The vector of a set of attributes."""
        found = np.zeros(self.words, np.uint64)
        for key in keys:
            for at in self.positions(key):
                found[at >> 6] |= np.uint64(1 << (at & 63))
        return found

    def expected_b_coverage(self, service: float, request: float, shared: float) -> float:
        """Formula 2: the mean B-Coverage of sets of so many attributes, of which so many are shared.

        >>> round(Bloom(1000, 3).expected_b_coverage(100, 100, 50), 3)
        0.602
        """
        q = 1 - 1 / self.bits
        k = self.hashes
        both = q ** (k * (service + request - shared))
        return float((1 + both - q ** (k * request) - q ** (k * service)) / (1 - q ** (k * request)))

    def false_positive(self, attributes: Any) -> Any:
        """The share of attributes that a service of so many others seems to have; also of many at once.

        >>> Bloom(1024, 4).false_positive(10) < 1 / 400_000
        True
        """
        return (1 - (1 - 1 / self.bits) ** (self.hashes * attributes)) ** self.hashes


def coverage(service: Iterable[Key], request: Iterable[Key]) -> float:
    """Definition 2: the share of a request's attributes that a service has."""
    wanted = set(request)
    return len(wanted & set(service)) / len(wanted)


def b_coverage(service: Vector, request: Vector) -> float:
    """Definition 3: the share of a request's bits that a service's vector has.

    >>> one, other = (np.array([int(bits[::-1], 2)], np.uint64) for bits in ("1011000110", "1111000010"))
    >>> b_coverage(one, other)
    0.8
    """
    return int(np.bitwise_count(service & request).sum()) / int(np.bitwise_count(request).sum())
