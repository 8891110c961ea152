"""Services and requests, named and seeded. Kept unchanged, so that results compare over years."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from tidegate.discovery import Offer
from tidegate.discovery.attributes import ServiceAttribute, WantedAttribute
from tidegate.filters import sets
from tidegate.services.definitions import Qos

SEARCHED = {True: 100_000, False: 1_000_000}
KEPT = {True: 20_000, False: 100_000}
ASKED = {True: 10_000, False: 100_000}
FITTED = {True: 2_000, False: 20_000}
"""How many services each measurement has, `--quick` or not."""

KNOWN = 2_000
"""Distinct attributes."""
REGIONS = ("north", "south", "east", "west")
CATEGORIES = tuple(f"category{n}" for n in range(40))


def _words(count: int) -> list[str]:
    """Distinct words of three or four syllables."""
    rng, found = np.random.default_rng(0), dict[str, None]()
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    while len(found) < count:
        found["".join(rng.choice(syllables, int(rng.integers(3, 5))))] = None
    return list(found)


@cache
def attributes(seed: int = 1) -> tuple[ServiceAttribute, ...]:
    """All attributes; every fourth has a range."""
    rng = np.random.default_rng(seed)
    return tuple(
        ServiceAttribute(word, "number", sets.between(0, float(rng.integers(10, 1_000))) if n % 4 == 0 else sets.ALL)
        for n, word in enumerate(_words(KNOWN))
    )


def services(count: int, size: int = 10, seed: int = 2) -> Iterator[tuple[str, list[ServiceAttribute]]]:
    """Services of ten attributes each; a few attributes are in many of them, most in few."""
    rng, known = np.random.default_rng(seed), attributes()
    done = 0
    while done < count:
        some = min(10_000, count - done)
        drawn = (KNOWN * rng.power(0.5, (some, size))).astype(int).tolist()
        for n in range(some):
            yield f"service{done + n}", [known[each] for each in dict.fromkeys(drawn[n])]
        done += some


def requests(count: int, size: int = 10, seed: int = 3) -> list[list[WantedAttribute]]:
    """Requests for attributes that some service has together, and two that it has not."""
    rng = np.random.default_rng(seed)
    made = []
    for _, offered in services(count, size, seed):
        wanted = [WantedAttribute(each.name, "number") for each in offered[: size - 2]]
        more = (WantedAttribute(attributes()[n].name, "number") for n in rng.permutation(KNOWN)[: 2 * size].tolist())
        wanted += [each for each in more if each not in wanted][: size - len(wanted)]
        made.append(wanted)
    return made


def prices(count: int, seed: int = 4) -> list[dict[str, Any]]:
    """Properties of services: price, rate, precision, region."""
    rng = np.random.default_rng(seed)
    columns = (rng.gamma(2, 5, count).tolist(), rng.gamma(1, 20, count).tolist(), rng.uniform(0, 1, count).tolist())
    regions = rng.integers(0, 4, count).tolist()
    return [
        {"price": price, "rate": rate, "precision": precision, "region": REGIONS[region]}
        for price, rate, precision, region in zip(*columns, regions, strict=True)
    ]


def wishes(count: int, seed: int = 5) -> list[str]:
    """Requests as fuzzy groups of the paper's thresholds: a triangle, an S and a rectangle, as it has them."""
    rng = np.random.default_rng(seed)
    found = []
    for price, rate in zip(rng.uniform(2, 15, count), rng.uniform(5, 40, count), strict=True):
        found.append(
            f"FUZZY(price IS TRIANGLE({price / 4:.2f}, {price:.2f}, {price * 2:.2f}), "
            f"rate IS S({rate / 4:.2f}, {rate:.2f}), precision IS RECTANGLE(0.3, 1))"
        )
    return found


def offers(count: int) -> Iterator[Offer]:
    """Whole services: attributes, properties, categories and promises."""
    rng = np.random.default_rng(6)
    latencies, shares = rng.gamma(2, 0.05, count).tolist(), rng.uniform(0.9, 1, count).tolist()
    for (name, offered), properties, latency, share in zip(
        services(count), prices(count), latencies, shares, strict=True
    ):
        category = CATEGORIES[int(latency * 1e6) % len(CATEGORIES)]
        yield Offer(name, tuple(offered), properties, (category,), (), Qos(latency, share))
