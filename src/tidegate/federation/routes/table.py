"""Both ends of a table: what a broker has asked for over a link, and what it was asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from tidegate.federation.routes.delta import Delta
from tidegate.federation.routes.messages import Entry, State, Table, Update
from tidegate.federation.routes.strategies import Strategy
from tidegate.filters import Filter

KEPT = 256
"""Steps that are kept to be said again: a neighbour who was away for longer gets the whole table."""


class Outgoing:
    """The sender's end: it goes on while the link is down, and knows what to say when it is up."""

    def __init__(self, service: str, strategy: Strategy) -> None:
        self.service, self.strategy = service, strategy
        self.state = State()
        self.is_led = True
        """Whether the neighbour is asked at all: the service's events may come from it."""
        self.entries: dict[int, Entry] = {}
        self._steps: deque[tuple[State, Update]] = deque(maxlen=KEPT)
        """Each of the last steps, with the state before it."""

    def change(self, put: Mapping[int, Filter], drop: Iterable[int]) -> Update | None:
        """Take what is needed now; give the step that follows from it, if one does."""
        return self._step(self.strategy.change(put, drop))

    def work(self) -> Update | None:
        """Go on with what a change has left to do."""
        return self._step(self.strategy.work())

    def _step(self, delta: Delta) -> Update | None:
        if not delta:
            return None
        add = tuple(Entry(number, delta.add[number]) for number in sorted(delta.add))
        gone = [self.entries.pop(number) for number in delta.remove]
        self.entries.update((each.number, each) for each in add)
        before = self.state
        self.state = before.after(add, gone, before.version + 1)
        update = Update(self.service, self.state, add, delta.remove)
        self._steps.append((before, update))
        return update

    def since(self, theirs: State) -> list[Update | Table]:
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
        self.state = State()
        self.entries: dict[int, Entry] = {}
        self.needs: dict[int, int] = {}
        """The number under which each entry is needed here, by its own."""
        self.is_asking = False
        """Whether something is missing and was asked for: what comes before the answer is of no use."""

    def takes(self, update: Update) -> bool:
        """Whether a step is the next one, and makes of this table what its sender has."""
        if update.state.version != self.state.version + 1 or any(each not in self.entries for each in update.remove):
            return False
        gone = [self.entries[number] for number in update.remove]
        return self.state.after(update.add, gone, update.state.version) == update.state

    def differences(self, table: Table) -> tuple[tuple[Entry, ...], tuple[int, ...]]:
        """What comes and what goes when a whole table takes the place of this one."""
        theirs = {each.number: each for each in table.entries}
        add = tuple(each for each in table.entries if self.entries.get(each.number) != each)
        return add, tuple(number for number, each in self.entries.items() if theirs.get(number) != each)
