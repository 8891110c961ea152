"""Search by attributes over a whole registry: a scan of bits, then the truth.

    wanted ── forms of name and type ──▶ bits ── count ──▶ candidates ── verify ──▶ ranked by coverage
              names, dictionary          bloom   vectors    never too few            exact

The scan never misses a service that has enough of what is wanted; it may let others
through, and each candidate is then asked for its own attributes. While few distinct
attributes are known a vector holds one bit for each (a bitmap: smaller, and never
wrong about a name and type); beyond as many as a Bloom filter has bits it becomes one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tidegate.discovery import kernels
from tidegate.discovery.attributes import FAMILIES, Attribute, Wanted
from tidegate.discovery.bloom import Bloom
from tidegate.discovery.dictionary import Dictionary, bits_of
from tidegate.discovery.names import Alike, exact
from tidegate.discovery.places import BLOCK
from tidegate.discovery.vectors import Vectors, forms, packed
from tidegate.errors import DiscoveryError

MOST_ATTRIBUTES = 4_096
"""Of one service."""
MOST_WANTED = 256
"""Of one request."""
_FEWEST_BITS = 64

Encoding = Literal["auto", "bitmap", "bloom"]


@dataclass(frozen=True, slots=True)
class Cover:
    """A service and how much it has of what is wanted."""

    name: str
    coverage: float
    """The share of the wanted attributes that it has: 0 to 1."""
    likeness: float
    """How alike the names of those are, on average."""


@dataclass(frozen=True, slots=True)
class Covering:
    """All services that have enough of what is wanted, by place, ascending."""

    places: Any
    counts: Any
    """How many of the wanted attributes each has."""
    likeness: Any
    """How alike their names are, on average."""
    wanted: int
    candidates: int
    """What the scan let through."""

    @property
    def coverage(self) -> Any:
        """The share of the wanted attributes that each has."""
        return self.counts / self.wanted


@dataclass(frozen=True, slots=True)
class Given:
    """What a service has for one wanted attribute."""

    wanted: str
    offered: str | None
    """None: nothing."""
    likeness: float
    why: str
    """Where it has nothing: the reason."""


class AttributeIndex:
    """The attributes of all services, searched by what a consumer wants.

    >>> index = AttributeIndex()
    >>> place = index.add("gps", [Attribute("speed", "number"), Attribute("vid", "text")])
    >>> index.search([Wanted("speed"), Wanted("vid", "text"), Wanted("rpm")], least=0.5)
    [Cover(name='gps', coverage=0.6666666666666666, likeness=1.0)]
    """

    def __init__(self, bloom: Bloom | None = None, encoding: Encoding = "auto") -> None:
        self.bloom = bloom or Bloom()
        self.encoding = encoding
        self.dictionary = Dictionary(self.bloom if encoding == "bloom" else None)
        self.vectors = Vectors(self.bloom.bits if encoding == "bloom" else _FEWEST_BITS)
        self._lists: list[_Lists] = []

    def __len__(self) -> int:
        return len(self.vectors)

    def __contains__(self, name: str) -> bool:
        return self.vectors.place(name) is not None

    # Changes -------------------------------------------------------------------

    def add(self, name: str, attributes: Iterable[Attribute]) -> int:
        """Add a service, or put other attributes in the place of those it had; give its place."""
        offers = tuple(dict.fromkeys(attributes))
        if len(offers) > MOST_ATTRIBUTES:
            raise DiscoveryError.one("attributes", f"expected at most {MOST_ATTRIBUTES:,}, not {len(offers):,}: {name}")
        ids = [self.dictionary.use(each) for each in offers]
        place = self.vectors.place(name)
        if place is None:
            place = self.vectors.take(name)
            if place // BLOCK == len(self._lists):
                self._lists.append(_Lists())
        else:
            self._empty(place)
        self._lists[place // BLOCK].put(place % BLOCK, ids)
        if not self._widened():
            self.vectors.turn(place, self._bits_of(ids), on=True)
        return place

    def remove(self, name: str) -> int | None:
        """Remove a service; None: it is not there."""
        place = self.vectors.place(name)
        if place is not None:
            self._empty(place)
            self.vectors.release(place)
        return place

    def _empty(self, place: int) -> None:
        ids = self._lists[place // BLOCK].take(place % BLOCK)
        self.vectors.turn(place, self._bits_of(ids), on=False)
        for each in ids:
            self.dictionary.drop(each)

    def _bits_of(self, ids: list[int]) -> Any:
        return self.dictionary.bits_of[self.dictionary.key_of[ids]].ravel()

    def _widened(self) -> bool:
        """Make vectors wider, or Bloom filters, where a bitmap has no bit left for a new key.

        Every vector is made anew, which with a million services takes some tenths of a
        second; it happens five times in the life of a registry.
        """
        most = len(self.dictionary.keys.values)
        if self.dictionary.bloom is not None or most <= self.vectors.bits:
            return False
        bits = self.vectors.bits
        while bits < most:
            bits *= 2
        if self.encoding == "auto" and bits > self.bloom.bits:
            bits = self.bloom.bits
            self.dictionary.hash_by(self.bloom)
        for slices, lists in zip(self.vectors.widen(bits), self._lists, strict=True):
            lists.encode(slices, self.dictionary.key_of, self.dictionary.bits_of)
        return True

    # Search --------------------------------------------------------------------

    def search(
        self, wanted: Sequence[Wanted], *, least: float = 0.0, limit: int = 20, alike: Alike = exact
    ) -> list[Cover]:
        """Give the services that have most of what is wanted, the best first; equals by place.

        `least` is the least coverage, the paper's Val; a service that has nothing of
        it is no answer.
        """
        found = self._verified(wanted, least, alike, limit)
        best = top(found.counts + 0.5 * found.likeness, limit)
        return [
            Cover(self._name(place), count / len(wanted), float(likeness))
            for place, count, likeness in zip(
                found.places[best].tolist(), found.counts[best].tolist(), found.likeness[best], strict=True
            )
        ]

    def covering(self, wanted: Sequence[Wanted], *, least: float = 0.0, alike: Alike = exact) -> Covering:
        """Give all services that have at least a share of what is wanted."""
        return self._verified(wanted, least, alike, None)

    def _verified(self, wanted: Sequence[Wanted], least: float, alike: Alike, limit: int | None) -> Covering:
        """Verify candidates, those that seem to have most first, until `limit` can't be beaten by the rest."""
        check_wanted(wanted)
        at_least = least_count(least, len(wanted))
        meant = [self._meant(each, alike) for each in wanted]
        positions = self.dictionary.positions
        bits = [[found for key, _ in each if (found := positions(key))] for each in meant]
        seeming = self.vectors.count(forms(bits), at_least)
        judge = self._judge(wanted, meant)
        places, counts, likeness = [], [], []
        sure = candidates = 0
        for count in range(len(wanted), at_least - 1, -1):
            chosen = np.flatnonzero(seeming == count)
            candidates += len(chosen)
            found, total = judge(chosen)
            kept = found >= at_least
            places.append(chosen[kept])
            counts.append(found[kept])
            likeness.append(total[kept] / found[kept])
            sure = sum(int((each >= count).sum()) for each in counts)
            if limit is not None and sure >= limit:
                break
        together = np.concatenate(places)
        order = np.argsort(together, kind="stable")
        return Covering(
            together[order],
            np.concatenate(counts)[order],
            np.concatenate(likeness)[order],
            len(wanted),
            candidates,
        )

    def _meant(self, wanted: Wanted, alike: Alike) -> list[tuple[tuple[str, str], float]]:
        """The keys that a wanted attribute may stand for, with their likeness."""
        families = FAMILIES if wanted.family is None else (wanted.family,)
        found = alike(wanted.name, self.dictionary.names)
        return [((name, family), likeness) for name, likeness in found.items() for family in families]

    def _judge(self, wanted: Sequence[Wanted], meant: Sequence[Sequence[tuple[tuple[str, str], float]]]) -> Any:
        """What says of places how many of the wanted attributes they truly have."""
        lines: dict[int, dict[int, float]] = {}
        for q, (each, keys) in enumerate(zip(wanted, meant, strict=True)):
            for key, likeness in keys:
                for offer in self.dictionary.fitting(key, each).tolist():
                    lines.setdefault(offer, {})[q] = likeness
        place = np.full(len(self.dictionary.key_of), -1, np.int32)
        likeness_of = np.zeros((max(1, len(lines)), len(wanted)), np.float32)
        for line, (offer, found) in enumerate(lines.items()):
            place[offer] = line
            for q, likeness in found.items():
                likeness_of[line, q] = likeness

        def judge(places: Any) -> tuple[Any, Any]:
            found, total = np.zeros(len(places), np.uint16), np.zeros(len(places), np.float32)
            ends = np.searchsorted(places, [n * BLOCK for n in range(len(self._lists) + 1)])
            for n, lists in enumerate(self._lists):
                part = slice(ends[n], ends[n + 1])
                lists.verify(places[part] - n * BLOCK, place, likeness_of, found[part], total[part])
            return found, total

        return judge

    def given(self, place: int, wanted: Sequence[Wanted], alike: Alike = exact) -> tuple[Given, ...]:
        """Say for each wanted attribute what a service has for it, or why it has nothing."""
        offers = self.attributes(place)
        return tuple(_given(each, offers, alike(each.name, self.dictionary.names)) for each in wanted)

    # What there is ---------------------------------------------------------------

    def place(self, name: str) -> int | None:
        """The place of a service."""
        return self.vectors.place(name)

    def _name(self, place: int) -> str:
        name = self.vectors.name(place)
        assert name is not None
        return name

    def attributes(self, place: int) -> tuple[Attribute, ...]:
        """The attributes of the service at a place."""
        values = self.dictionary.offers.values
        return tuple(values[n] for n in self._lists[place // BLOCK].get(place % BLOCK))

    def names(self) -> Collection[str]:
        """The names of all attributes that any service has."""
        return self.dictionary.names.keys()

    def exported(self, bloom: Bloom) -> Iterator[tuple[str, int, Any]]:
        """Give each service's name, number of attributes and Bloom vector, whatever it is kept as."""
        bits = bits_of(self.dictionary.keys, bloom)
        for place in range(self.vectors.size):
            name = self.vectors.name(place)
            if name is not None:
                keys = np.unique(self.dictionary.key_of[self._lists[place // BLOCK].get(place % BLOCK)])
                yield name, len(keys), packed(bits[keys].ravel(), bloom.bits)

    def describe(self) -> dict[str, Any]:
        """Say how vectors are kept, and why."""
        known = len(self.dictionary.keys)
        if self.dictionary.bloom is None:
            kept, why = "bitmap", f"{known:,} distinct attributes fit in {self.vectors.bits:,} bits, one each: exact"
        else:
            kept = "bloom"
            why = "asked for" if self.encoding == "bloom" else f"more distinct attributes than {self.bloom.bits:,} bits"
        return {
            "services": len(self),
            "attributes": known,
            "encoding": kept,
            "why": why,
            "bits": self.vectors.bits,
            "hashes": self.bloom.hashes if self.dictionary.bloom is not None else 1,
            "bytes_a_service": self.vectors.bits / 8,
        }


def check_wanted(wanted: Sequence[Wanted]) -> None:
    """Refuse a request for no attributes, or for too many."""
    if not 1 <= len(wanted) <= MOST_WANTED:
        raise DiscoveryError.one("attributes", f"expected 1 to {MOST_WANTED} attributes, not {len(wanted)}")


def least_count(least: float, wanted: int) -> int:
    """How many attributes a share of the wanted ones is: 1 at least.

    >>> least_count(0.7, 10), least_count(0.0, 10)
    (7, 1)
    """
    return max(1, math.ceil(least * wanted - 1e-9))


def top(scores: Any, limit: int) -> Any:
    """Give the positions of the greatest scores, greatest first; of equals the first.

    >>> top(np.array([1.0, 3.0, 2.0, 3.0]), 3).tolist()
    [1, 3, 2]
    """
    if len(scores) > limit:
        least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        above = np.flatnonzero(scores > least)
        chosen = np.concatenate([above, np.flatnonzero(scores == least)[: limit - len(above)]])
    else:
        chosen = np.arange(len(scores))
    found: Any = chosen[np.lexsort((chosen, -scores[chosen]))]
    return found


def _given(wanted: Wanted, offers: Sequence[Attribute], alike: Any) -> Given:
    named = [each for each in offers if alike.get(each.name, 0) > 0]
    fitting = [each for each in named if wanted.fits(each)]
    if fitting:
        best = max(fitting, key=lambda each: alike[each.name])
        return Given(wanted.name, best.name, float(alike[best.name]), "")
    if not named:
        return Given(wanted.name, None, 0.0, "it has no such attribute")
    typed = [each for each in named if wanted.family in (None, each.family)]
    if not typed:
        return Given(wanted.name, None, 0.0, f"its {named[0].name} is of type {named[0].family}, not {wanted.family}")
    return Given(wanted.name, None, 0.0, f"not all of the wanted values of {typed[0].name} can occur in it")


class _Lists:
    """The attributes of each service of a block, as numbers, end to end."""

    def __init__(self) -> None:
        self.begin = np.zeros(BLOCK, np.int32)
        self.count = np.zeros(BLOCK, np.uint16)
        self.pool = np.zeros(256, np.uint32)
        self.end = 0
        self.used = 0
        self.size = 0
        """The rows that were ever taken."""

    def get(self, row: int) -> list[int]:
        begin = self.begin[row]
        found: list[int] = self.pool[begin : begin + self.count[row]].tolist()
        return found

    def put(self, row: int, ids: list[int]) -> None:
        if self.end + len(ids) > len(self.pool):
            self._make_room(len(ids))
        self.pool[self.end : self.end + len(ids)] = ids
        self.begin[row], self.count[row] = self.end, len(ids)
        self.end += len(ids)
        self.used += len(ids)
        self.size = max(self.size, row + 1)

    def take(self, row: int) -> list[int]:
        found = self.get(row)
        self.count[row] = 0
        self.used -= len(found)
        return found

    def _make_room(self, more: int) -> None:
        """Leave out what is used no more; twice the room where that is little."""
        size = len(self.pool)
        while size < 2 * (self.used + more):
            size *= 2
        into = np.zeros(size, np.uint32)
        self.end = kernels.compact(self.begin[: self.size], self.count[: self.size], self.pool, into)
        self.pool = into

    def verify(self, rows: Any, place: Any, likeness: Any, found: Any, total: Any) -> None:
        if len(rows):
            kernels.verify(rows, self.begin, self.count, self.pool, place, likeness, found, total)

    def encode(self, slices: Any, key_of: Any, bits: Any) -> None:
        kernels.encode(slices, self.begin[: self.size], self.count[: self.size], self.pool, key_of, bits)
