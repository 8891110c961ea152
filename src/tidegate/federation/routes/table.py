"""The two ends of a table: `Outgoing` at the broker that requests events, `Incoming` at the one that forwards them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TypeVar

from tidegate.federation.routes.delta import Delta
from tidegate.federation.routes.messages import RouteEntry, RouteTable, TableState, Update
from tidegate.federation.routes.strategies import Strategy
from tidegate.filters import Filter

MAX_KEPT_STEPS = 256
"""Steps that are kept for a neighbour that missed them. One that missed more is sent the whole table."""
MAX_STEP_FILTERS = 16
"""Filters that are added, and removed, in one step. It bounds the time of a step, as each is compared with others."""

T = TypeVar("T")


class Outgoing:
    """The table that this broker requests from a neighbour. It also changes while the link is down."""

    def __init__(self, service: str, strategy: Strategy) -> None:
        self.service, self.strategy = service, strategy
        self.state = TableState()
        self.is_led = True
        """True if events of the service may come from the neighbour. If not, nothing is requested from it."""
        self.theirs: TableState | None = None
        """The state that the neighbour announced in a `hello` that is not answered yet.

        The answer waits until all pending changes are applied, see `is_behind`.
        """
        self.entries: dict[int, RouteEntry] = {}
        self._steps: deque[tuple[TableState, Update]] = deque(maxlen=MAX_KEPT_STEPS)
        """The last steps, each with the state before it."""
        self._changes: deque[tuple[deque[tuple[int, Filter]], deque[int]]] = deque()
        """The filters to add and the numbers to remove of each pending change. Additions come before removals."""

    @property
    def is_behind(self) -> bool:
        """True if a needed filter may be missing from the table, because a change is not fully applied."""
        return bool(self._changes)

    @property
    def pending(self) -> bool:
        """True if `work` has something to do."""
        return bool(self._changes) or self.strategy.pending

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Update | None:
        """Add and remove needed filters, at most `MAX_STEP_FILTERS` of them now and the others in `work`.

        Returns the step to send to the neighbour. None: the table did not change.
        """
        self._changes.append((deque(put.items()), deque(drop)))
        return self.work()

    def work(self) -> Update | None:
        """Do a bounded part of the pending work. Returns the step to send, or None."""
        if not self._changes:
            return self._step(self.strategy.work())
        put, drop = self._changes[0]
        added = dict(_pop_first(put, MAX_STEP_FILTERS))
        removed = [] if put else _pop_first(drop, MAX_STEP_FILTERS)
        if not put and not drop:
            self._changes.popleft()
        return self._step(self.strategy.change(added, removed))

    def _step(self, delta: Delta) -> Update | None:
        if not delta:
            return None
        add = tuple(RouteEntry(number, delta.add[number]) for number in sorted(delta.add))
        removed = [self.entries.pop(number) for number in delta.remove]
        self.entries.update((entry.number, entry) for entry in add)
        before = self.state
        self.state = before.after(add, removed, before.version + 1)
        update = Update(self.service, self.state, add, delta.remove)
        self._steps.append((before, update))
        return update

    def since(self, theirs: TableState) -> list[Update | RouteTable]:
        """Return the messages for a neighbour with this state: none, the steps that it missed, or the whole table."""
        if theirs == self.state:
            return []
        missed = [update for before, update in self._steps if before.version >= theirs.version]
        is_known = any(before == theirs for before, _ in self._steps)
        size = sum(len(update.add) + len(update.remove) for update in missed)
        if is_known and size <= len(self.entries):
            return list(missed)
        return [RouteTable(self.service, self.state, tuple(entry for _, entry in sorted(self.entries.items())))]


class Incoming:
    """The table that a neighbour requests from this broker, as far as it has arrived."""

    def __init__(self) -> None:
        self.state = TableState()
        self.entries: dict[int, RouteEntry] = {}
        self.text_length = 0
        """Total length of the filters' texts, in characters."""
        self.needs: dict[int, int] = {}
        """By entry number, the number of the filter in this broker's `NeededFilters`."""
        self.is_asking = False
        """True if steps are missing and were requested. Until the answer arrives, no further `hello` is sent."""

    def is_next(self, update: Update) -> bool:
        """True if a step follows the current version and gives exactly the table that the sender has."""
        if update.state.version != self.state.version + 1:
            return False
        if any(number not in self.entries for number in update.remove):
            return False
        if any(entry.number in self.entries for entry in update.add):  # the replaced entry would never be removed
            return False
        removed = [self.entries[number] for number in update.remove]
        return self.state.after(update.add, removed, update.state.version) == update.state

    def differences(self, table: RouteTable) -> tuple[tuple[RouteEntry, ...], tuple[int, ...]]:
        """Return the entries to add and the numbers to remove to turn this table into the given one."""
        mine = {number: entry.digest for number, entry in self.entries.items()}
        theirs = {entry.number: entry.digest for entry in table.entries}
        add = tuple(entry for entry in table.entries if mine.get(entry.number) != entry.digest)
        return add, tuple(number for number, digest in mine.items() if theirs.get(number) != digest)


def _pop_first(queue: deque[T], count: int) -> list[T]:
    """Remove and return up to `count` items from the front."""
    return [queue.popleft() for _ in range(min(count, len(queue)))]
