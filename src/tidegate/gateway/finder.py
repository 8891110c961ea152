"""Finds services for whoever asks: all of them in one directory, and one for each other view of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tidegate.discovery import Answer, Directory, Observation, Offer, Request
from tidegate.discovery.directory import ALIKE
from tidegate.discovery.names import by_meaning
from tidegate.discovery.quality import NAMES
from tidegate.filters.meaning import Semantics
from tidegate.gateway.auth.view import View
from tidegate.model import Schema, timestamps
from tidegate.services import Service
from tidegate.services.definitions import Qos

MOST_VIEWS = 32
"""Directories beside that of all services; the one that was asked longest ago gives way."""

_Seen = tuple[tuple[str, frozenset[str]], ...]


class Finder:
    """Knows what services there are and how they do, as the registry and `_status` say."""

    def __init__(self, semantics: Semantics | None = None, clock: Callable[[], float] = time.time) -> None:
        """`semantics` is what names are compared with by meaning; None: they are not."""
        self._clock = clock
        self._all = Directory(alike={**ALIKE, "meaning": by_meaning(semantics)})
        self._offers: dict[str, Offer] = {}
        self._services: Mapping[str, Service] = {}
        self._narrowed: dict[_Seen, Directory] = {}
        self._counts: dict[str, tuple[int, int]] = {}
        """By service, what had come out and been refused when it was last heard of."""
        self._stale: dict[str, Observation] = {}
        """What was last seen of services, before anything that counts: that they were there, and when."""
        self._lock = threading.Lock()

    def define(self, services: Mapping[str, Service], schemas: Mapping[str, Schema]) -> None:
        """Take in what services there are."""
        offers = {name: Offer.of(each, schemas[name]) for name, each in services.items()}
        with self._lock:
            for name in self._offers.keys() - offers.keys():
                self._all.remove(name)
            for name, offer in offers.items():
                if self._offers.get(name) != offer:
                    self._all.put(offer)
            self._services, self._offers = services, offers
            self._narrowed.clear()

    def observe(self, said: Mapping[str, Any]) -> None:
        """Take in an event of `_status`."""
        with self._lock:
            self._hear(said)

    def _hear(self, said: Mapping[str, Any]) -> None:
        name, micros = said["service"], timestamps.from_text(said["time"])
        counts = said.get("written", 0), said.get("quarantined", 0) + said.get("dropped", 0)
        before, self._counts[name] = self._counts.get(name), counts
        at = (micros or 0) / 1e6
        events, refused = (max(0, now - then) for now, then in zip(counts, before or counts, strict=True))
        latency_ms = said.get("latency_p99_ms")
        seen = Observation(
            at,
            up=said["state"] == "running",
            latency_s=None if latency_ms is None or not events else latency_ms / 1e3,
            events=events,
            refused=refused,
            newest_at=at if events else None,
        )
        if at < self._clock() - self._all.settings.window_s:
            self._stale[name] = seen
        else:
            self._stale.pop(name, None)
            self._observe(name, seen)

    def _observe(self, name: str, seen: Observation) -> None:
        for each in (self._all, *self._narrowed.values()):
            if name in each:
                each.observe(name, seen)

    def discover(self, view: View, request: Request) -> Answer:
        """Answer a request with what a caller sees."""
        with self._lock:
            self._settle()
            directory = self._directory(view)
        return directory.discover(request, self._clock())

    def lost(self) -> set[str]:
        """The services that are down, or were heard of and have fallen silent."""
        with self._lock:
            self._settle()
        return set(self._all.lost(self._clock()))

    def quality(self, name: str) -> dict[str, dict[str, Any]]:
        """Of a service, by metric: what it promises, what is measured, and whether that is kept."""
        with self._lock:
            self._settle()
            if name not in self._all:  # it is so new that it was not taken in yet
                return {}
            now = self._clock()
            measured = self._all.measured(name, now)
            promises = {each.metric: each for each in self._all.certify(name, now)}
        found: dict[str, dict[str, Any]] = {}
        for metric in NAMES:
            promise = promises.get(metric)
            found[metric] = {
                "promised": None if promise is None else promise.promised,
                "measured": measured.get(metric),
                "verdict": None if promise is None else promise.verdict,
            }
        return found

    def broken(self) -> dict[str, list[str]]:
        """By service, the metrics of which it does not keep what it promises; of whoever keeps all, nothing."""
        with self._lock:
            self._settle()
            now, offers = self._clock(), self._offers
            promise = [name for name, offer in offers.items() if offer.qos != Qos() and name in self._all]
            certified = {name: self._all.certify(name, now) for name in promise}
        found = {name: [each.metric for each in all_ if each.verdict == "broken"] for name, all_ in certified.items()}
        return {name: metrics for name, metrics in found.items() if metrics}

    def _settle(self) -> None:
        while self._stale:
            self._observe(*self._stale.popitem())

    def _directory(self, view: View) -> Directory:
        names = view.services(self._services)
        seen = tuple((name, view.hidden(name)) for name in names)
        if len(names) == len(self._services) and not any(hidden for _, hidden in seen):
            return self._all
        found = self._narrowed.pop(seen, None)
        if found is None:
            found = self._all.narrowed(Offer.of(self._services[name], view.schema(name)) for name in names)
            if len(self._narrowed) >= MOST_VIEWS:
                self._narrowed.pop(next(iter(self._narrowed)), None)
        self._narrowed[seen] = found  # the last that was asked
        return found
