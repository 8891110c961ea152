"""What matched: (event, subscription) pairs as arrays, never as Python tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tidegate.matching import kernels

if TYPE_CHECKING:
    from tidegate.filters.thematic import Meant

Pairs = tuple[Any, Any]
"""Two arrays of equal length: event index, subscription id."""

NUMBER_BITS = 40
"""Bits of a filter's number in a key: a million million filters; 23 are left for the events of a batch."""


def keys(event: Any, number: Any) -> Any:
    """Pairs of event and filter as one number each, in the order of the event and then of the filter.

    To sort them takes a tenth of the time of a sort by two columns.
    """
    return (event << NUMBER_BITS) | number


def unkeyed(key: Any) -> Pairs:
    """Event and filter of each key."""
    return key >> NUMBER_BITS, key & ((1 << NUMBER_BITS) - 1)


@dataclass(frozen=True, slots=True)
class Table:
    """Subscriptions that a result points into: id, when it came, and how its matches are graded."""

    ids: Any
    numbers: Any
    """Ascending in the order in which filters were added."""
    grades: Callable[[int], Callable[[Any], Any] | None]
    """For a subscription how well chosen events fit; None where every match fits fully."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Piece:
    """Matches of one part of an index, as CSR: event e has `index[offsets[e]:offsets[e + 1]]` of a table."""

    offsets: Any
    index: Any
    table: Table


@dataclass(frozen=True, slots=True)
class Meanings:
    """How well events fit filters with ~, and by which mappings."""

    number: Any
    """Of each pair the filter, ..."""
    event: Any
    """the event, ..."""
    degree: Any
    """and how well it fits. Ordered by event, then by filter."""
    mappings: Callable[[int, Any, int], list[Meant]]
    """Of a filter, by its number, and an event, as a dict, the best so many."""

    def grade(self, number: int) -> Callable[[Any], Any]:
        """How well chosen events fit a filter, each of which does."""
        of_it = np.flatnonzero(self.number == number)
        event, degree = self.event[of_it], self.degree[of_it]
        return lambda chosen: degree[np.searchsorted(event, chosen)]

    def over(self, events: Rows) -> Callable[[int, int, int], list[Meant]]:
        """The mappings of an event by its place in a batch."""
        return lambda number, index, k: self.mappings(number, events.event(index), k)


class Rows(Protocol):
    """Events that can be had one by one."""

    def event(self, index: int) -> Any:
        """One event as a dict."""


class Matches:
    """The outcome of matching one batch.

    It is of one moment: later changes to the matcher do not change it.
    """

    def __init__(
        self,
        events: int,
        pieces: Sequence[Piece],
        mappings: Callable[[int, int, int], list[Meant]] | None = None,
    ) -> None:
        self.events = events
        """How many events the batch had."""
        self._pieces = [piece for piece in pieces if len(piece.index)]
        self._mappings = mappings
        """Of a filter, by its number, and an event, by its place, the best so many; None: no filter has any."""

    def __len__(self) -> int:
        return sum(len(piece.index) for piece in self._pieces)

    def by_event(self) -> tuple[Any, Any, Any]:
        """Give CSR arrays: event e has the subscriptions `ids[index[offsets[e]:offsets[e + 1]]]`, in no order."""
        return self._whole.offsets, self._whole.index, self._whole.table.ids

    def by_subscription(self) -> tuple[Any, Any, Any]:
        """Give the same transposed: subscription `ids[n]` gets the events `events[offsets[n]:offsets[n + 1]]`.

        Only subscriptions that get something are listed.
        """
        whole = self._whole
        begins, events = kernels.transpose(whole.offsets, whole.index, len(whole.table))
        some = np.flatnonzero(np.diff(begins))
        first: dict[str, int] = {}
        slots = [first.setdefault(name, slot) for name, slot in zip(whole.table.ids[some], some.tolist(), strict=True)]
        if len(first) < len(some):  # a filter of several rows has a slot for each
            same = np.arange(len(whole.table))
            same[some] = slots
            begins, events = kernels.transpose(whole.offsets, same[whole.index], len(whole.table))
            some = np.flatnonzero(np.diff(begins))
        return whole.table.ids[some], np.append(begins[some], len(events)), events

    def pairs(self) -> Pairs:
        """Give two arrays of equal length: event index, subscription id; by event, then as they were added."""
        event, slot = self._ordered
        return event, self._whole.table.ids[slot]

    def for_event(self, index: int) -> list[str]:
        """Give the ids of the subscriptions that an event matches, as they were added."""
        index = self._place(index)
        found: list[tuple[int, str]] = []
        for piece in self._pieces:
            slots = piece.index[piece.offsets[index] : piece.offsets[index + 1]]
            found += zip(piece.table.numbers[slots].tolist(), piece.table.ids[slots].tolist(), strict=True)
        found.sort(key=lambda pair: pair[0])
        return [name for _, name in found]

    def _place(self, index: int) -> int:
        if not -self.events <= index < self.events:
            raise IndexError(f"expected an event from 0 to {self.events - 1}, not {index}")
        return index % self.events

    def mappings(self, index: int, subscription: str, k: int = 1) -> list[Meant]:
        """Give the `k` best mappings by which an event matches a filter with ~, the best first.

        There are none where it does not match, nor of a filter without ~. The first is what the degree is of; the
        others may be below the threshold.
        """
        index = self._place(index)
        for piece in self._pieces if self._mappings is not None else ():
            slots = piece.index[piece.offsets[index] : piece.offsets[index + 1]]
            for slot in slots[piece.table.ids[slots] == subscription].tolist():
                assert self._mappings is not None
                return self._mappings(int(piece.table.numbers[slot]), index, k)
        return []

    @classmethod
    def joined(cls, one: Matches, other: Matches) -> Matches:
        """What two indexes found in the same batch."""
        return cls(one.events, [*one._pieces, *other._pieces], other._mappings)

    def for_subscription(self, subscription: str) -> Any:
        """Give the indexes of the events that a subscription gets."""
        found = [np.empty(0, np.int64)]
        for piece in self._pieces:
            for slot in np.flatnonzero(piece.table.ids == subscription):
                at = np.flatnonzero(piece.index == slot)
                found.append(np.searchsorted(piece.offsets, at, side="right") - 1)
        return np.sort(np.concatenate(found))

    def degrees(self) -> Any:
        """Say how well each pair fits, 0 to 1, parallel to `pairs`."""
        event, slot = self._ordered
        found = np.ones(len(slot))
        for each in np.unique(slot).tolist():
            grade = self._whole.table.grades(each)
            if grade is not None:
                of_it = slot == each
                found[of_it] = grade(event[of_it])
        return found

    @cached_property
    def _whole(self) -> Piece:
        """All pieces as one."""
        if len(self._pieces) == 1:
            return self._pieces[0]
        tables = [piece.table for piece in self._pieces]
        starts = np.cumsum([0, *map(len, tables)])

        def grades(slot: int) -> Callable[[Any], Any] | None:
            of = int(np.searchsorted(starts, slot, side="right")) - 1
            return tables[of].grades(slot - int(starts[of]))

        none = np.empty(0, np.int64)
        ids = np.concatenate([np.empty(0, object), *(table.ids for table in tables)])
        table = Table(ids, np.concatenate([none, *(table.numbers for table in tables)]), grades)
        event = np.concatenate([none, *map(_events, self._pieces)])
        index = np.concatenate([none, *(p.index + start for p, start in zip(self._pieces, starts, strict=False))])
        order = np.argsort(event, kind="stable")
        return Piece(np.searchsorted(event[order], np.arange(self.events + 1)), index[order], table)

    @cached_property
    def _ordered(self) -> tuple[Any, Any]:
        """Event and slot of every pair, by event and then by when the filter came."""
        whole = self._whole
        event = _events(whole)
        order = np.argsort(keys(event, whole.table.numbers[whole.index]), kind="stable")
        return event[order], whole.index[order]


def _events(piece: Piece) -> Any:
    """The event of every pair."""
    return np.repeat(np.arange(len(piece.offsets) - 1), np.diff(piece.offsets))
