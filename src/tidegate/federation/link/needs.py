"""Which filters are needed here of other brokers' services: of those who listen, and for a while of those who did."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from tidegate.filters import Filter

Wanted = tuple[str, Filter]
"""A service and a filter."""


@dataclass(slots=True)
class _Need:
    id: str
    holders: set[Hashable] = field(default_factory=set)
    until: float | None = None
    """When nobody has needed it for long enough; None: somebody does."""


class Needs:
    """Counts who needs what: each filter is one subscription of the broker."""

    def __init__(self, change: Callable[[str, str, Filter | None], None], linger_s: float) -> None:
        """`change` is told of a service, an id, and the filter that is needed under it; None: no more."""
        self._change, self._linger_s = change, linger_s
        self._needs: dict[Wanted, _Need] = {}
        self._held: dict[Hashable, Wanted] = {}
        self._count = 0

    def hold(self, holder: Hashable, service: str, filter_: Filter) -> None:
        """Somebody needs a filter, in place of what they needed before, which goes after a while."""
        wanted = service, filter_
        before = self._held.get(holder)
        if before == wanted:
            return
        need = self._needs.get(wanted)
        if need is None:
            self._count += 1
            need = self._needs[wanted] = _Need(f"need-{self._count}")
            self._change(service, need.id, filter_)
        need.holders.add(holder)
        need.until = None
        self._held[holder] = wanted
        if before is not None:
            self._needs[before].holders.discard(holder)

    def release(self, holder: Hashable) -> None:
        """Somebody needs nothing more."""
        wanted = self._held.pop(holder, None)
        if wanted is not None:
            self._needs[wanted].holders.discard(holder)

    def linger(self, service: str, filter_: Filter, now: float) -> None:
        """Need a filter for a while, though nobody is here who does: they may come back."""
        self.hold(self, service, filter_)
        self.release(self)
        self.pass_time(now)

    def pass_time(self, now: float) -> None:
        """Drop what nobody has needed for long enough."""
        for wanted, need in list(self._needs.items()):
            if need.holders:
                need.until = None
            elif need.until is None:
                need.until = now + self._linger_s
            elif need.until <= now:
                del self._needs[wanted]
                self._change(wanted[0], need.id, None)

    def drop(self, service: str) -> None:
        """Forget all needs of a service that is gone."""
        for wanted, need in [each for each in self._needs.items() if each[0][0] == service]:
            del self._needs[wanted]
            for holder in need.holders:
                self._held.pop(holder, None)
            self._change(service, need.id, None)

    def filters(self) -> dict[str, list[Filter]]:
        """What is needed, by service."""
        found: dict[str, list[Filter]] = {}
        for service, filter_ in self._needs:
            found.setdefault(service, []).append(filter_)
        return found
