"""The protocol that every engine implements, and what engines share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning
from tidegate.filters.nodes import Group, Node, predicates
from tidegate.filters.normalize import push_not_inwards, to_dnf
from tidegate.matching.events import EventBatch
from tidegate.matching.result import Matches, MatchPiece, SubscriptionTable
from tidegate.matching.rows import CompiledFilter
from tidegate.model.schema import Schema

FilterSource = str | tuple[str, tuple[Any, ...], bool, bool]
"""The stored form of a filter: its text, or (text, parameters, `like_star`, `strict_params`)."""


def source_of(filter_: Filter | str) -> FilterSource:
    """Return the stored form of a filter. A parsed tree would take thirty times the memory of its text."""
    if isinstance(filter_, str):
        return filter_
    if filter_.params or filter_.like_star or filter_.strict_params:
        return filter_.text, filter_.params, filter_.like_star, filter_.strict_params
    return filter_.text


def restore_filter(source: FilterSource, schema: Schema | None, meaning: Meaning | None = None) -> Filter:
    """Parse a filter again from its source."""
    if isinstance(source, str):
        return Filter(source, schema, semantics=meaning)
    text, params, star, strict = source
    return Filter(text, schema, params, like_star=star, strict_params=strict, semantics=meaning)


Owners = str | tuple[str, ...]
"""The subscriptions that share a filter: one id, or a tuple of ids."""


def owner_names(owners: Owners) -> tuple[str, ...]:
    """Return the owners as a tuple."""
    return (owners,) if isinstance(owners, str) else owners


def as_owners(several: Iterable[str]) -> Owners:
    """Return ids in the form of `Owners`: a single id as a plain string."""
    owners = tuple(several)
    return owners[0] if len(owners) == 1 else owners


def objects(values: list[Any]) -> Any:
    """Return a numpy array of Python objects, which may be tuples."""
    out = np.empty(len(values), object)
    out[:] = values
    return out


def owner_columns(owners: Any) -> tuple[Any, Any]:
    """Return the ids of the owners of all rows, and the offset of each row's owners; None if each row has one."""
    several = np.fromiter((owner.__class__ is tuple for owner in owners), dtype=bool, count=len(owners))
    if not several.any():
        return owners, None
    by_row = [owner_names(owner) for owner in owners]
    starts = np.append(0, np.cumsum(np.fromiter(map(len, by_row), np.int64, len(by_row))))
    return objects([name for several in by_row for name in several]), starts


class IndexEntry(NamedTuple):
    """A filter, its compiled rows, and its owners."""

    stored: Filter | str
    """The filter, or just its text if the filter is simple."""
    compiled: CompiledFilter
    owners: Owners

    @property
    def filter(self) -> Filter:
        """The filter. Must not be called for an entry that stores just a text."""
        assert isinstance(self.stored, Filter)
        return self.stored

    @property
    def is_semantic(self) -> bool:
        """True if the filter has predicates with ~."""
        return isinstance(self.stored, Filter) and self.stored.tree.is_semantic

    def alternatives(self) -> list[tuple[Node, ...]]:
        """Return the conjuncts of the filter as it was written, without conclusions from its schema."""
        return to_dnf(push_not_inwards(self.filter.tree.root))


