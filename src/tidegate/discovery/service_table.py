"""Everything that a directory knows of its services, by slot."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from tidegate.discovery.attributes import ServiceAttribute, attributes_of
from tidegate.discovery.bloom import Bloom
from tidegate.discovery.index import AttributeIndex
from tidegate.discovery.properties import Properties
from tidegate.discovery.quality import QosFigures
from tidegate.discovery.windows import Observation, ObservationWindow
from tidegate.model import Schema
from tidegate.services.definitions import Property, Qos, Service

_STALE_S = 1.0
"""Age at which measured values are read from their window again."""


@dataclass(frozen=True)
class Offer:
    """A service as discovery sees it."""

    name: str
    attributes: tuple[ServiceAttribute, ...] = ()
    properties: Mapping[str, Property] = field(default_factory=lambda: MappingProxyType({}))
    categories: tuple[str, ...] = ()
    themes: tuple[str, ...] = ()
    qos: Qos = field(default_factory=Qos)

    @classmethod
    def of(cls, service: Service, output: Schema) -> Offer:
        """Return the offer of a service definition with the schema of its output."""
        return cls(
            service.name, attributes_of(output), service.properties, service.categories, service.themes, service.qos
        )

    def tags(self) -> Mapping[str, tuple[str, ...]]:
        """Return the words that a request can name, by kind."""
        return {"categories": self.categories, "themes": self.themes}


class ServiceTable:
    """The attributes, properties, tags, promises and observations of all services.

    Not thread-safe: `Directory` holds a lock.
    """

    def __init__(self, bloom: Bloom | None, window_s: float) -> None:
        self.index = AttributeIndex(bloom)
        self.properties = Properties()
        self.figures = QosFigures()
        self.offers: dict[int, Offer] = {}
        self.tags: dict[str, dict[str, set[int]]] = {"categories": {}, "themes": {}}
        self.windows: dict[int, ObservationWindow] = {}
        self._window_s = window_s
        self._is_taken = np.zeros(64, bool)
        self._last_seen = np.full(64, np.nan)
        """Time of the last observation, by slot; NaN: never observed, minus infinity: reported as down."""
        self._measured_at: dict[int, float] = {}

    def put(self, offer: Offer) -> None:
        """Add a service, or change it; its observations are kept."""
        is_new = offer.name not in self.index
        slot = self.index.add(offer.name, offer.attributes)
        while slot >= len(self._last_seen):
            self._last_seen = np.concatenate([self._last_seen, np.full_like(self._last_seen, np.nan)])
            self._is_taken = np.concatenate([self._is_taken, np.zeros_like(self._is_taken)])
        if not is_new:
            self._untag(slot)
        self._is_taken[slot] = True
        self.offers[slot] = offer
        self.properties.put(slot, offer.properties)
        self.figures.promise(slot, offer.qos)
        self._measured_at.pop(slot, None)
        for kind, words in offer.tags().items():
            for word in words:
                self.tags[kind].setdefault(word, set()).add(slot)

    def remove(self, name: str) -> bool:
        """Remove a service and its observations; return True if it was there."""
        slot = self.index.remove(name)
        if slot is None:
            return False
        self._untag(slot)
        self._is_taken[slot] = False
        self._last_seen[slot] = np.nan
        self.windows.pop(slot, None)
        self._measured_at.pop(slot, None)
        del self.offers[slot]
        self.properties.put(slot, {})
        return True

    def _untag(self, slot: int) -> None:
        for kind, words in self.offers[slot].tags().items():
            for word in words:
                slots = self.tags[kind].get(word, set())
                slots.discard(slot)
                if not slots:
                    self.tags[kind].pop(word, None)

    def observe(self, slot: int, observation: Observation) -> bool:
        """Record an observation; return True if the service went down or came back."""
        if slot not in self.windows:
            self.windows[slot] = ObservationWindow(self._window_s)
        self.windows[slot].observe(observation)
        self._measured_at.pop(slot, None)
        last_seen = float(self._last_seen[slot])
        was_down = last_seen == -np.inf
        if observation.up is False:
            self._last_seen[slot] = -np.inf
        else:
            self._last_seen[slot] = (
                observation.at if was_down or np.isnan(last_seen) else max(last_seen, observation.at)
            )
        return was_down is not (observation.up is False)

    def take_seen(self, slot: int, other: ServiceTable, there: int) -> None:
        """Copy the observations of a service from another table."""
        if there in other.windows:
            self.windows[slot] = deepcopy(other.windows[there])
        self._last_seen[slot] = other._last_seen[there]

    def slots(self) -> Any:
        """Return all slots in use, ascending."""
        return np.flatnonzero(self._is_taken)

    def is_lost(self, slots: Any, now: float, after_s: float) -> Any:
        """Return which services have fallen silent; a service that was never observed counts as present."""
        return now - self._last_seen[slots] > after_s

    def refresh(self, slots: Any, now: float) -> None:
        """Update the measured values of some services."""
        if not self.windows:
            return
        for slot in self.windows.keys() & set(slots.tolist()):
            if now - self._measured_at.get(slot, -np.inf) >= _STALE_S:
                self.figures.measure(slot, self.windows[slot].figures(now))
                self._measured_at[slot] = now

    def measured(self, slot: int, now: float) -> Mapping[str, float]:
        """Return the measured value of each metric of a service."""
        window = self.windows.get(slot)
        return {} if window is None else window.figures(now)
