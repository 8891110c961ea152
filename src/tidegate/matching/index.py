"""What every engine promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning
from tidegate.filters.nodes import Group, Node, predicates
from tidegate.filters.normalize import push_not_inwards, to_dnf
from tidegate.matching.events import Events
from tidegate.matching.result import Matches, Piece, Table
from tidegate.matching.rows import Compiled
from tidegate.model.schema import Schema

Source = str | tuple[str, tuple[Any, ...], bool, bool]
"""All that a filter can be made from again: its text, or text, parameters, `like_star` and `strict_params`."""


def source_of(filter_: Filter | str) -> Source:
    """What is kept of a filter: a tree of Python's objects takes thirty times its text."""
    if isinstance(filter_, str):
        return filter_
    if filter_.params or filter_.like_star or filter_.strict_params:
        return filter_.text, filter_.params, filter_.like_star, filter_.strict_params
    return filter_.text


def made_again(source: Source, schema: Schema | None, meaning: Meaning | None = None) -> Filter:
    """A filter from what was kept of it."""
    if isinstance(source, str):
        return Filter(source, schema, semantics=meaning)
    text, params, star, strict = source
    return Filter(text, schema, params, like_star=star, strict_params=strict, semantics=meaning)


Owners = str | tuple[str, ...]
"""Who subscribed with a filter: mostly one, by its name alone."""


def names(owners: Owners) -> tuple[str, ...]:
    """The owners one by one."""
    return (owners,) if isinstance(owners, str) else owners


def owned_by(several: Iterable[str]) -> Owners:
    """Some owners: one by its name, others as a tuple."""
    found = tuple(several)
    return found[0] if len(found) == 1 else found


def objects(values: list[Any]) -> Any:
    """An array of Python's objects, tuples among them."""
    out = np.empty(len(values), object)
    out[:] = values
    return out


def names_of(owners: Any) -> tuple[Any, Any]:
    """The names of rows' owners, and where those of each row begin; None where each has one."""
    several = np.fromiter((owner.__class__ is tuple for owner in owners), dtype=bool, count=len(owners))
    if not several.any():
        return owners, None
    each = [names(owner) for owner in owners]
    starts = np.append(0, np.cumsum(np.fromiter(map(len, each), np.int64, len(each))))
    return objects([name for several in each for name in several]), starts


class Entry(NamedTuple):
    """A filter, the same as rows, and whoever subscribed with it."""

    kept: Filter | str
    """The filter; of a simple one perhaps the text alone."""
    compiled: Compiled
    owners: Owners

    @property
    def filter(self) -> Filter:
        """The filter."""
        assert isinstance(self.kept, Filter)
        return self.kept

    @property
    def is_meant(self) -> bool:
        """Whether it is matched by meaning."""
        return isinstance(self.kept, Filter) and self.kept.tree.is_semantic

    def alternatives(self) -> list[tuple[Node, ...]]:
        """The filter as conjuncts, as it was written: nothing is concluded from its schema."""
        return to_dnf(push_not_inwards(self.filter.tree.root))


class Index(Protocol):
    """A set of numbered entries that can be asked which of them match a batch.

    Changes come from one thread at a time and are seen by the next `match`, which
    may be asked for in any number of threads at once. Whether one ever waits for
    another, or for a change, is for the engine to say.
    """

    def apply(
        self, put: Mapping[int, Entry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Put and drop entries, and change the owners of others, in one step: a match sees all of it or nothing."""

    def match(self, events: Events) -> Matches:
        """Match a batch."""

    def describe(self) -> dict[str, Any]:
        """Report shape and memory."""

    def explain(self, number: int, events: Events | None) -> dict[str, Any]:
        """Say where an entry sits, and what matching some events by it takes."""

    def close(self) -> None:
        """Let go of threads and processes."""


Made = TypeVar("Made")
_Change = tuple[Mapping[int, Entry], frozenset[int], Mapping[int, Owners]]
"""What one `apply` puts and drops, and whose owners it changes."""


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
        for put, gone, owners in self.log[: self.seen]:
            found.update(put)
            for number in gone:
                found.pop(number, None)
            for number, who in owners.items():
                found[number] = found[number]._replace(owners=who)
        return found


class Snapshots(Generic[Made]):
    """The entries of an engine that is made anew after a change, but not before somebody asks.

    So ten thousand filters are added in ten thousand short steps and indexed once.
    Readers take no lock: two that come at once may both do the work, to the same end.
    """

    def __init__(self, make: Callable[[Mapping[int, Entry]], Made], entries: Mapping[int, Entry] | None = None) -> None:
        self._make = make
        self._now: _Snapshot[Made] = _Snapshot(entries or {}, [], 0)

    def apply(
        self, put: Mapping[int, Entry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Put and drop entries, and change the owners of others, in one step."""
        now = self._now
        if now.made is not None:
            now = _Snapshot(now.made[0], [], 0)
        elif now.seen > 2 * len(now.base) + _LONG:  # nobody asks: changes that undo each other must not pile up
            now = _Snapshot(now.entries(), [], 0)
        now.log.append((dict(put), frozenset(drop), dict(owners or {})))
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


def explained(entry: Entry, events: Events | None) -> dict[str, Any]:
    """What an engine without an index of its own can say of an entry."""
    found: dict[str, Any] = {"where": "everywhere", "conjuncts": len(entry.alternatives())}
    if events is not None:
        found |= {"candidates": events.size, "matches": int(events.mask(entry.filter).sum())}
    return found


def expanded(events: Events, event: Any, number: Any, lookup: Callable[[int], Entry]) -> Matches:
    """Turn pairs of event and entry, ordered by event, into matches of its owners."""
    wanted, rows = _distinct(number)
    entries = [lookup(int(n)) for n in wanted]

    def grades(row: int) -> Callable[[Any], Any] | None:
        filter_ = entries[row].filter
        graded = any(isinstance(node, Group) for node in predicates(filter_.pushed))
        return (lambda chosen: events.degrees(filter_, chosen)) if graded else None

    offsets = np.searchsorted(event, np.arange(events.size + 1))
    owners = names_of(objects([entry.owners for entry in entries]))
    return Matches(events.size, [widened(offsets, rows, owners, wanted, grades)])


def widened(
    offsets: Any, rows: Any, owners: tuple[Any, Any], numbers: Any, grades: Callable[[int], Callable[[Any], Any] | None]
) -> Piece:
    """Matches of rows as matches of whoever owns them; `owners` is from `names_of`."""
    ids, starts = owners
    if starts is None:
        return Piece(offsets, rows, Table(ids, numbers, grades))
    counts = np.diff(starts)
    of_row = np.repeat(np.arange(len(counts)), counts)
    repeats = counts[rows]
    ends = np.append(0, np.cumsum(repeats))
    index = np.repeat(starts[rows] - ends[:-1], repeats) + np.arange(ends[-1])
    return Piece(ends[offsets], index, Table(ids, numbers[of_row], lambda slot: grades(int(of_row[slot]))))


def _distinct(number: Any) -> tuple[Any, Any]:
    """Give the distinct numbers, and for each of all its place among them: by a table, not by a sort."""
    if not len(number):
        return number, number
    present = np.zeros(int(number.max()) + 1, dtype=bool)
    present[number] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[number]
