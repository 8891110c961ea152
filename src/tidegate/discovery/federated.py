"""Search where only vectors are known: services of other registries (the paper's pure use).

What is found is likely, not sure. The count of wanted attributes whose bits are all set
never undershoots, so nothing that has enough is missed; how far it overshoots follows
from how full a vector is, and is taken off again in the estimate that results are
ranked by. B-Coverage stands beside it, as the paper has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.discovery import exchange
from tidegate.discovery.attributes import FAMILIES, Wanted
from tidegate.discovery.bloom import Bloom
from tidegate.discovery.index import check_wanted, least_count, top
from tidegate.discovery.vectors import Vectors, each_bit, forms, positions
from tidegate.errors import VectorError


@dataclass(frozen=True, slots=True)
class Likely:
    """A service that seems to have what is wanted."""

    name: str
    at_most: float
    """The share of the wanted attributes whose bits are all set: its coverage is not above."""
    estimate: float
    """That, without what a vector so full has by chance."""
    b_coverage: float
    """The share of the request's bits that are set (definition 3)."""


class VectorIndex:
    """The vectors of services that are registered elsewhere."""

    def __init__(self, bloom: Bloom | None = None) -> None:
        self.bloom = bloom or Bloom()
        self._vectors = Vectors(self.bloom.bits)
        self._attributes = np.zeros(64, np.uint16)

    def __len__(self) -> int:
        return len(self._vectors)

    def merge(self, data: bytes) -> list[str]:
        """Take in vectors that another registry wrote; give their names. All or nothing."""
        bloom, services = exchange.read(data)
        if bloom != self.bloom:
            raise VectorError(
                f"expected vectors of {self.bloom.bits:,} bits and {self.bloom.hashes} hashes, as those that are here, "
                f"not {bloom.bits:,} and {bloom.hashes}"
            )
        for each in services:
            self.put(each)
        return [each.name for each in services]

    def put(self, service: exchange.Described) -> None:
        """Add a service, or put another vector in the place of the one it had."""
        self.remove(service.name)
        place = self._vectors.take(service.name)
        self._vectors.turn(place, positions(service.vector), on=True)
        while place >= len(self._attributes):
            self._attributes = np.concatenate([self._attributes, np.zeros_like(self._attributes)])
        self._attributes[place] = service.attributes

    def remove(self, name: str) -> bool:
        """Remove a service; whether it was there."""
        place = self._vectors.place(name)
        if place is None:
            return False
        self._vectors.turn(place, positions(self._vectors.row(place)), on=False)
        self._vectors.release(place)
        return True

    def search(self, wanted: Sequence[Wanted], *, least: float = 0.0, limit: int = 20) -> list[Likely]:
        """Give the services that seem to have most of what is wanted, at least a share, the best first.

        Ranges can't be asked of a vector: they are left to the registry that has the service.
        """
        check_wanted(wanted)
        counts = self._vectors.count(self._forms(wanted), least_count(least, len(wanted)))
        return self._likely(wanted, np.flatnonzero(counts), counts, limit)

    def by_b_coverage(self, wanted: Sequence[Wanted], val: float) -> list[Likely]:
        """Figure 1 of the paper: all services whose B-Coverage reaches Val, the greatest first."""
        check_wanted(wanted)
        shared, bits = self._shared(wanted)
        places = np.flatnonzero(shared >= max(1, val * bits - 1e-9))
        counts = self._vectors.count(self._forms(wanted), 1)
        found = self._likely(wanted, places, counts, len(places))
        return sorted(found, key=lambda each: -each.b_coverage)

    def _likely(self, wanted: Sequence[Wanted], places: Any, counts: Any, limit: int) -> list[Likely]:
        seeming = counts[places].astype(float)
        p = self.bloom.false_positive(self._attributes[places].astype(float))
        estimate = np.clip((seeming - p * len(wanted)) / np.maximum(1 - p, 1e-9), 0, None) / len(wanted)
        shared, bits = self._shared(wanted)
        return [
            Likely(
                str(self._vectors.name(int(places[n]))),
                float(seeming[n]) / len(wanted),
                float(estimate[n]),
                int(shared[places[n]]) / bits,
            )
            for n in top(estimate, limit)
        ]

    def _forms(self, wanted: Sequence[Wanted]) -> Any:
        return forms([[self.bloom.positions(key) for key in _keys(each)] for each in wanted])

    def _shared(self, wanted: Sequence[Wanted]) -> tuple[Any, int]:
        request = self.bloom.vector(key for each in wanted for key in _keys(each))
        return self._vectors.count(each_bit(request), 1), int(np.bitwise_count(request).sum())


def _keys(wanted: Wanted) -> list[tuple[str, str]]:
    return [(wanted.name, family) for family in (FAMILIES if wanted.family is None else (wanted.family,))]
