"""Both ends of a table: what a broker has asked for over a link, and what it was asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TypeVar

from tidegate.federation.routes.delta import Delta
from tidegate.federation.routes.messages import RouteEntry, Table, TableState, Update
from tidegate.federation.routes.strategies import Strategy
from tidegate.filters import Filter

KEPT = 256
"""Steps that are kept to be said again: a neighbour who was away for longer gets the whole table."""
TAKEN = 16
"""Filters that are taken in one step, and as many that are dropped: each has to be compared with the others."""

T = TypeVar("T")


class Outgoing:
    """The sender's end: it goes on while the link is down, and knows what to say when it is up."""

    def __init__(self, service: str, strategy: Strategy) -> None:
        self.service, self.strategy = service, strategy
        self.state = TableState()
        self.is_led = True
        """Whether the neighbour is asked at all: the service's events may come from it."""
        self.theirs: TableState | None = None
        """How far the neighbour has it, as it has said: while this is set, the answer waits for the rest of it."""
        self.entries: dict[int, RouteEntry] = {}
        self._steps: deque[tuple[TableState, Update]] = deque(maxlen=KEPT)
        """Each of the last steps, with the state before it."""
        self._changes: deque[tuple[deque[tuple[int, Filter]], deque[int]]] = deque()
        """What is left of changes, in their order: of each all is put before anything is dropped."""

    @property
    def is_behind(self) -> bool:
        """Whether something that is needed has yet to be looked at."""
        return bool(self._changes)

    @property
    def pending(self) -> bool:
        """Whether there is something left to do."""
        return bool(self._changes) or self.strategy.pending

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Update | None:
        """Take what is needed now, of many a part; give the step that follows from it, if one does."""
        self._changes.append((deque(put.items()), deque(drop)))
        return self.work()

    def work(self) -> Update | None:
        """Go on with what a change has left to do."""
        if not self._changes:
            return self._step(self.strategy.work())
        put, drop = self._changes[0]
        some = dict(_first(put, TAKEN))
        gone = [] if put else _first(drop, TAKEN)
        if not put and not drop:
            self._changes.popleft()
        return self._step(self.strategy.change(some, gone))

    def _step(self, delta: Delta) -> Update | None:
        if not delta:
            return None
        add = tuple(RouteEntry(number, delta.add[number]) for number in sorted(delta.add))
        gone = [self.entries.pop(number) for number in delta.remove]
        self.entries.update((each.number, each) for each in add)
        before = self.state
        self.state = before.after(add, gone, before.version + 1)
        update = Update(self.service, self.state, add, delta.remove)
        self._steps.append((before, update))
        return update

    def since(self, theirs: TableState) -> list[Update | Table]:
        """What brings a neighbour who has this much up to date: nothing, the steps that it missed, or all."""
        if theirs == self.state:
            return []
        missed = [update for before, update in self._steps if before.version >= theirs.version]
        known = [before for before, _ in self._steps if before == theirs]
        size = sum(len(update.add) + len(update.remove) for update in missed)
        if known and size <= len(self.entries):
            return list(missed)
        return [Table(self.service, self.state, tuple(each for _, each in sorted(self.entries.items())))]


class Incoming:
    """The receiver's end."""

    def __init__(self) -> None:
        self.state = TableState()
        self.entries: dict[int, RouteEntry] = {}
        self.size_bytes = 0
        """Characters of all filters."""
        self.needs: dict[int, int] = {}
        """The number under which each entry is needed here, by its own."""
        self.is_asking = False
        """Whether something is missing and was asked for: what comes before the answer is of no use."""

    def takes(self, update: Update) -> bool:
        """Whether a step is the next one, and makes of this table what its sender has."""
        if update.state.version != self.state.version + 1 or any(each not in self.entries for each in update.remove):
            return False
        if any(each.number in self.entries for each in update.add):  # it would be needed for ever
            return False
        gone = [self.entries[number] for number in update.remove]
        return self.state.after(update.add, gone, update.state.version) == update.state

    def differences(self, table: Table) -> tuple[tuple[RouteEntry, ...], tuple[int, ...]]:
        """What comes and what goes when a whole table takes the place of this one."""
        mine = {number: each.digest for number, each in self.entries.items()}
        theirs = {each.number: each.digest for each in table.entries}
        add = tuple(each for each in table.entries if mine.get(each.number) != each.digest)
        return add, tuple(number for number, digest in mine.items() if theirs.get(number) != digest)


def _first(waiting: deque[T], most: int) -> list[T]:
    """Take so many from the front."""
    return [waiting.popleft() for _ in range(min(most, len(waiting)))]
