"""Discovery in a gateway: one directory of all services, and one for each set of services that callers see."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from cachetools import LRUCache

from tidegate.discovery import Answer, Directory, Observation, Offer, Request
from tidegate.discovery.directory import ALIKE
from tidegate.discovery.names import by_meaning
from tidegate.discovery.quality import NAMES
from tidegate.filters.meaning import Semantics
from tidegate.gateway.auth.view import View
from tidegate.model import Schema, timestamps
from tidegate.services import Service
from tidegate.services.definitions import Qos

MAX_VIEWS = 32
"""Directories besides that of all services. The least recently used one is dropped first."""

_Seen = tuple[tuple[str, frozenset[str]], ...]


class Finder:
    """Holds the directories of services, up to date with the registry and `_status`.

    Methods may be called on any thread. They wait for a lock, so call them off the event loop.
    """

    def __init__(self, semantics: Semantics | None = None, clock: Callable[[], float] = time.time) -> None:
        """`semantics` compares names by meaning; None: they are compared by text only."""
        self._clock = clock
        self._all = Directory(alike={**ALIKE, "meaning": by_meaning(semantics)})
        self._offers: dict[str, Offer] = {}
        self._services: Mapping[str, Service] = {}
        self._narrowed: LRUCache[_Seen, Directory] = LRUCache(MAX_VIEWS)
        self._counts: dict[str, tuple[int, int]] = {}
        """The counts of written and refused events in the last status, by service."""
        self._stale: dict[str, Observation] = {}
        """The last observation of services whose status is older than the window of the directory."""
        self._lock = threading.Lock()

    def define(self, services: Mapping[str, Service], schemas: Mapping[str, Schema]) -> None:
        """Replace all services. `schemas` are their output schemas."""
        offers = {name: Offer.of(service, schemas[name]) for name, service in services.items()}
        with self._lock:
            for name in self._offers.keys() - offers.keys():
                self._all.remove(name)
            for name, offer in offers.items():
                if self._offers.get(name) != offer:
                    self._all.put(offer)
            self._services, self._offers = services, offers
            self._narrowed.clear()

    def observe(self, status: Mapping[str, Any]) -> None:
        """Record an event of `_status`."""
        with self._lock:
            self._record(status)

    def _record(self, status: Mapping[str, Any]) -> None:
        name, micros = status["service"], timestamps.from_text(status["time"])
        counts = status.get("written", 0), status.get("quarantined", 0) + status.get("dropped", 0)
        before, self._counts[name] = self._counts.get(name), counts
        at = (micros or 0) / 1e6
        events, refused = (max(0, now - then) for now, then in zip(counts, before or counts, strict=True))
        latency_ms = status.get("latency_p99_ms")
        observation = Observation(
            at,
            up=status["state"] == "running",
            latency_s=None if latency_ms is None or not events else latency_ms / 1e3,
            events=events,
            refused=refused,
            newest_at=at if events else None,
        )
        if at < self._clock() - self._all.settings.window_s:
            self._stale[name] = observation
        else:
            self._stale.pop(name, None)
            self._observe(name, observation)

    def _observe(self, name: str, observation: Observation) -> None:
        for directory in (self._all, *self._narrowed.values()):
            if name in directory:
                directory.observe(name, observation)

    def discover(self, view: View, request: Request) -> Answer:
        """Return the services that a caller sees and a request matches. May take long: call it in the heavy pool."""
        with self._lock:
            self._settle()
            directory = self._directory(view)
        return directory.discover(request, self._clock())

    def lost(self) -> set[str]:
        """Return the services that are down, or have stopped reporting."""
        with self._lock:
            self._settle()
        return set(self._all.lost(self._clock()))

    def quality(self, name: str) -> dict[str, dict[str, Any]]:
        """Return by metric the promise of a service, its measurement, and whether the promise is kept."""
        with self._lock:
            self._settle()
            if name not in self._all:  # it is new, and `define` has not been called with it yet
                return {}
            now = self._clock()
            measured = self._all.measured(name, now)
            promises = {promise.metric: promise for promise in self._all.certify(name, now)}
        quality: dict[str, dict[str, Any]] = {}
        for metric in NAMES:
            promise = promises.get(metric)
            quality[metric] = {
                "promised": None if promise is None else promise.promised,
                "measured": measured.get(metric),
                "verdict": None if promise is None else promise.verdict,
            }
        return quality

    def broken(self) -> dict[str, list[str]]:
        """Return the metrics whose promise a service breaks, by service. Services without any are left out."""
        with self._lock:
            self._settle()
            now, offers = self._clock(), self._offers
            promising = [name for name, offer in offers.items() if offer.qos != Qos() and name in self._all]
            certified = {name: self._all.certify(name, now) for name in promising}
        broken = {
            name: [promise.metric for promise in all_ if promise.verdict == "broken"]
            for name, all_ in certified.items()
        }
        return {name: metrics for name, metrics in broken.items() if metrics}

    def _settle(self) -> None:
        while self._stale:
            self._observe(*self._stale.popitem())

    def _directory(self, view: View) -> Directory:
        names = view.services(self._services)
        seen = tuple((name, view.hidden(name)) for name in names)
        if len(names) == len(self._services) and not any(hidden for _, hidden in seen):
            return self._all
        directory = self._narrowed.get(seen)
        if directory is None:
            directory = self._all.narrowed(Offer.of(self._services[name], view.schema(name)) for name in names)
            self._narrowed[seen] = directory
        return directory
