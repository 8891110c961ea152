"""The directory of all services that can be found, and the search over it.

Services are added by `put`, removed by `remove` and observed by `observe`. A service that was observed and then falls
silent is lost after some seconds: it is left out of every answer until it is observed again. Thread-safe: a request
sees all of a change or nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidegate.discovery.answer import Answer
from tidegate.discovery.bloom import Bloom
from tidegate.discovery.names import NameMatcher, by_edits, exact
from tidegate.discovery.quality import Certified, certify
from tidegate.discovery.query import DiscoveryQuery
from tidegate.discovery.request import Request
from tidegate.discovery.service_table import Offer, ServiceTable
from tidegate.discovery.windows import Observation
from tidegate.errors import DiscoveryError, NotRegistered, did_you_mean

ALIKE: Mapping[str, NameMatcher] = MappingProxyType({"exact": exact, "edits": by_edits})
"""Name matchers by the word that requests use for them."""


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """Settings of a directory."""

    lost_after_s: float = 5.0
    """A service that was observed and is silent for longer is lost. A runner reports its services every second."""
    window_s: float = 300.0
    """Length of the observation window."""


class Directory:
    """All services, searchable by requests. Thread-safe.

    >>> from tidegate.discovery.attributes import ServiceAttribute
    >>> directory = Directory()
    >>> directory.put(Offer("gps", (ServiceAttribute("speed", "number"),), {"price": 3}))
    >>> answer = directory.discover(Request.from_dict({"attributes": ["speed"], "filter": "price < 5"}), now=0.0)
    >>> [(result.name, result.score, result.match) for result in answer.results]
    [('gps', 1.0, 'full')]
    """

    def __init__(
        self,
        bloom: Bloom | None = None,
        settings: DirectorySettings | None = None,
        alike: Mapping[str, NameMatcher] = ALIKE,
    ) -> None:
        self.settings = settings or DirectorySettings()
        self._alike = alike
        self._services = ServiceTable(bloom, self.settings.window_s)
        self._lock = threading.RLock()
        self._version = 0

    def __len__(self) -> int:
        return len(self._services.offers)

    def __contains__(self, name: str) -> bool:
        return name in self._services.index

    @property
    def version(self) -> int:
        """A number that grows when a service is added, changed, removed, goes down or comes back."""
        return self._version

    def put(self, offer: Offer) -> None:
        """Add a service, or change it; its observations are kept."""
        with self._lock:
            self._services.put(offer)
            self._version += 1

    def remove(self, name: str) -> bool:
        """Remove a service; return True if it was there."""
        with self._lock:
            was_there = self._services.remove(name)
            self._version += was_there
            return was_there

    def observe(self, name: str, observation: Observation) -> None:
        """Record an observation of a service. Raises `NotRegistered`."""
        with self._lock:
            self._version += self._services.observe(self._place(name), observation)

    def narrowed(self, offers: Iterable[Offer]) -> Directory:
        """Return a directory of some of these services as another caller sees them, with their observations."""
        narrowed = Directory(None, self.settings, self._alike)
        with self._lock:
            for offer in offers:
                narrowed.put(offer)
                narrowed._services.take_seen(narrowed._place(offer.name), self._services, self._place(offer.name))
        return narrowed

    def offer(self, name: str) -> Offer:
        """Return a service as it was put. Raises `NotRegistered`."""
        with self._lock:
            return self._services.offers[self._place(name)]

    def measured(self, name: str, now: float) -> Mapping[str, float]:
        """Return the measured value of each metric of a service. Raises `NotRegistered`."""
        with self._lock:
            return self._services.measured(self._place(name), now)

    def certify(self, name: str, now: float) -> tuple[Certified, ...]:
        """Return a service's promises compared with their measurements. Raises `NotRegistered`."""
        with self._lock:
            return certify(self.offer(name).qos, self.measured(name, now))

    def lost(self, now: float) -> list[str]:
        """Return the names of services that were observed and have fallen silent, or are down."""
        with self._lock:
            slots = self._services.slots()
            lost_slots = slots[self._services.is_lost(slots, now, self.settings.lost_after_s)]
            return sorted(self._services.offers[slot].name for slot in lost_slots.tolist())

    def discover(self, request: Request, now: float) -> Answer:
        """Return the services that fit a request, best first, with the reasons.

        Raises `DiscoveryError` if the request compares names in an unknown way, or has too many attributes.
        """
        alike = self._alike.get(request.names)
        if alike is None:
            hint = did_you_mean(request.names, self._alike) or f"; expected one of {', '.join(self._alike)}"
            raise DiscoveryError.one("names", f"names can't be compared by {request.names!r}{hint}")
        with self._lock:
            return DiscoveryQuery(self._services, request, alike, now, self.settings.lost_after_s).answer(self._version)

    def _place(self, name: str) -> int:
        slot = self._services.index.slot(name)
        if slot is None:
            names = [offer.name for offer in self._services.offers.values()]
            raise NotRegistered(f"no service is named {name!r}{did_you_mean(name, names)}")
        return slot
