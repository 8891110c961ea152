"""The distinct attributes of all services, numbered, and their bits.

A service is a list of numbers; names and types are stored here once, also for a million services. A number is released
with its last use, and used again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tidegate.discovery.attributes import AttributeKey, ServiceAttribute, WantedAttribute
from tidegate.discovery.bloom import Bloom
from tidegate.filters.sets import Cuts


class RefCountedNumbers:
    """Small numbers for values, with a reference count each."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}
        self.values: list[Any] = []
        self._uses: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.of)

    def use(self, value: Any) -> tuple[int, bool]:
        """Add a reference to a value; return its number, and whether the value is new."""
        number = self.of.get(value)
        if number is not None:
            self._uses[number] += 1
            return number, False
        if self._free:
            number = self._free.pop()
            self.values[number], self._uses[number] = value, 1
        else:
            number = len(self.values)
            self.values.append(value)
            self._uses.append(1)
        self.of[value] = number
        return number, True

    def drop(self, number: int) -> bool:
        """Remove a reference to a number; return True if it was the last."""
        self._uses[number] -= 1
        if self._uses[number]:
            return False
        del self.of[self.values[number]]
        self.values[number] = None
        self._free.append(number)
        return True


class Dictionary:
    """Attributes by number, their keys, and the bits of the keys: by hashes, or one bit each."""

    def __init__(self, bloom: Bloom | None) -> None:
        self.bloom = bloom
        """None: the number of a key is its bit, and there are no false positives."""
        self.offers = RefCountedNumbers()
        self.keys = RefCountedNumbers()
        self._by_key: dict[int, set[int]] = {}
        self._by_name: dict[str, set[AttributeKey]] = {}
        self.key_of = np.zeros(64, np.int32)
        self.low = np.zeros(64)
        self.high = np.zeros(64)
        self.bits_of = np.zeros((64, self._hashes), np.int32)

    @property
    def _hashes(self) -> int:
        return 1 if self.bloom is None else self.bloom.hashes

    @property
    def names(self) -> dict[str, set[AttributeKey]]:
        """The names of all attributes, with the keys of each."""
        return self._by_name

    def use(self, offer: ServiceAttribute) -> int:
        """Add a reference to an attribute, and return its number."""
        number, is_new = self.offers.use(offer)
        if is_new:
            key, is_new_key = self.keys.use(offer.key)
            if is_new_key:
                self._by_key[key] = set()
                self._by_name.setdefault(offer.name, set()).add(offer.key)
                self.bits_of = _grown(self.bits_of, key)
                self.bits_of[key] = self.positions(offer.key)
            self._by_key[key].add(number)
            self.key_of, self.low, self.high = (_grown(a, number) for a in (self.key_of, self.low, self.high))
            self.key_of[number] = key
            self.low[number], self.high[number] = _interval(offer.allowed)
        return number

    def drop(self, number: int) -> None:
        """Remove a reference to an attribute."""
        offer: ServiceAttribute = self.offers.values[number]
        key = int(self.key_of[number])
        if self.offers.drop(number):
            self._by_key[key].discard(number)
            if self.keys.drop(key):
                del self._by_key[key]
                self._by_name[offer.name].discard(offer.key)
                if not self._by_name[offer.name]:
                    del self._by_name[offer.name]

    def positions(self, key: AttributeKey) -> tuple[int, ...]:
        """Return the bits of a key; none for a key without a bit, which no service has."""
        if self.bloom is not None:
            return self.bloom.positions(key)
        number = self.keys.of.get(key)
        return () if number is None else (number,)

    def hash_by(self, bloom: Bloom) -> None:
        """Switch to the bits of a Bloom filter."""
        self.bloom = bloom
        self.bits_of = bits_of(self.keys, bloom)

    def fitting(self, key: AttributeKey, attribute: WantedAttribute) -> Any:
        """Return the numbers of the attributes with a key that allow the requested values."""
        number = self.keys.of.get(key)
        if number is None:
            return np.zeros(0, np.int64)
        offers = np.fromiter(self._by_key[number], np.int64)
        if attribute.values is None:
            return offers
        low, high = _interval(attribute.values)
        if math.isnan(low):
            return np.array([n for n in offers if attribute.fits(self.offers.values[n])], np.int64)
        # Intervals of numbers are compared as arrays, because a million services may have a constraint each.
        lows = self.low[offers]
        within = (lows <= low) & (high <= self.high[offers])
        for at in np.flatnonzero(np.isnan(lows)):
            within[at] = attribute.fits(self.offers.values[offers[at]])
        numbers: Any = offers[within]
        return numbers


def bits_of(keys: RefCountedNumbers, bloom: Bloom) -> Any:
    """Return the bits of all keys by number."""
    bits = np.zeros((max(64, len(keys.values)), bloom.hashes), np.int32)
    for number in keys.of.values():
        bits[number] = bloom.positions(keys.values[number])
    return bits


def _grown(array: Any, number: int) -> Any:
    if number < len(array):
        return array
    return np.concatenate([array, np.zeros_like(array)])


def _interval(cuts: Cuts | None) -> tuple[float, float]:
    """Return the least and the greatest number of an interval; NaN if the set is not one interval of numbers."""
    if cuts is None or len(cuts) != 2:
        return math.nan, math.nan
    (rank, low, side), (end_rank, high, end_side) = cuts
    for value in _bounds(cuts):
        if isinstance(value, bool) or not isinstance(value, int | float) or float(value) != value:
            return math.nan, math.nan
    begin = -math.inf if rank else math.nextafter(low, math.inf) if side else float(low)
    return begin, math.inf if end_rank else float(high) if end_side else math.nextafter(high, -math.inf)


def _bounds(cuts: Cuts) -> Iterator[Any]:
    return (value for rank, value, _ in cuts if not rank)
