"""Search over services of other registries. Only their vectors are known (the paper's original use).

Results are probable, not certain. The number of requested attributes whose bits are all set is an upper bound, so no
service that has enough is missed. The expected number of false positives follows from how full a vector is; the
estimate that results are ranked by subtracts it. B-Coverage is reported as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.discovery import exchange
from tidegate.discovery.attributes import FAMILIES, WantedAttribute
from tidegate.discovery.bloom import Bloom
from tidegate.discovery.index import minimum_count, require_attributes, top
from tidegate.discovery.vectors import Vectors, each_bit, forms, positions
from tidegate.errors import VectorError


@dataclass(frozen=True, slots=True)
class Likely:
    """A service that probably has the requested attributes."""

    name: str
    at_most: float
    """Share of the requested attributes whose bits are all set: an upper bound of the coverage."""
    estimate: float
    """The same without the expected false positives."""
    b_coverage: float
    """Share of the request's bits that are set (definition 3)."""


class VectorIndex:
    """The vectors of services that are registered elsewhere. Not thread-safe."""

    def __init__(self, bloom: Bloom | None = None) -> None:
        self.bloom = bloom or Bloom()
        self._vectors = Vectors(self.bloom.bits)
        self._attributes = np.zeros(64, np.uint16)

    def __len__(self) -> int:
        return len(self._vectors)

    def merge(self, data: bytes) -> list[str]:
        """Add vectors that another registry wrote, all or none; return their names. Raises `VectorError`."""
        bloom, services = exchange.read(data)
        if bloom != self.bloom:
            raise VectorError(
                f"expected vectors of {self.bloom.bits:,} bits and {self.bloom.hashes} hashes, as in this registry, "
                f"not {bloom.bits:,} and {bloom.hashes}"
            )
        for service in services:
            self.put(service)
        return [service.name for service in services]

    def put(self, service: exchange.ServiceVector) -> None:
        """Add a service, or replace its vector."""
        self.remove(service.name)
        slot = self._vectors.take(service.name)
        self._vectors.turn(slot, positions(service.vector), on=True)
        while slot >= len(self._attributes):
            self._attributes = np.concatenate([self._attributes, np.zeros_like(self._attributes)])
        self._attributes[slot] = service.attributes

    def remove(self, name: str) -> bool:
        """Remove a service; return True if it was there."""
        slot = self._vectors.slot(name)
        if slot is None:
            return False
        self._vectors.turn(slot, positions(self._vectors.row(slot)), on=False)
        self._vectors.release(slot)
        return True

    def search(self, wanted: Sequence[WantedAttribute], *, least: float = 0.0, limit: int = 20) -> list[Likely]:
        """Return the services that probably have most of the requested attributes, best first.

        `least` is the minimum share of them. Vectors know no ranges: the registry that has the service must check
        those. Raises `DiscoveryError` for no attributes, or too many.
        """
        require_attributes(wanted)
        counts = self._vectors.count(self._forms(wanted), minimum_count(least, len(wanted)))
        return self._likely(wanted, np.flatnonzero(counts), counts, limit)

    def by_b_coverage(self, wanted: Sequence[WantedAttribute], val: float) -> list[Likely]:
        """Figure 1 of the paper: return all services whose B-Coverage reaches `val`, the greatest first."""
        require_attributes(wanted)
        shared, bits = self._shared(wanted)
        slots = np.flatnonzero(shared >= max(1, val * bits - 1e-9))
        counts = self._vectors.count(self._forms(wanted), 1)
        likely = self._likely(wanted, slots, counts, len(slots))
        return sorted(likely, key=lambda service: -service.b_coverage)

    def _likely(self, wanted: Sequence[WantedAttribute], slots: Any, counts: Any, limit: int) -> list[Likely]:
        seeming = counts[slots].astype(float)
        p = self.bloom.false_positive(self._attributes[slots].astype(float))
        estimate = np.clip((seeming - p * len(wanted)) / np.maximum(1 - p, 1e-9), 0, None) / len(wanted)
        shared, bits = self._shared(wanted)
        return [
            Likely(
                str(self._vectors.name(int(slots[n]))),
                float(seeming[n]) / len(wanted),
                float(estimate[n]),
                int(shared[slots[n]]) / bits,
            )
            for n in top(estimate, limit)
        ]

    def _forms(self, wanted: Sequence[WantedAttribute]) -> Any:
        return forms([[self.bloom.positions(key) for key in _keys(attribute)] for attribute in wanted])

    def _shared(self, wanted: Sequence[WantedAttribute]) -> tuple[Any, int]:
        request = self.bloom.vector(key for attribute in wanted for key in _keys(attribute))
        return self._vectors.count(each_bit(request), 1), int(np.bitwise_count(request).sum())


def _keys(attribute: WantedAttribute) -> list[tuple[str, str]]:
    return [(attribute.name, family) for family in (FAMILIES if attribute.family is None else (attribute.family,))]
