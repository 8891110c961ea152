"""What every engine promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tidegate.filters import Filter
from tidegate.filters.nodes import Node
from tidegate.filters.normalize import push_not_inwards, to_dnf
from tidegate.matching.events import Events


@dataclass(frozen=True, slots=True)
class Entry:
    """A filter and whoever subscribed with it."""

    filter: Filter
    owners: tuple[str, ...]

    def alternatives(self) -> list[tuple[Node, ...]]:
        """The filter as conjuncts, as it was written: nothing is concluded from its schema."""
        return to_dnf(push_not_inwards(self.filter.tree.root))


Found = tuple[Any, Any, Callable[[int], Entry]]
"""Event indexes, entry numbers, and what stood under a number when it was matched."""


class Index(Protocol):
    """A set of numbered entries that can be asked which of them match a batch.

    Changes come from one thread at a time and are seen by the next `match`;
    `match` may run in any number of threads at once and takes no lock.
    """

    def apply(self, put: Mapping[int, Entry], drop: Iterable[int] = ()) -> None:
        """Put and drop entries in one step: a match sees all of it or nothing.

        A number that is put again keeps its filter and changes its owners.
        """

    def match(self, events: Events) -> Found:
        """Give the pairs (event index, number), ordered by event, none twice."""

    def describe(self) -> dict[str, Any]:
        """Report shape and memory."""


Made = TypeVar("Made")
_Change = tuple[Mapping[int, Entry], frozenset[int]]
"""What one `apply` puts and drops."""


@dataclass(slots=True)
class _Snapshot(Generic[Made]):
    """Entries as they were, and the changes since; folded and made into an index by the first reader."""

    base: Mapping[int, Entry]
    log: list[_Change]
    """Shared with later snapshots, which append to it."""
    seen: int
    """How much of the log belongs to this snapshot."""
    made: tuple[Mapping[int, Entry], Made] | None = None

    def entries(self) -> dict[int, Entry]:
        """Fold the changes into the base."""
        found = dict(self.base)
        for put, gone in self.log[: self.seen]:
            found.update(put)
            for number in gone:
                found.pop(number, None)
        return found


class Snapshots(Generic[Made]):
    """The entries of an engine that is made anew after a change, but not before somebody asks.

    So ten thousand filters are added in ten thousand short steps and indexed once.
    Readers take no lock: two that come at once may both do the work, to the same end.
    """

    def __init__(self, make: Callable[[Mapping[int, Entry]], Made], entries: Mapping[int, Entry] | None = None) -> None:
        self._make = make
        self._now: _Snapshot[Made] = _Snapshot(entries or {}, [], 0)

    def apply(self, put: Mapping[int, Entry], drop: Iterable[int] = ()) -> None:
        """Put and drop entries in one step."""
        now = self._now
        if now.made is not None:
            now = _Snapshot(now.made[0], [], 0)
        elif now.seen > 2 * len(now.base) + _LONG:  # nobody asks: changes that undo each other must not pile up
            now = _Snapshot(now.entries(), [], 0)
        now.log.append((dict(put), frozenset(drop)))
        self._now = _Snapshot(now.base, now.log, now.seen + 1)

    def now(self) -> tuple[Mapping[int, Entry], Made]:
        """Give the entries of this moment, and what is made of them."""
        snapshot = self._now
        if snapshot.made is None:
            entries = snapshot.entries()
            snapshot.made = entries, self._make(entries)
        return snapshot.made

    def __reduce__(self) -> tuple[object, ...]:
        return Snapshots, (self._make, self._now.entries())


_LONG = 1_000
"""Changes that may wait for a reader, beside twice as many as there are entries."""
