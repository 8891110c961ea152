"""All live filters of one service, and which of them an event matches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import numpy as np

from tidegate.errors import MatcherError, did_you_mean
from tidegate.filters import Filter
from tidegate.matching import events as batches
from tidegate.matching.columnar import ColumnarIndex
from tidegate.matching.counting import CountingIndex
from tidegate.matching.improved_tree import ImprovedTreeIndex
from tidegate.matching.index import Entry, Index
from tidegate.matching.result import Matches
from tidegate.matching.scan import ScanIndex
from tidegate.matching.tree import TreeIndex
from tidegate.model.schema import Schema

ENGINES: dict[str, Callable[[], Index]] = {
    "columnar": ColumnarIndex,
    "scan": ScanIndex,
    "tree": TreeIndex,
    "improved-tree": ImprovedTreeIndex,
    "counting": CountingIndex,
}
PARALLEL: dict[str, Callable[[int], Index]] = {"improved-tree": ImprovedTreeIndex}
"""The engines that can match in several processes."""


class Matcher:
    """An index of subscriptions: add and remove them, match batches of events.

    Equal filters are indexed once, whoever subscribed with them. Changes may come
    from any thread and are seen by the next `match`; `match` takes no lock.

    With `workers`, which just the engine improved-tree has, that many processes match
    each batch, one batch at a time; `close` ends them.

    >>> m = Matcher(Schema({"vid": "string", "speed": "float64"}))
    >>> m.add("fast", Filter("speed > 60"))
    >>> m.add("b17", Filter("vid = 'B17'"))
    >>> m.match([{"vid": "B17", "speed": 61.5}, {"vid": "C2", "speed": 3.0}]).for_event(0)
    ['fast', 'b17']
    """

    def __init__(self, schema: Schema | None = None, *, engine: str = "columnar", workers: int = 1) -> None:
        if engine not in ENGINES:
            hint = did_you_mean(engine, ENGINES) or f"; expected one of {', '.join(ENGINES)}"
            raise MatcherError(f"unknown engine {engine!r}{hint}")
        self.schema, self.engine = schema, engine
        self._index = ENGINES[engine]() if workers == 1 else _parallel(engine, workers)
        self._lock = Lock()
        self._numbers: dict[Filter, int] = {}
        self._entries: dict[int, Entry] = {}
        self._subscriptions: dict[str, int] = {}
        self._next = 0

    def add(self, subscription: str, filter_: Filter | str) -> None:
        """Add a subscription under an id that is not in use."""
        typed = self._typed(filter_)
        with self._lock:
            if subscription in self._subscriptions:
                raise MatcherError(f"subscription {subscription!r} is there already; replace it, or remove it first")
            self._move(subscription, typed)

    def remove(self, subscription: str) -> None:
        """Forget a subscription."""
        with self._lock:
            if subscription not in self._subscriptions:
                raise MatcherError(self._unknown(subscription))
            self._move(subscription, None)

    def replace(self, subscription: str, filter_: Filter | str) -> None:
        """Give a subscription another filter: a match sees the old one or the new one, never none."""
        typed = self._typed(filter_)
        with self._lock:
            if subscription not in self._subscriptions:
                raise MatcherError(self._unknown(subscription))
            self._move(subscription, typed)

    def match(self, batch: Any) -> Matches:
        """Match a `pyarrow.RecordBatch` or a list of dicts against all subscriptions."""
        events = batches.read(batch)
        return _expanded(events, *self._index.match(events))

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, subscription: object) -> bool:
        return subscription in self._subscriptions

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._subscriptions))

    def filter(self, subscription: str) -> Filter:
        """Give the filter of a subscription, typed by the matcher's schema."""
        number = self._subscriptions.get(subscription)
        if number is None:
            raise MatcherError(self._unknown(subscription))
        return self._entries[number].filter

    def describe(self) -> dict[str, Any]:
        """Report the index's shape and memory."""
        return {"subscriptions": len(self), **self._index.describe()}

    def close(self) -> None:
        """End the worker processes, if there are any; the next match starts them again."""
        if isinstance(self._index, ImprovedTreeIndex):
            self._index.close()

    def _typed(self, given: Filter | str) -> Filter:
        if isinstance(given, str):
            typed = Filter(given, self.schema)
        elif self.schema is None or given.schema == self.schema:
            typed = given
        else:
            typed = Filter(given.text, self.schema, given.params, like_star=given.like_star)
        typed.require_evaluable()  # now, not when an event of everybody's comes by
        return typed

    def _move(self, subscription: str, filter_: Filter | None) -> None:
        """Take a subscription from its filter, if it has one, to another, if it gets one, in one step."""
        put: dict[int, Entry] = {}
        drop: set[int] = set()
        old = self._subscriptions.get(subscription)
        new = None if filter_ is None else self._numbers.get(filter_)
        if old is not None and old == new:
            return
        if old is not None:
            entry = self._entries[old]
            left = tuple(owner for owner in entry.owners if owner != subscription)
            put[old] = Entry(entry.filter, left)
            if not left:
                drop.add(old)
        if filter_ is not None:
            if new is None:
                new, self._next = self._next, self._next + 1
                put[new] = Entry(filter_, (subscription,))
            else:
                entry = self._entries[new]
                put[new] = Entry(entry.filter, (*entry.owners, subscription))
        self._index.apply({n: entry for n, entry in put.items() if n not in drop}, drop)
        self._remember(subscription, new, put, drop)

    def _remember(self, subscription: str, number: int | None, put: dict[int, Entry], drop: set[int]) -> None:
        self._entries.update(put)
        for n, entry in put.items():
            self._numbers[entry.filter] = n
        for n in drop:
            del self._numbers[self._entries.pop(n).filter]
        if number is None:
            del self._subscriptions[subscription]
        else:
            self._subscriptions[subscription] = number

    def _unknown(self, subscription: str) -> str:
        return f"no subscription {subscription!r}{did_you_mean(str(subscription), self._subscriptions)}"

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())


def _parallel(engine: str, workers: int) -> Index:
    if not isinstance(workers, int) or workers < 1:
        raise MatcherError(f"workers: expected a whole number from 1, not {workers!r}")
    if engine not in PARALLEL:
        able = " or ".join(map(repr, PARALLEL))
        raise MatcherError(f"engine {engine!r} matches in one process: expected workers=1, not {workers}, or {able}")
    return PARALLEL[engine](workers)


def _distinct(number: Any) -> tuple[Any, Any]:
    """Give the distinct numbers, and for each of all its place among them: by a table, not by a sort."""
    if not len(number):
        return number, number
    present = np.zeros(int(number.max()) + 1, dtype=bool)
    present[number] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[number]


def _expanded(events: batches.Events, event: Any, number: Any, lookup: Callable[[int], Entry]) -> Matches:
    """Turn numbers of entries into subscriptions: most entries have one."""
    wanted, back = _distinct(number)
    entries = [lookup(int(n)) for n in wanted]
    counts = np.fromiter((len(entry.owners) for entry in entries), np.int64, len(entries))
    starts = np.cumsum(counts) - counts
    repeats = counts[back]
    wide = np.repeat(event, repeats)
    within = np.arange(len(wide)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    owner = np.repeat(starts[back], repeats) + within
    ids = [name for entry in entries for name in entry.owners]
    source = [entry.filter for entry in entries for _ in entry.owners]
    return Matches(events.size, wide, owner, ids, lambda n, chosen: events.degrees(source[n], chosen))
