"""Sets of attributes as Bloom filters, and their statistics (Zhao et al.).

The papers' terms: *Coverage* C is the share of a request's attributes that a service has. *B-Coverage* C_BF is the
share of the request's bits that are set in the service's vector. B-Coverage is no bound of Coverage: bits of different
missing attributes may coincide, so that missing attributes weigh more than they should. The number of requested
attributes whose bits are *all* set is an upper bound, because a Bloom filter has no false negatives. So a search counts
those (`kernels.count`); the paper ranks by B-Coverage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.discovery.attributes import AttributeKey

MAX_HASHES = 8
"""Number of 64-bit hashes in one digest."""
MAX_BITS = 1 << 20

BitVector = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True, slots=True)
class Bloom:
    """How attributes become bits. Only vectors with the same settings can be compared.

    Raises `ValueError` if a setting is out of range.
    """

    bits: int = 1_024
    """m. Two cache lines: a service with ten attributes seems to have one in 600,000 others."""
    hashes: int = 4
    """k. More hashes make false positives rarer, until a service with a hundred attributes fills its vector."""

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_BITS:
            raise ValueError(f"expected 1 to {MAX_BITS:,} bits, not {self.bits}")
        if not 1 <= self.hashes <= MAX_HASHES:
            raise ValueError(f"expected 1 to {MAX_HASHES} hashes, not {self.hashes}")

    @property
    def words(self) -> int:
        """Number of 64-bit words of a vector."""
        return (self.bits + 63) // 64

    def positions(self, key: AttributeKey) -> tuple[int, ...]:
        """Return the bits of an attribute. They are part of the exchange format, so they never change.

        >>> Bloom(1000, 3).positions(("speed", "number"))
        (878, 519, 344)
        """
        text = "\x1f".join(key).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, digest_size=8 * self.hashes, person=b"tidegate").digest()
        return tuple(int.from_bytes(digest[at : at + 8], "little") % self.bits for at in range(0, len(digest), 8))

    def vector(self, keys: Iterable[AttributeKey]) -> BitVector:
        """Return the vector of a set of attributes."""
        vector = np.zeros(self.words, np.uint64)
        for key in keys:
            for at in self.positions(key):
                vector[at >> 6] |= np.uint64(1 << (at & 63))
        return vector

    def expected_b_coverage(self, service: float, request: float, shared: float) -> float:
        """Formula 2: return the mean B-Coverage of two sets of attributes, given their sizes and the size of their
        intersection.

        >>> round(Bloom(1000, 3).expected_b_coverage(100, 100, 50), 3)
        0.602
        """
        q = 1 - 1 / self.bits
        k = self.hashes
        both = q ** (k * (service + request - shared))
        return float((1 + both - q ** (k * request) - q ** (k * service)) / (1 - q ** (k * request)))

    def false_positive(self, attributes: Any) -> Any:
        """Return the probability that a service with this many attributes seems to have another one; also for arrays.

        >>> Bloom(1024, 4).false_positive(10) < 1 / 400_000
        True
        """
        return (1 - (1 - 1 / self.bits) ** (self.hashes * attributes)) ** self.hashes


def coverage(service: Iterable[AttributeKey], request: Iterable[AttributeKey]) -> float:
    """Definition 2: return the share of a request's attributes that a service has."""
    requested = set(request)
    return len(requested & set(service)) / len(requested)


def b_coverage(service: BitVector, request: BitVector) -> float:
    """Definition 3: return the share of a request's bits that a service's vector has.

    >>> one, other = (np.array([int(bits[::-1], 2)], np.uint64) for bits in ("1011000110", "1111000010"))
    >>> b_coverage(one, other)
    0.8
    """
    return int(np.bitwise_count(service & request).sum()) / int(np.bitwise_count(request).sum())
