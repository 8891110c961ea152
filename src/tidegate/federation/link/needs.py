"""The filters that are needed here of other brokers' services, with the sync point of each.

A filter is needed while a subscriber holds it, and for some time after: the subscriber may come back with its cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count

from tidegate.federation.link.coverage import SyncPoint
from tidegate.federation.routes.index import BoxIndex
from tidegate.filters import Filter

NeedKey = tuple[str, Filter]
"""A service and a filter."""


@dataclass(slots=True)
class Need:
    """A needed filter and its holders."""

    number: int
    filter: Filter
    holders: set[Hashable] = field(default_factory=set)
    sync_point: SyncPoint | None = None
    """The position after which the mirror has all events of the filter. None: not known yet."""

    @property
    def id(self) -> str:
        """The id of the broker's subscription for this filter."""
        return f"need-{self.number}"

    @property
    def name(self) -> str:
        """A digest of the filter: the same after a restart, and different for every other filter."""
        text = f"{self.filter.like_star:d} {self.filter.params!r} {self.filter.text}"
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Needs:
    """Needed filters by service. Equal filters of several holders are one subscription of the broker.

    Not thread-safe: the event loop owns it.
    """

    def __init__(self, on_change: Callable[[str, str, Filter | None], None], linger_s: float) -> None:
        """`on_change(service, id, filter)` is called when a filter is needed for the first time.

        It is called with None as the filter when the filter is no longer needed: `linger_s` after its last holder left.
        """
        self._on_change, self._linger_s = on_change, linger_s
        self._needs: dict[NeedKey, Need] = {}
        self._held: dict[Hashable, NeedKey] = {}
        self._idle: dict[NeedKey, float | None] = {}
        """Needs without holders, and when they expire. None: `expire` has yet to set the time."""
        self._without_sync_point: dict[str, dict[Filter, None]] = {}
        self._with_sync_point: dict[str, tuple[BoxIndex, dict[int, Need]]] = {}
        """By service, the needs that have a sync point, and an index that finds which of them covers a filter."""
        self._numbers = count(1)
        self._changes: dict[tuple[str, str], Need | None] = {}

    def hold(self, holder: Hashable, service: str, filter_: Filter, sync_point: SyncPoint | None = None) -> None:
        """Let a holder need a filter, in place of the one that it needed before.

        `sync_point` is the saved sync point of the filter, if there is one.
        """
        key = service, filter_
        before = self._held.get(holder)
        if before == key:
            return
        need = self._needs.get(key)
        if need is None:
            need = self._needs[key] = Need(next(self._numbers), filter_)
            self._note(service, need)
            self._without_sync_point.setdefault(service, {})[filter_] = None
            sync_point = sync_point or self.sync_point(service, filter_)
            if sync_point is not None:
                self.add_sync_point(service, [filter_], sync_point)
            self._on_change(service, need.id, filter_)
        need.holders.add(holder)
        self._idle.pop(key, None)
        self._held[holder] = key
        if before is not None:
            self._remove_holder(before, holder)

    def release(self, holder: Hashable) -> None:
        """Let a holder need nothing. Does nothing if it is unknown."""
        key = self._held.pop(holder, None)
        if key is not None:
            self._remove_holder(key, holder)

    def _remove_holder(self, key: NeedKey, holder: Hashable) -> None:
        need = self._needs[key]
        need.holders.discard(holder)
        if not need.holders:
            self._idle[key] = None

    def linger(self, service: str, filter_: Filter, now: float, sync_point: SyncPoint | None = None) -> None:
        """Need a filter for `linger_s` without a holder, as after a restart."""
        self.hold(self, service, filter_, sync_point)
        self.release(self)
        if (service, filter_) in self._idle:
            self._idle[service, filter_] = now + self._linger_s

    def expire(self, now: float) -> None:
        """Drop the needs that had no holder for `linger_s`. Call it periodically."""
        for key, expires_at in list(self._idle.items()):
            if expires_at is None:
                self._idle[key] = now + self._linger_s
            elif expires_at <= now:
                del self._idle[key]
                self._forget(key)

    def drop(self, service: str) -> None:
        """Drop all needs of a service that is not offered any more, with their holders."""
        for key in [need_key for need_key in self._needs if need_key[0] == service]:
            for holder in self._needs[key].holders:
                self._held.pop(holder, None)
            self._idle.pop(key, None)
            self._forget(key)

    def _forget(self, key: NeedKey) -> None:
        service, filter_ = key
        need = self._needs.pop(key)
        self._changes[service, need.name] = None
        self._without_sync_point.get(service, {}).pop(filter_, None)
        if need.sync_point is not None:
            index, by_number = self._with_sync_point[service]
            index.remove(need.number)
            del by_number[need.number]
        self._on_change(service, need.id, None)

    # Sync points ---------------------------------------------------------------------------

    def without_sync_point(self, service: str) -> list[Filter]:
        """Return the needed filters of a service that have no sync point yet."""
        return list(self._without_sync_point.get(service, ()))

    def add_sync_point(self, service: str, filters: Iterable[Filter], sync_point: SyncPoint) -> None:
        """Set the sync point of needed filters. Filters that have one, or are needed no more, are skipped."""
        index, by_number = self._with_sync_point.setdefault(service, (BoxIndex(), {}))
        for filter_ in filters:
            need = self._needs.get((service, filter_))
            if need is not None and need.sync_point is None:
                need.sync_point = sync_point
                del self._without_sync_point[service][filter_]
                index.add(need.number, filter_)
                by_number[need.number] = need
                self._note(service, need)

    def sync_point(self, service: str, filter_: Filter) -> SyncPoint | None:
        """Return the sync point of a filter, or of a needed one that covers it. None: there is none."""
        need = self._needs.get((service, filter_))
        if need is not None and need.sync_point is not None:
            return need.sync_point
        index, by_number = self._with_sync_point.get(service, (None, {}))
        covering = None if index is None else index.find_covering(filter_)
        return None if covering is None else by_number[covering].sync_point

    # Persistence -----------------------------------------------------------------------------

    def _note(self, service: str, need: Need) -> None:
        self._changes[service, need.name] = need

    def take_changes(self) -> dict[tuple[str, str], Need | None]:
        """Return the needs that changed since the last call, by service and name. None: it is needed no more."""
        changes, self._changes = self._changes, {}
        return changes

    def filters_held_by(self, is_wanted: Callable[[Hashable], bool]) -> dict[str, list[Filter]]:
        """Return the needed filters that have a holder of some kind, by service."""
        by_service: dict[str, list[Filter]] = {}
        for (service, filter_), need in self._needs.items():
            if any(is_wanted(holder) for holder in need.holders):
                by_service.setdefault(service, []).append(filter_)
        return by_service

    def filters(self) -> dict[str, list[Filter]]:
        """Return all needed filters, by service."""
        by_service: dict[str, list[Filter]] = {}
        for service, filter_ in self._needs:
            by_service.setdefault(service, []).append(filter_)
        return by_service
