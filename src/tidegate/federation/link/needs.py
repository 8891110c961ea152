"""Which filters are needed here of other brokers' services: of those who listen, and for a while of those who did."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count

from tidegate.federation.link.coverage import Joint
from tidegate.federation.routes.index import BoxIndex
from tidegate.filters import Filter

Wanted = tuple[str, Filter]
"""A service and a filter."""


@dataclass(slots=True)
class Need:
    """A filter that somebody needs."""

    number: int
    filter: Filter
    holders: set[Hashable] = field(default_factory=set)
    joint: Joint | None = None
    """From where on the mirror has all that it matches; None: its origin has not said yet."""

    @property
    def id(self) -> str:
        """As the broker knows it."""
        return f"need-{self.number}"

    @property
    def name(self) -> str:
        """The same in every life of a broker, and for no other filter."""
        said = f"{self.filter.like_star:d} {self.filter.params!r} {self.filter.text}"
        return blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Needs:
    """Counts who needs what: each filter is one subscription of the broker."""

    def __init__(self, change: Callable[[str, str, Filter | None], None], linger_s: float) -> None:
        """`change` is told of a service, an id, and the filter that is needed under it; None: no more."""
        self._change, self._linger_s = change, linger_s
        self._needs: dict[Wanted, Need] = {}
        self._held: dict[Hashable, Wanted] = {}
        self._idle: dict[Wanted, float | None] = {}
        """What nobody needs, and when that has been so for long enough; None: the time has yet to be looked at."""
        self._lacking: dict[str, dict[Filter, None]] = {}
        """By service, of what no origin has said from where on it is looked for."""
        self._joined: dict[str, tuple[BoxIndex, dict[int, Need]]] = {}
        """By service, of what it has."""
        self._numbers = count(1)
        self._changed: dict[tuple[str, str], Need | None] = {}

    def hold(self, holder: Hashable, service: str, filter_: Filter, joint: Joint | None = None) -> None:
        """Somebody needs a filter, in place of what they needed before, which goes after a while.

        `joint` is where that had begun in an earlier life.
        """
        wanted = service, filter_
        before = self._held.get(holder)
        if before == wanted:
            return
        need = self._needs.get(wanted)
        if need is None:
            need = self._needs[wanted] = Need(next(self._numbers), filter_)
            self._note(service, need)
            self._lacking.setdefault(service, {})[filter_] = None
            joint = joint or self.joint(service, filter_)
            if joint is not None:
                self.join(service, [filter_], joint)
            self._change(service, need.id, filter_)
        need.holders.add(holder)
        self._idle.pop(wanted, None)
        self._held[holder] = wanted
        if before is not None:
            self._left(before, holder)

    def release(self, holder: Hashable) -> None:
        """Somebody needs nothing more."""
        wanted = self._held.pop(holder, None)
        if wanted is not None:
            self._left(wanted, holder)

    def _left(self, wanted: Wanted, holder: Hashable) -> None:
        need = self._needs[wanted]
        need.holders.discard(holder)
        if not need.holders:
            self._idle[wanted] = None

    def linger(self, service: str, filter_: Filter, now: float, joint: Joint | None = None) -> None:
        """Need a filter for a while, though nobody is here who does: they may come back."""
        self.hold(self, service, filter_, joint)
        self.release(self)
        if (service, filter_) in self._idle:
            self._idle[service, filter_] = now + self._linger_s

    def pass_time(self, now: float) -> None:
        """Drop what nobody has needed for long enough."""
        for wanted, until in list(self._idle.items()):
            if until is None:
                self._idle[wanted] = now + self._linger_s
            elif until <= now:
                del self._idle[wanted]
                self._forget(wanted)

    def drop(self, service: str) -> None:
        """Forget all needs of a service that is gone."""
        for wanted in [each for each in self._needs if each[0] == service]:
            for holder in self._needs[wanted].holders:
                self._held.pop(holder, None)
            self._idle.pop(wanted, None)
            self._forget(wanted)

    def _forget(self, wanted: Wanted) -> None:
        service, filter_ = wanted
        need = self._needs.pop(wanted)
        self._changed[service, need.name] = None
        self._lacking.get(service, {}).pop(filter_, None)
        if need.joint is not None:
            index, joined = self._joined[service]
            index.remove(need.number)
            del joined[need.number]
        self._change(service, need.id, None)

    # From where on ------------------------------------------------------------------------

    def lacking(self, service: str) -> list[Filter]:
        """What is needed, it is not known from where on it is there."""
        return list(self._lacking.get(service, ()))

    def join(self, service: str, filters: Iterable[Filter], joint: Joint) -> None:
        """From a joint on a mirror has all that some filters match."""
        index, joined = self._joined.setdefault(service, (BoxIndex(), {}))
        for each in filters:
            need = self._needs.get((service, each))
            if need is not None and need.joint is None:
                need.joint = joint
                del self._lacking[service][each]
                index.add(need.number, each)
                joined[need.number] = need
                self._note(service, need)

    def joint(self, service: str, filter_: Filter) -> Joint | None:
        """From where on a mirror has what a filter matches, as long as it is needed; None: that is not known."""
        need = self._needs.get((service, filter_))
        if need is not None and need.joint is not None:
            return need.joint
        index, joined = self._joined.get(service, (None, {}))
        wider = None if index is None else index.coverer(filter_)
        return None if wider is None else joined[wider].joint

    # What is kept ---------------------------------------------------------------------------

    def _note(self, service: str, need: Need) -> None:
        self._changed[service, need.name] = need

    def changed(self) -> dict[tuple[str, str], Need | None]:
        """By service and name what is needed that was not, from elsewhere on, or, by None, no more; once."""
        found, self._changed = self._changed, {}
        return found

    def filters(self) -> dict[str, list[Filter]]:
        """What is needed, by service."""
        found: dict[str, list[Filter]] = {}
        for service, filter_ in self._needs:
            found.setdefault(service, []).append(filter_)
        return found
