"""The Bloom filter paper's simulations, compiled: random services and requests, new hashes in every trial.

The paper draws the universe and its hashes once for each setting, so that its trials
share their luck; here each trial is independent of all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

UNIVERSE = 200

_compiled: Any = njit(nogil=True, cache=True)


@_compiled
def _draw(bits: Any, m: int) -> None:
    """Draw new hashes for all attributes."""
    for a in range(bits.shape[0]):
        for k in range(bits.shape[1]):
            bits[a, k] = np.random.randint(0, m)


@_compiled
def _choose(order: Any, size: int) -> None:
    """Move a random set of attributes to the front."""
    for n in range(size):
        other = np.random.randint(n, order.shape[0])
        order[n], order[other] = order[other], order[n]


@_compiled
def _shared(order: Any, size: int, bits: Any, in_request: Any, request: Any, service: Any, stamp: int) -> Any:
    """Return the numbers of attributes and of bits that a service shares with a request."""
    attributes, shared = 0, 0
    for n in range(size):
        attributes += in_request[order[n]] == stamp
        for k in range(bits.shape[1]):
            at = bits[order[n], k]
            if service[at] != stamp:
                service[at] = stamp
                shared += request[at] == stamp
    return attributes, shared


@_compiled
def _requested(order: Any, size: int, bits: Any, in_request: Any, request: Any, stamp: int) -> int:
    """Set the bits of a request; return their number."""
    found = 0
    for n in range(size):
        in_request[order[n]] = stamp
        for k in range(bits.shape[1]):
            at = bits[order[n], k]
            found += request[at] != stamp
            request[at] = stamp
    return found


@_compiled
def compare(m: int, k: int, trials: int, seed: int) -> Any:
    """Compare two services by one request: how often B-Coverage ranks them wrongly, and underestimates.

    Gives the errors counted as the paper's sentence has them (the first service covers
    more, and its B-Coverage is less), those of either order, and the services whose
    B-Coverage is under their Coverage.
    """
    np.random.seed(seed)
    bits = np.empty((UNIVERSE, k), np.int64)
    order = np.arange(UNIVERSE)
    in_request = np.full(UNIVERSE, -1)
    request, one, other = np.full(m, -1), np.full(m, -1), np.full(m, -1)
    wrong, either, under = 0, 0, 0
    for t in range(trials):
        _draw(bits, m)
        size = np.random.randint(1, UNIVERSE + 1)
        _choose(order, size)
        wanted_bits = _requested(order, size, bits, in_request, request, t)
        first = np.random.randint(1, UNIVERSE + 1)
        _choose(order, first)
        a, a_bits = _shared(order, first, bits, in_request, request, one, t)
        second = np.random.randint(1, UNIVERSE + 1)
        _choose(order, second)
        b, b_bits = _shared(order, second, bits, in_request, request, other, t)
        wrong += a > b and a_bits < b_bits
        either += (a > b and a_bits < b_bits) or (a < b and a_bits > b_bits)
        under += a_bits * size < a * wanted_bits
    return wrong, either, under


@_compiled
def mean(m: int, k: int, service: int, wanted: int, shared: int, trials: int, seed: int) -> Any:
    """Return the mean B-Coverage of sets of given sizes, and its standard error."""
    np.random.seed(seed)
    bits = np.empty((UNIVERSE, k), np.int64)
    order = np.arange(UNIVERSE)
    in_request = np.full(UNIVERSE, -1)
    request, vector = np.full(m, -1), np.full(m, -1)
    total, squares = 0.0, 0.0
    for t in range(trials):
        _draw(bits, m)
        wanted_bits = _requested(order, wanted, bits, in_request, request, t)
        _, found = _shared(order[wanted - shared :], service, bits, in_request, request, vector, t)
        value = found / wanted_bits
        total += value
        squares += value * value
    average = total / trials
    return average, np.sqrt(max(0.0, squares / trials - average * average) / trials)


@_compiled
def by_size(m: int, k: int, wanted: int, service: int, trials: int, seed: int) -> Any:
    """Return the mean Coverage and B-Coverage of random services and random requests of given sizes."""
    np.random.seed(seed)
    bits = np.empty((UNIVERSE, k), np.int64)
    order = np.arange(UNIVERSE)
    in_request = np.full(UNIVERSE, -1)
    request, vector = np.full(m, -1), np.full(m, -1)
    coverage, b_coverage = 0.0, 0.0
    for t in range(trials):
        _draw(bits, m)
        _choose(order, wanted)
        wanted_bits = _requested(order, wanted, bits, in_request, request, t)
        _choose(order, service)
        attributes, shared = _shared(order, service, bits, in_request, request, vector, t)
        coverage += attributes / wanted
        b_coverage += shared / wanted_bits
    return coverage / trials, b_coverage / trials
