"""All live filters of one service, and which of them an event matches."""

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
from tidegate.matching.events import Events
from tidegate.matching.index import Entry, Index, Owners, Source, made_again, names, owned_by, source_of
from tidegate.matching.meaning import MeaningIndex
from tidegate.matching.meaning_scan import MeaningScan
from tidegate.matching.result import Matches
from tidegate.matching.rows import Axes, Compiled, Row
from tidegate.matching.templates import Templates
from tidegate.model.schema import Schema

_Held = tuple[Hashable, Source, Owners]
"""What the matcher itself keeps of a filter that is in the index: its key, what it can be made from again, its
owners. A plain tuple of plain values, because the garbage collector leaves those alone."""


class Matcher:
    """An index of subscriptions: add and remove them, match batches of events.

    Equal filters are indexed once, whoever subscribed with them. Changes may come
    from any thread and are seen by the next `match`. `match` may run in any number of
    threads and waits for no change, but for the first after very many additions, which
    indexes them: what comes meanwhile waits for it.

    Filters with `~` are matched by what is given as `semantics`, a `Space` or another. `threshold` is the least degree
    of those that name none (else what `semantics` has found good), `themes` are the tags of the service.

    With `workers`, which just the engine improved-tree has, that many processes match
    each batch, one batch at a time; `close` ends them.

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
        self._by_meaning: Index = MeaningScan() if slow else MeaningIndex()
        """The filters with ~."""
        self._crossed = 0
        """Changed by every change of filters with ~, odd during it: whoever matches then may see half of it."""
        self._templates = Templates(self._axes, schema)
        self._lock = Lock()
        self._numbers: dict[Hashable, int] = {}
        """The number of each filter that is in the index, by what makes two filters the same."""
        self._held: dict[int, _Held] = {}
        self._meant: frozenset[int] = frozenset()
        """The numbers of filters with ~."""
        self._subscriptions: dict[str, int] = {}
        self._own: dict[str, Source | Filter] = {}
        """What subscriptions wrote that share a filter with others who wrote it in other words."""
        self._next = 0

    def add(self, subscription: str, filter_: Filter | str) -> None:
        """Add a subscription under an id that is not in use."""
        typed, compiled = self._compiled(filter_)
        with self._lock:
            self._require_new(subscription)
            if compiled.key in self._numbers or compiled.key is typed or not compiled.rows:
                self._move({subscription: (typed, compiled)})
                return
            number = self._next
            self._index.apply({number: Entry(typed, compiled, subscription)})
            self._next = number + 1
            self._held[number] = (compiled.key, source_of(typed), subscription)
            self._numbers[compiled.key] = self._subscriptions[subscription] = number

    def add_all(self, filters: Mapping[str, Filter | str]) -> None:
        """Add many subscriptions in one step: all of them, or none where one is refused."""
        with _no_collection():
            compiled = {subscription: self._compiled(each) for subscription, each in filters.items()}
            with self._lock:
                for subscription in compiled:
                    self._require_new(subscription)
                self._move(compiled)

    def remove(self, subscription: str) -> None:
        """Forget a subscription."""
        with self._lock:
            self._require(subscription)
            self._move({subscription: None})

    def replace(self, subscription: str, filter_: Filter | str) -> None:
        """Give a subscription another filter: a match sees the old one or the new one, never none."""
        typed, compiled = self._compiled(filter_)
        with self._lock:
            self._require(subscription)
            self._move({subscription: (typed, compiled)})

    def set_params(self, subscription: str, params: Sequence[Any]) -> None:
        """Give a subscription's filter other parameters; one bad value changes nothing."""
        self.replace(subscription, self.filter(subscription).with_params(params))

    def match(self, batch: Any) -> Matches:
        """Match events against all subscriptions.

        A `pyarrow.RecordBatch` or table, a list of dicts, or NDJSON as bytes.
        """
        events = batches.read(batch)
        crossed = self._crossed
        found = self._match(events)
        if crossed == self._crossed and not crossed & 1:
            return found
        with self._lock:  # filters with ~ came or went meanwhile
            return self._match(events)

    def _match(self, events: Events) -> Matches:
        found = self._index.match(events)
        return Matches.joined(found, self._by_meaning.match(events)) if self._meant else found

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, subscription: object) -> bool:
        return subscription in self._subscriptions

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._subscriptions))

    def filter(self, subscription: str) -> Filter:
        """Give the filter of a subscription, typed by the matcher's schema."""
        number = self._require(subscription)
        kept = self._own.get(subscription) or self._held[number][1]
        return kept if isinstance(kept, Filter) else made_again(kept, self.schema, self._meaning)

    def describe(self) -> dict[str, Any]:
        """Report the index's shape and memory."""
        found = {"subscriptions": len(self), **self._index.describe()}
        return {**found, "by_meaning": self._by_meaning.describe()} if self._meant else found

    def explain(self, subscription: str, batch: Any = None) -> dict[str, Any]:
        """Say where a subscription's filter sits in the index, and what it makes of some events."""
        number = self._require(subscription)
        shared = [owner for owner in names(self._held[number][2]) if owner != subscription]
        index = self._by_meaning if number in self._meant else self._index
        found = index.explain(number, None if batch is None else batches.read(batch))
        return {"subscription": subscription, "filter": str(self.filter(subscription)), "shared_with": shared, **found}

    def close(self) -> None:
        """Let what goes on in the background end, and worker processes; the next match starts them again."""
        self._index.close()
        self._by_meaning.close()

    def _compiled(self, given: Filter | str) -> tuple[Filter | str, Compiled]:
        if isinstance(given, str):
            known = self._templates.compile(given) if self.engine == "columnar" else None
            if known is not None:
                return given, known
            typed = Filter(given, self.schema)
            self._templates.learn(typed)
        elif self.schema is None or given.schema is self.schema or given.schema == self.schema:
            typed = given
        else:
            typed = Filter(given.text, self.schema, given.params, like_star=given.like_star)
        if typed.tree.is_semantic:
            typed = typed.with_semantics(self._meaning)
            typed.require_evaluable()  # now, not when an event of everybody's comes by
            own = typed.schema if self.schema is None else None
            return typed, Compiled((), (str(typed), typed.like_star, own), True)
        if self.schema is None and typed.schema is not None:
            # Its types are its own: no axis that others share can order its values, so it is always asked.
            return typed, Compiled((Row((), None),), typed, True)
        return typed, self._axes.compile(typed)

    def _move(self, moves: Mapping[str, tuple[Filter | str, Compiled] | None]) -> None:
        """Take subscriptions from their filters, if they have one, to others, if they get one, in one step."""
        put: dict[int, tuple[Filter | str, Compiled]] = {}
        held: dict[int, _Held] = {}
        numbers: dict[Hashable, int] = {}
        moved: dict[str, int | None] = {}
        count = self._next
        for subscription, given in moves.items():
            old = self._subscriptions.get(subscription)
            new = None
            if given is not None:
                key = given[1].key
                new = numbers.get(key, self._numbers.get(key))
                if new is not None and new == old:
                    continue
                if new is None:
                    new, count = count, count + 1
                    numbers[key] = new
                    put[new] = given
                    held[new] = (key, source_of(given[0]), subscription)
                else:
                    key, source, owners = held.get(new) or self._held[new]
                    held[new] = (key, source, (*names(owners), subscription))
            if old is not None:
                key, source, owners = held.get(old) or self._held[old]
                held[old] = (key, source, owned_by(owner for owner in names(owners) if owner != subscription))
            moved[subscription] = new
        drop = [n for n, (_, _, owners) in held.items() if not owners]
        entries = {n: Entry(*put[n], held[n][2]) for n in put}
        changed = {n: owners for n, (_, _, owners) in held.items() if owners and n not in put}
        self._apply(entries, drop, changed)
        self._next = count
        self._remember(held, drop, moved)
        for subscription, given in moves.items():
            self._own.pop(subscription, None)
            if given is not None:
                self._keep_own(subscription, given[0])

    def _apply(self, put: Mapping[int, Entry], drop: Sequence[int], owners: Mapping[int, Owners]) -> None:
        """Change the index, or both of them."""
        meant = {number for number, entry in put.items() if entry.is_meant}
        touched = meant | (self._meant.intersection([*drop, *owners]) if self._meant else set())
        if not touched:
            self._index.apply(put, drop, owners)
            return
        self._meant = self._meant | meant
        self._crossed += 1
        try:
            for index, chosen in ((self._by_meaning, True), (self._index, False)):
                index.apply(
                    {n: entry for n, entry in put.items() if (n in self._meant) is chosen},
                    [n for n in drop if (n in self._meant) is chosen],
                    {n: who for n, who in owners.items() if (n in self._meant) is chosen},
                )
        finally:
            self._meant = self._meant.difference(drop)
            self._crossed += 1

    def _keep_own(self, subscription: str, given: Filter | str) -> None:
        """Keep what a subscription wrote, where its filter can't be made from what is kept for all that share it."""
        if isinstance(given, Filter) and given.schema is not None and self.schema is None:
            self._own[subscription] = given
        elif (source := source_of(given)) != self._held[self._subscriptions[subscription]][1]:
            self._own[subscription] = source

    def _remember(self, held: Mapping[int, _Held], drop: Sequence[int], moved: Mapping[str, int | None]) -> None:
        for number, each in held.items():
            self._held[number] = each
            self._numbers[each[0]] = number
        for number in drop:
            del self._numbers[self._held.pop(number)[0]]
        for subscription, now in moved.items():
            if now is None:
                del self._subscriptions[subscription]
            else:
                self._subscriptions[subscription] = now

    def _require_new(self, subscription: str) -> None:
        if not isinstance(subscription, str):
            raise MatcherError(f"expected a text as the id of a subscription, not {subscription!r}")
        if subscription in self._subscriptions:
            raise MatcherError(f"subscription {subscription!r} is there already; replace it, or remove it first")

    def _require(self, subscription: str) -> int:
        """The number of a subscription's filter; refused where there is no such subscription."""
        number = self._subscriptions.get(subscription)
        if number is None:
            hint = did_you_mean(str(subscription), self._subscriptions)
            raise MatcherError(f"no subscription {subscription!r}{hint}")
        return number

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:  # copies: others may go on changing while this is written
            state = {key: value for key, value in self.__dict__.items() if key != "_lock"}
            copies = {key: dict(value) for key, value in state.items() if isinstance(value, dict)}
            return {**state, **copies, "_index": copy(self._index), "_by_meaning": copy(self._by_meaning)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from going through all filters again and again while many are added."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
