"""All services that can be found, and who asks for them.

A service is told of by `put` and `remove`, and how it is by `observe`; one that was heard
of and falls silent is lost after some seconds and leaves every answer until it is heard
of again. May be used by several threads: a request sees all of a change or nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidegate.discovery.answer import Answer
from tidegate.discovery.bloom import Bloom
from tidegate.discovery.holdings import Holdings, Offer
from tidegate.discovery.names import Alike, by_edits, exact
from tidegate.discovery.quality import Certified, certify
from tidegate.discovery.query import Query
from tidegate.discovery.request import Request
from tidegate.discovery.windows import Observation
from tidegate.errors import DiscoveryError, NotRegistered, did_you_mean

ALIKE: Mapping[str, Alike] = MappingProxyType({"exact": exact, "edits": by_edits})
"""How names are compared, by what a request calls it."""


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """What a directory goes by."""

    lost_after_s: float = 5.0
    """A service that was heard of and falls silent for so long is lost: a runner tells of its services every second."""
    window_s: float = 300.0
    """How long an observation counts."""


class Directory:
    """Services that come and go, and whoever asks for them.

    >>> from tidegate.discovery.attributes import Attribute
    >>> directory = Directory()
    >>> directory.put(Offer("gps", (Attribute("speed", "number"),), {"price": 3}))
    >>> answer = directory.discover(Request.from_dict({"attributes": ["speed"], "filter": "price < 5"}), now=0.0)
    >>> [(each.name, each.score, each.match) for each in answer.results]
    [('gps', 1.0, 'full')]
    """

    def __init__(
        self,
        bloom: Bloom | None = None,
        settings: DirectorySettings | None = None,
        alike: Mapping[str, Alike] = ALIKE,
    ) -> None:
        self.settings = settings or DirectorySettings()
        self._alike = alike
        self._held = Holdings(bloom, self.settings.window_s)
        self._lock = threading.RLock()
        self._version = 0

    def __len__(self) -> int:
        return len(self._held.offers)

    def __contains__(self, name: str) -> bool:
        return name in self._held.index

    @property
    def version(self) -> int:
        """A number that grows whenever services come, change, go, say that they are down, or are back."""
        return self._version

    def put(self, offer: Offer) -> None:
        """Add a service, or change it; what was seen of it stays."""
        with self._lock:
            self._held.put(offer)
            self._version += 1

    def remove(self, name: str) -> bool:
        """Remove a service; whether it was there."""
        with self._lock:
            was_there = self._held.remove(name)
            self._version += was_there
            return was_there

    def observe(self, name: str, seen: Observation) -> None:
        """Note what was seen of a service: that it is there, and how it does."""
        with self._lock:
            self._version += self._held.observe(self._place(name), seen)

    def narrowed(self, offers: Iterable[Offer]) -> Directory:
        """Make a directory of some of these services, as somebody else sees them; what was seen of them comes along."""
        made = Directory(None, self.settings, self._alike)
        with self._lock:
            for offer in offers:
                made.put(offer)
                made._held.take_seen(made._place(offer.name), self._held, self._place(offer.name))
        return made

    def offer(self, name: str) -> Offer:
        """A service as it was put."""
        with self._lock:
            return self._held.offers[self._place(name)]

    def measured(self, name: str, now: float) -> Mapping[str, float]:
        """What is measured of a service, by metric."""
        with self._lock:
            return self._held.measured(self._place(name), now)

    def certify(self, name: str, now: float) -> tuple[Certified, ...]:
        """Hold a service's promises against what is measured of it."""
        with self._lock:
            return certify(self.offer(name).qos, self.measured(name, now))

    def lost(self, now: float) -> list[str]:
        """The services that were heard of, and are not any more."""
        with self._lock:
            places = self._held.places()
            found = places[self._held.is_lost(places, now, self.settings.lost_after_s)]
            return sorted(self._held.offers[place].name for place in found.tolist())

    def discover(self, request: Request, now: float) -> Answer:
        """Answer a request with the services that fit, the best first, and why."""
        alike = self._alike.get(request.names)
        if alike is None:
            hint = did_you_mean(request.names, self._alike) or f"; expected one of {', '.join(self._alike)}"
            raise DiscoveryError.one("names", f"names can't be compared by {request.names!r}{hint}")
        with self._lock:
            return Query(self._held, request, alike, now, self.settings.lost_after_s).answer(self._version)

    def _place(self, name: str) -> int:
        place = self._held.index.place(name)
        if place is None:
            known = [offer.name for offer in self._held.offers.values()]
            raise NotRegistered(f"no service is named {name!r}{did_you_mean(name, known)}")
        return place