class Index(Protocol):
    """A set of numbered entries that can be matched against batches of events.

    `apply` is called by one thread at a time; the next `match` sees its changes. `match` may run in any number of
    threads at once. Each engine documents whether a match can block.
    """

    def apply(
        self, put: Mapping[int, IndexEntry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Add, remove and reassign entries in one step: a match sees all of the change or nothing of it."""

    def match(self, events: EventBatch) -> Matches:
        """Return the matches of a batch."""

    def describe(self) -> dict[str, Any]:
        """Return the engine's name, sizes and memory."""

    def explain(self, number: int, events: EventBatch | None) -> dict[str, Any]:
        """Return where an entry is indexed, and how many of some events it matches."""

    def close(self) -> None:
        """Stop threads and processes. A later match may start them again."""


Built = TypeVar("Built")
_Change = tuple[Mapping[int, IndexEntry], frozenset[int], Mapping[int, Owners]]
"""One call of `apply`: entries added, numbers removed, owners changed."""


@dataclass(slots=True)
class _PendingSnapshot(Generic[Built]):
    """Entries at some time, and the changes since. The first reader folds them and builds an index."""

    base: Mapping[int, IndexEntry]
    log: list[_Change]
    """Changes, shared with later snapshots, which append to it."""
    seen: int
    """How many changes of the log belong to this snapshot."""
    built: tuple[Mapping[int, IndexEntry], Built] | None = None

    def entries(self) -> dict[int, IndexEntry]:
        """Return the entries with all changes applied."""
        entries = dict(self.base)
        for put, gone, owners in self.log[: self.seen]:
            entries.update(put)
            for number in gone:
                entries.pop(number, None)
            for number, who in owners.items():
                entries[number] = entries[number]._replace(owners=who)
        return entries


class LazySnapshots(Generic[Built]):
    """The entries of an engine that rebuilds its index after a change, at the next match.

    So ten thousand filters are added in ten thousand short steps and indexed once. Readers take no lock: two concurrent
    readers may both build the same index.
    """

    def __init__(
        self, make: Callable[[Mapping[int, IndexEntry]], Built], entries: Mapping[int, IndexEntry] | None = None
    ) -> None:
        self._make = make
        self._now: _PendingSnapshot[Built] = _PendingSnapshot(entries or {}, [], 0)

    def apply(
        self, put: Mapping[int, IndexEntry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Record a change in one step; builds nothing."""
        now = self._now
        if now.built is not None:
            now = _PendingSnapshot(now.built[0], [], 0)
        elif now.seen > 2 * len(now.base) + _MAX_PENDING_CHANGES:
            # No reader has come: fold the changes, which may cancel each other.
            now = _PendingSnapshot(now.entries(), [], 0)
        now.log.append((dict(put), frozenset(drop), dict(owners or {})))
        self._now = _PendingSnapshot(now.base, now.log, now.seen + 1)

    def now(self) -> tuple[Mapping[int, IndexEntry], Built]:
        """Return the current entries and the index built from them."""
        snapshot = self._now
        if snapshot.built is None:
            entries = snapshot.entries()
            snapshot.built = entries, self._make(entries)
        return snapshot.built

    def __reduce__(self) -> tuple[object, ...]:
        return LazySnapshots, (self._make, self._now.entries())


_MAX_PENDING_CHANGES = 1_000
"""Changes that may wait for a reader, in addition to twice the number of entries."""


def explain_entry(entry: IndexEntry, events: EventBatch | None) -> dict[str, Any]:
    """Return what an engine without an index of its own can say about an entry."""
    explanation: dict[str, Any] = {"where": "everywhere", "conjuncts": len(entry.alternatives())}
    if events is not None:
        explanation |= {"candidates": events.size, "matches": int(events.mask(entry.filter).sum())}
    return explanation


def matches_of_pairs(events: EventBatch, event: Any, number: Any, lookup: Callable[[int], IndexEntry]) -> Matches:
    """Turn (event, entry) pairs, ordered by event, into matches of the entries' owners."""
    numbers, rows = distinct(number)
    entries = [lookup(int(n)) for n in numbers]

    def grades(row: int) -> Callable[[Any], Any] | None:
        filter_ = entries[row].filter
        graded = any(isinstance(node, Group) for node in predicates(filter_.pushed))
        return (lambda chosen: events.degrees(filter_, chosen)) if graded else None

    offsets = np.searchsorted(event, np.arange(events.size + 1))
    owners = owner_columns(objects([entry.owners for entry in entries]))
    return Matches(events.size, [expand_owners(offsets, rows, owners, numbers, grades)])


def expand_owners(
    offsets: Any,
    rows: Any,
    owners: tuple[Any, Any],
    numbers: Any,
    grades: Callable[[int], Callable[[Any], Any] | None],
    degree: Any = None,
) -> MatchPiece:
    """Turn matches of rows into matches of the subscriptions that own them; `owners` comes from `owner_columns`."""
    ids, starts = owners
    if starts is None:
        return MatchPiece(offsets, rows, SubscriptionTable(ids, numbers, grades), degree)
    counts = np.diff(starts)
    of_row = np.repeat(np.arange(len(counts)), counts)
    repeats = counts[rows]
    ends = np.append(0, np.cumsum(repeats))
    index = np.repeat(starts[rows] - ends[:-1], repeats) + np.arange(ends[-1])
    table = SubscriptionTable(ids, numbers[of_row], lambda slot: grades(int(of_row[slot])))
    return MatchPiece(ends[offsets], index, table, None if degree is None else np.repeat(degree, repeats))


def distinct(number: Any) -> tuple[Any, Any]:
    """Return the distinct numbers in ascending order, and the index of each number among them.

    Uses a table in place of a sort; numbers must not be negative.
    """
    if not len(number):
        return number, number
    present = np.zeros(int(number.max()) + 1, dtype=bool)
    present[number] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[number]
