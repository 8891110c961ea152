"""The index of all live filters of one service."""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from threading import Lock
from typing import Any

from tidegate.errors import MatcherError, did_you_mean
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning, Semantics
from tidegate.matching import events as batches
from tidegate.matching.engines import build_index
from tidegate.matching.events import EventBatch
from tidegate.matching.index import (
    FilterSource,
    Index,
    IndexEntry,
    Owners,
    as_owners,
    owner_names,
    restore_filter,
    source_of,
)
from tidegate.matching.meaning_index import MeaningIndex
from tidegate.matching.meaning_scan import MeaningScan
from tidegate.matching.result import Matches
from tidegate.matching.rows import Axes, CompiledFilter, IndexRow
from tidegate.matching.templates import Templates
from tidegate.model.schema import Schema

_StoredFilter = tuple[Hashable, FilterSource, Owners]
"""What the matcher stores of an indexed filter: its key, its source, its owners. A plain tuple of plain values, which
the garbage collector does not track.
"""


class Matcher:
    """An index of subscriptions: add and remove them, match batches of events. Thread-safe.

    Equal filters are indexed once, with several owners. The next `match` sees a change. `match` takes no lock, with two
    exceptions: the first match after very many additions indexes them, and other calls wait for it; and a match during
    which filters with ~ change is repeated under the lock.

    Filters with `~` are evaluated by `semantics`, a `Space` or another `Semantics`. `threshold` is the minimum degree
    for filters that name none (default: the threshold of `semantics`), `themes` are the tags of the service.

    `workers` is for the engine improved-tree only: each batch is matched by that many processes, one batch at a time;
    `close` ends them.

    Raises `MatcherError` for an unknown engine, a wrong number of workers, or a duplicate or unknown subscription.

    >>> m = Matcher(Schema({"vid": "string", "speed": "float64"}))
    >>> m.add("fast", Filter("speed > 60"))
    >>> m.add("b17", Filter("vid = 'B17'"))
    >>> m.match([{"vid": "B17", "speed": 61.5}, {"vid": "C2", "speed": 3.0}]).for_event(0)
    ['fast', 'b17']
    """

    def __init__(
        self,
        schema: Schema | None = None,
        *,
        engine: str = "columnar",
        workers: int = 1,
        semantics: Semantics | Meaning | None = None,
        threshold: float | None = None,
        themes: Iterable[str] = (),
    ) -> None:
        self.schema, self.engine = schema, engine
        self._axes = Axes()
        self._index = build_index(engine, schema, self._axes, workers)
        self._meaning = Meaning.of(semantics, threshold, themes)
        slow = engine == "scan" or self._meaning is None
        self._semantic_index: Index = MeaningScan() if slow else MeaningIndex()
        """Index of the filters with ~."""
        self._semantic_changes = 0
        """Counter of changes to filters with ~; odd while one is in progress, when a match could see half of it."""
        self._templates = Templates(self._axes, schema)
        self._lock = Lock()
        self._numbers: dict[Hashable, int] = {}
        """Number of each indexed filter, by its key; filters with equal keys are equal."""
        self._filters: dict[int, _StoredFilter] = {}
        self._semantic_numbers: frozenset[int] = frozenset()
        """Numbers of the filters with ~."""
        self._subscriptions: dict[str, int] = {}
        self._own_sources: dict[str, FilterSource | Filter] = {}
        """Sources of subscriptions that share a filter with others but wrote it differently."""
        self._next = 0

    def add(self, subscription: str, filter_: Filter | str) -> None:
        """Add a subscription. Raises `MatcherError` if the id is in use, `FilterError` if the filter is refused."""
        typed, compiled = self._compile(filter_)
        with self._lock:
            self._require_new(subscription)
            if compiled.key in self._numbers or compiled.key is typed or not compiled.rows:
                self._move({subscription: (typed, compiled)})
                return
            number = self._next
            self._index.apply({number: IndexEntry(typed, compiled, subscription)})
            self._next = number + 1
            self._filters[number] = (compiled.key, source_of(typed), subscription)
            self._numbers[compiled.key] = self._subscriptions[subscription] = number

    def add_all(self, filters: Mapping[str, Filter | str]) -> None:
        """Add many subscriptions in one step: all of them, or none if one is refused. Raises as `add`."""
        with _garbage_collection_paused():
            compiled = {subscription: self._compile(filter_) for subscription, filter_ in filters.items()}
            with self._lock:
                for subscription in compiled:
                    self._require_new(subscription)
                self._move(compiled)

    def remove(self, subscription: str) -> None:
        """Remove a subscription. Raises `MatcherError` if there is none of this id."""
        with self._lock:
            self._filter_number(subscription)
            self._move({subscription: None})

    def replace(self, subscription: str, filter_: Filter | str) -> None:
        """Give a subscription another filter; a match sees the old or the new filter, never neither."""
        typed, compiled = self._compile(filter_)
        with self._lock:
            self._filter_number(subscription)
            self._move({subscription: (typed, compiled)})

    def set_params(self, subscription: str, params: Sequence[Any]) -> None:
        """Change the parameters of a subscription's filter. If one value is refused, nothing changes."""
        self.replace(subscription, self.filter(subscription).with_params(params))

    def match(self, batch: Any) -> Matches:
        """Match events against all subscriptions.

        `batch` is a `pyarrow.RecordBatch` or table, a list of dicts, or NDJSON bytes. Raises `EventError` for anything
        else.
        """
        events = batches.read_batch(batch)
        changes_before = self._semantic_changes
        matches = self._match(events)
        if changes_before == self._semantic_changes and not changes_before & 1:
            return matches
        with self._lock:  # filters with ~ changed during the match
            return self._match(events)

    def _match(self, events: EventBatch) -> Matches:
        matches = self._index.match(events)
        return Matches.join(matches, self._semantic_index.match(events)) if self._semantic_numbers else matches

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, subscription: object) -> bool:
        return subscription in self._subscriptions

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._subscriptions))

    def filter(self, subscription: str) -> Filter:
        """Return the filter of a subscription, typed by the matcher's schema.

        Raises `MatcherError` if there is no such subscription.
        """
        number = self._filter_number(subscription)
        stored = self._own_sources.get(subscription) or self._filters[number][1]
        return stored if isinstance(stored, Filter) else restore_filter(stored, self.schema, self._meaning)

    def describe(self) -> dict[str, Any]:
        """Return the index's sizes and memory."""
        description = {"subscriptions": len(self), **self._index.describe()}
        return {**description, "by_meaning": self._semantic_index.describe()} if self._semantic_numbers else description

    def explain(self, subscription: str, batch: Any = None) -> dict[str, Any]:
        """Return where a subscription's filter is indexed, which subscriptions share it, and how many events match.

        Raises `MatcherError` if there is no such subscription, `EventError` if the batch can't be read.
        """
        number = self._filter_number(subscription)
        shared = [owner for owner in owner_names(self._filters[number][2]) if owner != subscription]
        index = self._semantic_index if number in self._semantic_numbers else self._index
        explanation = index.explain(number, None if batch is None else batches.read_batch(batch))
        return {
            "subscription": subscription,
            "filter": str(self.filter(subscription)),
            "shared_with": shared,
            **explanation,
        }

    def close(self) -> None:
        """Stop background threads and worker processes. The next match starts them again."""
        self._index.close()
        self._semantic_index.close()

    def _compile(self, filter_: Filter | str) -> tuple[Filter | str, CompiledFilter]:
        """Return a filter, typed by the matcher's schema, and its compiled rows."""
        if isinstance(filter_, str):
            from_template = self._templates.compile(filter_) if self.engine == "columnar" else None
            if from_template is not None:
                return filter_, from_template
            typed = Filter(filter_, self.schema)
            self._templates.learn(typed)
        elif self.schema is None or filter_.schema is self.schema or filter_.schema == self.schema:
            typed = filter_
        else:
            typed = Filter(filter_.text, self.schema, filter_.params, like_star=filter_.like_star)
        if typed.tree.is_semantic:
            typed = typed.with_semantics(self._meaning)
            typed.require_evaluable()  # refuse it now, not during a match of all filters
            own = typed.schema if self.schema is None else None
            return typed, CompiledFilter((), (str(typed), typed.like_star, own), True)
        if self.schema is None and typed.schema is not None:
            # Its types are its own, so no shared axis can order its values: evaluate it on every event.
            return typed, CompiledFilter((IndexRow((), None),), typed, True)
        return typed, self._axes.compile(typed)

    def _move(self, moves: Mapping[str, tuple[Filter | str, CompiledFilter] | None]) -> None:
        """Move subscriptions to other filters in one step; None removes a subscription. The caller holds the lock."""
        put: dict[int, tuple[Filter | str, CompiledFilter]] = {}
        changed_filters: dict[int, _StoredFilter] = {}
        numbers: dict[Hashable, int] = {}
        moved: dict[str, int | None] = {}
        count = self._next
        for subscription, target in moves.items():
            old = self._subscriptions.get(subscription)
            new = None
            if target is not None:
                key = target[1].key
                new = numbers.get(key, self._numbers.get(key))
                if new is not None and new == old:
                    continue
                if new is None:
                    new, count = count, count + 1
                    numbers[key] = new
                    put[new] = target
                    changed_filters[new] = (key, source_of(target[0]), subscription)
                else:
                    key, source, owners = changed_filters.get(new) or self._filters[new]
                    changed_filters[new] = (key, source, (*owner_names(owners), subscription))
            if old is not None:
                key, source, owners = changed_filters.get(old) or self._filters[old]
                changed_filters[old] = (
                    key,
                    source,
                    as_owners(owner for owner in owner_names(owners) if owner != subscription),
                )
            moved[subscription] = new
        drop = [n for n, (_, _, owners) in changed_filters.items() if not owners]
        entries = {n: IndexEntry(*put[n], changed_filters[n][2]) for n in put}
        changed = {n: owners for n, (_, _, owners) in changed_filters.items() if owners and n not in put}
        self._apply(entries, drop, changed)
        self._next = count
        self._commit(changed_filters, drop, moved)
        for subscription, target in moves.items():
            self._own_sources.pop(subscription, None)
            if target is not None:
                self._store_own_source(subscription, target[0])

    def _apply(self, put: Mapping[int, IndexEntry], drop: Sequence[int], owners: Mapping[int, Owners]) -> None:
        """Change the index, and the index of filters with ~ if the change concerns it."""
        semantic = {number for number, entry in put.items() if entry.is_semantic}
        touched = semantic | (
            self._semantic_numbers.intersection([*drop, *owners]) if self._semantic_numbers else set()
        )
        if not touched:
            self._index.apply(put, drop, owners)
            return
        self._semantic_numbers = self._semantic_numbers | semantic
        self._semantic_changes += 1
        try:
            for index, chosen in ((self._semantic_index, True), (self._index, False)):
                index.apply(
                    {n: entry for n, entry in put.items() if (n in self._semantic_numbers) is chosen},
                    [n for n in drop if (n in self._semantic_numbers) is chosen],
                    {n: who for n, who in owners.items() if (n in self._semantic_numbers) is chosen},
                )
        finally:
            self._semantic_numbers = self._semantic_numbers.difference(drop)
            self._semantic_changes += 1

    def _store_own_source(self, subscription: str, filter_: Filter | str) -> None:
        """Store a subscription's own source if it differs from the shared source of its filter."""
        if isinstance(filter_, Filter) and filter_.schema is not None and self.schema is None:
            self._own_sources[subscription] = filter_
        elif (source := source_of(filter_)) != self._filters[self._subscriptions[subscription]][1]:
            self._own_sources[subscription] = source

    def _commit(
        self, changed_filters: Mapping[int, _StoredFilter], drop: Sequence[int], moved: Mapping[str, int | None]
    ) -> None:
        for number, stored in changed_filters.items():
            self._filters[number] = stored
            self._numbers[stored[0]] = number
        for number in drop:
            del self._numbers[self._filters.pop(number)[0]]
        for subscription, now in moved.items():
            if now is None:
                del self._subscriptions[subscription]
            else:
                self._subscriptions[subscription] = now

    def _require_new(self, subscription: str) -> None:
        if not isinstance(subscription, str):
            raise MatcherError(f"expected a string as the id of a subscription, not {subscription!r}")
        if subscription in self._subscriptions:
            raise MatcherError(f"subscription {subscription!r} already exists; replace it, or remove it first")

    def _filter_number(self, subscription: str) -> int:
        """Return the number of a subscription's filter. Raises `MatcherError` if there is no such subscription."""
        number = self._subscriptions.get(subscription)
        if number is None:
            hint = did_you_mean(str(subscription), self._subscriptions)
            raise MatcherError(f"no subscription {subscription!r}{hint}")
        return number

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:  # copies, because other threads may change these while pickle writes them
            state = {key: value for key, value in self.__dict__.items() if key != "_lock"}
            copies = {key: dict(value) for key, value in state.items() if isinstance(value, dict)}
            return {**state, **copies, "_index": copy(self._index), "_semantic_index": copy(self._semantic_index)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """Pause the garbage collector, which would traverse all filters again and again while many are added."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
