"""What a directory holds of its services, by place."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from tidegate.discovery.attributes import Attribute, attributes_of
from tidegate.discovery.bloom import Bloom
from tidegate.discovery.index import AttributeIndex
from tidegate.discovery.properties import Properties
from tidegate.discovery.quality import Figures
from tidegate.discovery.windows import Observation, Window
from tidegate.model import Schema
from tidegate.services.definitions import Property, Qos, Service

_STALE_S = 1.0
"""Figures that are older are asked of their window again."""


@dataclass(frozen=True)
class Offer:
    """A service as it is found."""

    name: str
    attributes: tuple[Attribute, ...] = ()
    properties: Mapping[str, Property] = field(default_factory=lambda: MappingProxyType({}))
    categories: tuple[str, ...] = ()
    themes: tuple[str, ...] = ()
    qos: Qos = field(default_factory=Qos)

    @classmethod
    def of(cls, service: Service, output: Schema) -> Offer:
        """Make it of a definition and the schema of what comes out."""
        return cls(
            service.name, attributes_of(output), service.properties, service.categories, service.themes, service.qos
        )

    def tags(self) -> Mapping[str, tuple[str, ...]]:
        """The words that a request can name, by kind."""
        return {"categories": self.categories, "themes": self.themes}


class Holdings:
    """All services: their attributes, properties, words, promises, and what was seen of them."""

    def __init__(self, bloom: Bloom | None, window_s: float) -> None:
        self.index = AttributeIndex(bloom)
        self.properties = Properties()
        self.figures = Figures()
        self.offers: dict[int, Offer] = {}
        self.tags: dict[str, dict[str, set[int]]] = {"categories": {}, "themes": {}}
        self.windows: dict[int, Window] = {}
        self._window_s = window_s
        self._is_taken = np.zeros(64, bool)
        self._heard = np.full(64, np.nan)
        """When each place was last heard of; NaN: never, minus infinity: it said that it is down."""
        self._measured_at: dict[int, float] = {}

    def put(self, offer: Offer) -> None:
        """Add a service, or change it; what was seen of it stays."""
        is_new = offer.name not in self.index
        place = self.index.add(offer.name, offer.attributes)
        while place >= len(self._heard):
            self._heard = np.concatenate([self._heard, np.full_like(self._heard, np.nan)])
            self._is_taken = np.concatenate([self._is_taken, np.zeros_like(self._is_taken)])
        if not is_new:
            self._untag(place)
        self._is_taken[place] = True
        self.offers[place] = offer
        self.properties.put(place, offer.properties)
        self.figures.promise(place, offer.qos)
        self._measured_at.pop(place, None)
        for kind, words in offer.tags().items():
            for word in words:
                self.tags[kind].setdefault(word, set()).add(place)

    def remove(self, name: str) -> bool:
        """Remove a service and all that was seen of it; whether it was there."""
        place = self.index.remove(name)
        if place is None:
            return False
        self._untag(place)
        self._is_taken[place] = False
        self._heard[place] = np.nan
        self.windows.pop(place, None)
        self._measured_at.pop(place, None)
        del self.offers[place]
        self.properties.put(place, {})
        return True

    def _untag(self, place: int) -> None:
        for kind, words in self.offers[place].tags().items():
            for word in words:
                places = self.tags[kind].get(word, set())
                places.discard(place)
                if not places:
                    self.tags[kind].pop(word, None)

    def observe(self, place: int, seen: Observation) -> bool:
        """Note what was seen; whether the service is down, or back, since."""
        if place not in self.windows:
            self.windows[place] = Window(self._window_s)
        self.windows[place].observe(seen)
        self._measured_at.pop(place, None)
        heard = float(self._heard[place])
        was_down = heard == -np.inf
        if seen.up is False:
            self._heard[place] = -np.inf
        else:
            self._heard[place] = seen.at if was_down or np.isnan(heard) else max(heard, seen.at)
        return was_down is not (seen.up is False)

    def take_seen(self, place: int, other: Holdings, there: int) -> None:
        """Take over what others have seen of a service."""
        if there in other.windows:
            self.windows[place] = deepcopy(other.windows[there])
        self._heard[place] = other._heard[there]

    def places(self) -> Any:
        """All places that a service has, ascending."""
        return np.flatnonzero(self._is_taken)

    def is_lost(self, places: Any, now: float, after_s: float) -> Any:
        """Which of some services fell silent; one that nobody ever heard of is taken to be there."""
        return now - self._heard[places] > after_s

    def refresh(self, places: Any, now: float) -> None:
        """Bring the figures of some services up to date."""
        if not self.windows:
            return
        for place in self.windows.keys() & set(places.tolist()):
            if now - self._measured_at.get(place, -np.inf) >= _STALE_S:
                self.figures.measure(place, self.windows[place].figures(now))
                self._measured_at[place] = now

    def measured(self, place: int, now: float) -> Mapping[str, float]:
        """What is measured of a service."""
        window = self.windows.get(place)
        return {} if window is None else window.figures(now)
