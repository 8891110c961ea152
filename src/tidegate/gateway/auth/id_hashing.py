"""Decides for whom the event ids of a service are hashed, because they may be derived from hidden attributes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from threading import Lock
from typing import Protocol

from cachetools import LRUCache

from tidegate.gateway.auth.callers import Caller
from tidegate.model.hashed_ids import HashedIds
from tidegate.services import Definitions, Service, Stream
from tidegate.services.lineage import Lineages, Origins

_MAX_CACHED = 10_000
"""Callers, and pairs of service and caller, whose result is cached."""


class Visibility(Protocol):
    """The part of `Policies` that `IdHashing` uses."""

    def hidden(self, caller: Caller, name: str) -> frozenset[str]:
        """Return the attributes of a service that a caller does not see."""

    def is_withheld(self, caller: Caller, name: str) -> bool:
        """True if the policy of a stream or service excludes a caller."""


class IdHashing:
    """Decides by the lineage of ids. One instance serves one set of definitions; results are cached. Thread-safe."""

    def __init__(
        self, key: bytes, visibility: Visibility, streams: Mapping[str, Stream], services: Mapping[str, Service]
    ) -> None:
        """`key` is the HMAC key of hashed ids."""
        self._key, self._visibility = key, visibility
        self._names: Collection[str] = (*streams, *services)
        self._lineages = Lineages(Definitions(streams, services))
        self._hides: LRUCache[tuple[str, Caller], bool] = LRUCache(_MAX_CACHED)
        self._restricted: LRUCache[Caller, frozenset[str]] = LRUCache(_MAX_CACHED)
        self._lock = Lock()
        """Held while a cache is used: requests ask on the event loop and on threads."""

    def hides_ids(self, caller: Caller, name: str) -> bool:
        """True if ids of a service may be derived from what a caller may not see, in the service or upstream."""
        if caller.may("operate") or name not in self._lineages:
            return False
        if name not in self._below_restricted(caller):
            return False
        with self._lock:
            hides = self._hides.get((name, caller))
        if hides is None:
            ids = self._lineages.of_ids(name)
            hides = any(self._secret(caller, source, name) & ids for source in self._lineages.upstream(name))
            with self._lock:
                self._hides[name, caller] = hides
        return hides

    def ids(self, caller: Caller, name: str) -> HashedIds | None:
        """Return how the ids of a service are hashed for a caller; None if they see the ids themselves."""
        if not self.hides_ids(caller, name):
            return None
        return HashedIds(self._key, self._lineages.raw_streams(name))

    def _below_restricted(self, caller: Caller) -> frozenset[str]:
        """Return the streams and services that a caller does not fully see, and everything derived from them."""
        with self._lock:
            restricted = self._restricted.get(caller)
        if restricted is None:
            sees = self._visibility
            partly = [name for name in self._names if sees.is_withheld(caller, name) or sees.hidden(caller, name)]
            restricted = self._lineages.downstream(partly)
            with self._lock:
                self._restricted[caller] = restricted
        return restricted

    def _secret(self, caller: Caller, name: str, reader: str) -> Origins:
        """Return the origins of everything that a caller may not see of `name`, from which `reader` is derived."""
        if name != reader and self._visibility.is_withheld(caller, name):
            return self._lineages.of_everything(name)
        hidden = self._visibility.hidden(caller, name)
        return self._lineages.of_attributes(name, hidden) if hidden else frozenset()
