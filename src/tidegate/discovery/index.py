"""Search by attributes over all services: a scan of bits, then verification.

    request ── forms of name and type ──▶ bits ── count ──▶ candidates ── verify ──▶ ranked by coverage
               names, dictionary          bloom   vectors    never too few            exact

The scan never misses a service that has enough of the requested attributes. It may let others through, so each
candidate is verified against its own attributes. While there are few distinct attributes, a vector has one bit for each
of them (a bitmap, which is smaller and has no false positives). With more attributes than a Bloom filter has bits,
vectors become Bloom filters.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tidegate.discovery import kernels
from tidegate.discovery.attributes import FAMILIES, ServiceAttribute, WantedAttribute
from tidegate.discovery.bloom import Bloom
from tidegate.discovery.dictionary import Dictionary, bits_of
from tidegate.discovery.names import NameMatcher, exact
from tidegate.discovery.slot_table import BLOCK
from tidegate.discovery.vectors import Vectors, forms, packed
from tidegate.errors import DiscoveryError

MAX_ATTRIBUTES = 4_096
"""Maximum number of attributes of one service."""
MAX_WANTED = 256
"""Maximum number of attributes in one request."""
_MIN_BITS = 64

VectorEncoding = Literal["auto", "bitmap", "bloom"]


@dataclass(frozen=True, slots=True)
class Cover:
    """A service and its share of the requested attributes."""

    name: str
    coverage: float
    """Share of the requested attributes that the service has: 0 to 1."""
    likeness: float
    """Mean similarity of their names to the requested ones."""


@dataclass(frozen=True, slots=True)
class Covering:
    """All services that have enough of the requested attributes, by slot, ascending."""

    slots: Any
    counts: Any
    """Number of the requested attributes that each service has."""
    likeness: Any
    """Mean similarity of their names to the requested ones."""
    wanted: int
    candidates: int
    """Number of services that the scan let through."""

    @property
    def coverage(self) -> Any:
        """Share of the requested attributes that each service has."""
        return self.counts / self.wanted


@dataclass(frozen=True, slots=True)
class AttributeMatch:
    """What a service offers for one requested attribute."""

    wanted: str
    offered: str | None
    """Name of the offered attribute; None: the service offers none."""
    likeness: float
    why: str
    """The reason, if the service offers none."""


class AttributeIndex:
    """The attributes of all services. Not thread-safe.

    >>> index = AttributeIndex()
    >>> slot = index.add("gps", [ServiceAttribute("speed", "number"), ServiceAttribute("vid", "text")])
    >>> index.search([WantedAttribute("speed"), WantedAttribute("vid", "text"), WantedAttribute("rpm")], least=0.5)
    [Cover(name='gps', coverage=0.6666666666666666, likeness=1.0)]
    """

    def __init__(self, bloom: Bloom | None = None, encoding: VectorEncoding = "auto") -> None:
        self.bloom = bloom or Bloom()
        self.encoding = encoding
        self.dictionary = Dictionary(self.bloom if encoding == "bloom" else None)
        self.vectors = Vectors(self.bloom.bits if encoding == "bloom" else _MIN_BITS)
        self._attribute_lists: list[_AttributeLists] = []

    def __len__(self) -> int:
        return len(self.vectors)

    def __contains__(self, name: str) -> bool:
        return self.vectors.slot(name) is not None

    # Changes -------------------------------------------------------------------

    def add(self, name: str, attributes: Iterable[ServiceAttribute]) -> int:
        """Add a service, or replace its attributes; return its slot.

        Raises `DiscoveryError` if there are more than `MAX_ATTRIBUTES`.
        """
        offers = tuple(dict.fromkeys(attributes))
        if len(offers) > MAX_ATTRIBUTES:
            raise DiscoveryError.one("attributes", f"expected at most {MAX_ATTRIBUTES:,}, not {len(offers):,}: {name}")
        ids = [self.dictionary.use(attribute) for attribute in offers]
        slot = self.vectors.slot(name)
        if slot is None:
            slot = self.vectors.take(name)
            if slot // BLOCK == len(self._attribute_lists):
                self._attribute_lists.append(_AttributeLists())
        else:
            self._empty(slot)
        self._attribute_lists[slot // BLOCK].put(slot % BLOCK, ids)
        if not self._widened():
            self.vectors.turn(slot, self._bits_of(ids), on=True)
        return slot

    def remove(self, name: str) -> int | None:
        """Remove a service, and return the slot that it had; None if it is not there."""
        slot = self.vectors.slot(name)
        if slot is not None:
            self._empty(slot)
            self.vectors.release(slot)
        return slot

    def _empty(self, slot: int) -> None:
        ids = self._attribute_lists[slot // BLOCK].take(slot % BLOCK)
        self.vectors.turn(slot, self._bits_of(ids), on=False)
        for attribute_id in ids:
            self.dictionary.drop(attribute_id)

    def _bits_of(self, ids: list[int]) -> Any:
        return self.dictionary.bits_of[self.dictionary.key_of[ids]].ravel()

    def _widened(self) -> bool:
        """Widen the vectors, or make them Bloom filters, if a bitmap has no bit left for a new key; return True if so.

        This rebuilds every vector, which takes some tenths of a second for a million services. It happens at most five
        times in the life of a registry.
        """
        needed = len(self.dictionary.keys.values)
        if self.dictionary.bloom is not None or needed <= self.vectors.bits:
            return False
        bits = self.vectors.bits
        while bits < needed:
            bits *= 2
        if self.encoding == "auto" and bits > self.bloom.bits:
            bits = self.bloom.bits
            self.dictionary.hash_by(self.bloom)
        for slices, lists in zip(self.vectors.widen(bits), self._attribute_lists, strict=True):
            lists.encode(slices, self.dictionary.key_of, self.dictionary.bits_of)
        return True

    # Search --------------------------------------------------------------------

    def search(
        self, wanted: Sequence[WantedAttribute], *, least: float = 0.0, limit: int = 20, alike: NameMatcher = exact
    ) -> list[Cover]:
        """Return the services that have most of the requested attributes, best first; equal ones by slot.

        `least` is the minimum coverage, the paper's Val. A service with none of the attributes is no result. Raises
        `DiscoveryError` for no attributes, or too many.
        """
        covering = self._verified(wanted, least, alike, limit)
        best = top(covering.counts + 0.5 * covering.likeness, limit)
        return [
            Cover(self._name(slot), count / len(wanted), float(likeness))
            for slot, count, likeness in zip(
                covering.slots[best].tolist(), covering.counts[best].tolist(), covering.likeness[best], strict=True
            )
        ]

    def covering(
        self, wanted: Sequence[WantedAttribute], *, least: float = 0.0, alike: NameMatcher = exact
    ) -> Covering:
        """Return all services that have at least a share of the requested attributes. Raises as `search`."""
        return self._verified(wanted, least, alike, None)

    def _verified(
        self, wanted: Sequence[WantedAttribute], least: float, alike: NameMatcher, limit: int | None
    ) -> Covering:
        """Verify candidates in order of their counts, until the rest can't beat the best `limit`."""
        require_attributes(wanted)
        at_least = minimum_count(least, len(wanted))
        meant = [self._meant(item, alike) for item in wanted]
        positions = self.dictionary.positions
        bits = [[counted for key, _ in item if (counted := positions(key))] for item in meant]
        seeming = self.vectors.count(forms(bits), at_least)
        judge = self._judge(wanted, meant)
        slots, counts, likeness = [], [], []
        sure = candidates = 0
        for count in range(len(wanted), at_least - 1, -1):
            chosen = np.flatnonzero(seeming == count)
            candidates += len(chosen)
            counted, total = judge(chosen)
            enough = counted >= at_least
            slots.append(chosen[enough])
            counts.append(counted[enough])
            likeness.append(total[enough] / counted[enough])
            sure = sum(int((item >= count).sum()) for item in counts)
            if limit is not None and sure >= limit:
                break
        together = np.concatenate(slots)
        order = np.argsort(together, kind="stable")
        return Covering(
            together[order],
            np.concatenate(counts)[order],
            np.concatenate(likeness)[order],
            len(wanted),
            candidates,
        )

    def _meant(self, attribute: WantedAttribute, alike: NameMatcher) -> list[tuple[tuple[str, str], float]]:
        """Return the keys that a requested attribute may refer to, with their similarity."""
        families = FAMILIES if attribute.family is None else (attribute.family,)
        similar_names = alike(attribute.name, self.dictionary.names)
        return [((name, family), likeness) for name, likeness in similar_names.items() for family in families]

    def _judge(
        self, wanted: Sequence[WantedAttribute], meant: Sequence[Sequence[tuple[tuple[str, str], float]]]
    ) -> Any:
        """Return a function that counts the requested attributes that services in some slots really have."""
        lines: dict[int, dict[int, float]] = {}
        for q, (attribute, keys) in enumerate(zip(wanted, meant, strict=True)):
            for key, likeness in keys:
                for offer in self.dictionary.fitting(key, attribute).tolist():
                    lines.setdefault(offer, {})[q] = likeness
        line_of = np.full(len(self.dictionary.key_of), -1, np.int32)
        likeness_of = np.zeros((max(1, len(lines)), len(wanted)), np.float32)
        for line, (offer, similarities) in enumerate(lines.items()):
            line_of[offer] = line
            for q, likeness in similarities.items():
                likeness_of[line, q] = likeness

        def judge(slots: Any) -> tuple[Any, Any]:
            similarities, total = np.zeros(len(slots), np.uint16), np.zeros(len(slots), np.float32)
            ends = np.searchsorted(slots, [n * BLOCK for n in range(len(self._attribute_lists) + 1)])
            for n, lists in enumerate(self._attribute_lists):
                part = slice(ends[n], ends[n + 1])
                lists.verify(slots[part] - n * BLOCK, line_of, likeness_of, similarities[part], total[part])
            return similarities, total

        return judge

    def given(
        self, slot: int, wanted: Sequence[WantedAttribute], alike: NameMatcher = exact
    ) -> tuple[AttributeMatch, ...]:
        """Return what a service offers for each requested attribute, or why it offers nothing."""
        offers = self.attributes(slot)
        return tuple(_given(attribute, offers, alike(attribute.name, self.dictionary.names)) for attribute in wanted)

    # Contents --------------------------------------------------------------------

    def slot(self, name: str) -> int | None:
        """Return the slot of a service; None if it is not there."""
        return self.vectors.slot(name)

    def _name(self, slot: int) -> str:
        name = self.vectors.name(slot)
        assert name is not None
        return name

    def attributes(self, slot: int) -> tuple[ServiceAttribute, ...]:
        """Return the attributes of the service in a slot."""
        values = self.dictionary.offers.values
        return tuple(values[n] for n in self._attribute_lists[slot // BLOCK].get(slot % BLOCK))

    def names(self) -> Collection[str]:
        """Return the names of all attributes that any service has."""
        return self.dictionary.names.keys()

    def exported(self, bloom: Bloom) -> Iterator[tuple[str, int, Any]]:
        """Yield name, number of attributes and Bloom vector of each service, also if vectors are bitmaps here."""
        bits = bits_of(self.dictionary.keys, bloom)
        for slot in range(self.vectors.size):
            name = self.vectors.name(slot)
            if name is not None:
                keys = np.unique(self.dictionary.key_of[self._attribute_lists[slot // BLOCK].get(slot % BLOCK)])
                yield name, len(keys), packed(bits[keys].ravel(), bloom.bits)

    def describe(self) -> dict[str, Any]:
        """Return how vectors are stored, and why."""
        count = len(self.dictionary.keys)
        if self.dictionary.bloom is None:
            encoding, why = (
                "bitmap",
                f"{count:,} distinct attributes fit in {self.vectors.bits:,} bits, one each: exact",
            )
        else:
            encoding = "bloom"
            why = "asked for" if self.encoding == "bloom" else f"more distinct attributes than {self.bloom.bits:,} bits"
        return {
            "services": len(self),
            "attributes": count,
            "encoding": encoding,
            "why": why,
            "bits": self.vectors.bits,
            "hashes": self.bloom.hashes if self.dictionary.bloom is not None else 1,
            "bytes_a_service": self.vectors.bits / 8,
        }


def require_attributes(wanted: Sequence[WantedAttribute]) -> None:
    """Raise `DiscoveryError` for a request without attributes, or with too many."""
    if not 1 <= len(wanted) <= MAX_WANTED:
        raise DiscoveryError.one("attributes", f"expected 1 to {MAX_WANTED} attributes, not {len(wanted)}")


def minimum_count(least: float, wanted: int) -> int:
    """Return how many attributes a share of the requested ones is: at least 1.

    >>> minimum_count(0.7, 10), minimum_count(0.0, 10)
    (7, 1)
    """
    return max(1, math.ceil(least * wanted - 1e-9))


def top(scores: Any, limit: int) -> Any:
    """Return the indices of the greatest scores, greatest first; equal ones in ascending order.

    >>> top(np.array([1.0, 3.0, 2.0, 3.0]), 3).tolist()
    [1, 3, 2]
    """
    if len(scores) > limit:
        lowest = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        above = np.flatnonzero(scores > lowest)
        chosen = np.concatenate([above, np.flatnonzero(scores == lowest)[: limit - len(above)]])
    else:
        chosen = np.arange(len(scores))
    ranked: Any = chosen[np.lexsort((chosen, -scores[chosen]))]
    return ranked


def _given(attribute: WantedAttribute, offers: Sequence[ServiceAttribute], alike: Any) -> AttributeMatch:
    named = [offer for offer in offers if alike.get(offer.name, 0) > 0]
    fitting = [offer for offer in named if attribute.fits(offer)]
    if fitting:
        best = max(fitting, key=lambda offer: alike[offer.name])
        return AttributeMatch(attribute.name, best.name, float(alike[best.name]), "")
    if not named:
        return AttributeMatch(attribute.name, None, 0.0, "it has no such attribute")
    typed = [offer for offer in named if attribute.family in (None, offer.family)]
    if not typed:
        return AttributeMatch(
            attribute.name, None, 0.0, f"its {named[0].name} is of type {named[0].family}, not {attribute.family}"
        )
    return AttributeMatch(attribute.name, None, 0.0, f"its {typed[0].name} can't have all of the wanted values")


class _AttributeLists:
    """The attributes of each service of a block, as numbers in one array."""

    def __init__(self) -> None:
        self.begin = np.zeros(BLOCK, np.int32)
        self.count = np.zeros(BLOCK, np.uint16)
        self.pool = np.zeros(256, np.uint32)
        self.end = 0
        self.used = 0
        self.size = 0
        """Number of rows up to the last one that was ever used."""

    def get(self, row: int) -> list[int]:
        begin = self.begin[row]
        ids: list[int] = self.pool[begin : begin + self.count[row]].tolist()
        return ids

    def put(self, row: int, ids: list[int]) -> None:
        if self.end + len(ids) > len(self.pool):
            self._make_room(len(ids))
        self.pool[self.end : self.end + len(ids)] = ids
        self.begin[row], self.count[row] = self.end, len(ids)
        self.end += len(ids)
        self.used += len(ids)
        self.size = max(self.size, row + 1)

    def take(self, row: int) -> list[int]:
        ids = self.get(row)
        self.count[row] = 0
        self.used -= len(ids)
        return ids

    def _make_room(self, more: int) -> None:
        """Drop unused numbers, and double the array if that frees too little."""
        size = len(self.pool)
        while size < 2 * (self.used + more):
            size *= 2
        into = np.zeros(size, np.uint32)
        self.end = kernels.compact(self.begin[: self.size], self.count[: self.size], self.pool, into)
        self.pool = into

    def verify(self, rows: Any, line_of: Any, likeness: Any, counts: Any, total: Any) -> None:
        if len(rows):
            kernels.verify(rows, self.begin, self.count, self.pool, line_of, likeness, counts, total)

    def encode(self, slices: Any, key_of: Any, bits: Any) -> None:
        kernels.encode(slices, self.begin[: self.size], self.count[: self.size], self.pool, key_of, bits)
