"""The default engine: immutable parts of interval bitsets, and a small delta.

New filters go to the delta. It is scanned, or indexed as a part of its own when
a batch is large; when it has grown, a thread in the background joins it with
the parts that are no larger. A removed filter leaves its bits behind and is
masked out until its part is joined. All that a reader sees is one immutable
snapshot: a change makes a new one and swaps it in, so a reader sees all of a
change or nothing.

Readers wait for nobody, but for one case: very many filters that come while
nobody matches are put away as rows without bitsets, and the first match after
them makes the bitsets under the lock. Other matches, and changes, wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import RLock, Thread
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tidegate.matching import kernels
from tidegate.matching.events import Events
from tidegate.matching.index import Entry, Owners, names_of, source_of
from tidegate.matching.part import Columns, Item, Part, laid_out
from tidegate.matching.result import Matches, Piece
from tidegate.matching.rows import Axes, explained
from tidegate.matching.segment import Spans, without
from tidegate.matching.waiting import scanned
from tidegate.model.schema import Schema

DELTA = 256
"""Filters that may wait before they are joined with the parts."""

SCANNED = 512
"""Pairs of event and filter that one match scans in Python; beyond, indexing the delta pays."""

BULK = 16_384
"""Filters that may wait while nobody matches."""

MANY = 4
"""Parts beyond which the smallest are joined, whatever their sizes."""

QUIET = 64
"""Matches without a change after which all parts are joined into one."""


class View:
    """A part as a snapshot sees it: without the rows that are gone, with owners that have changed."""

    def __init__(
        self, part: Part, alive: Any = None, gone: int = 0, changed: Mapping[int, Owners] | None = None
    ) -> None:
        self.part, self.alive, self.gone, self.changed = part, alive, gone, changed or {}

    @cached_property
    def owners(self) -> tuple[Any, Any]:
        """The names of all rows' owners; made by whichever reader comes first."""
        return names_of(self._owners())

    def _owners(self) -> Any:
        owners = self.part.columns.owners
        if self.changed:
            owners = owners.copy()
            for number, now in self.changed.items():
                for row in self.part.rows(number):
                    owners[row] = now
        return owners

    def __len__(self) -> int:
        return len(self.part) - self.gone

    @property
    def is_worn(self) -> bool:
        """Whether so much has left it, or changed hands in it, that it should be made anew."""
        return 2 * self.gone > len(self.part) or len(self.changed) > 4 * DELTA

    def without(self, number: int) -> View:
        """The view once an entry is dropped."""
        rows = self.part.rows(number)
        alive = without(rows, len(self.part), self.alive)
        made = View(self.part, alive, self.gone + len(rows), self.changed)
        if "owners" in self.__dict__:
            made.__dict__["owners"] = self.owners
        return made

    def owned(self, number: int, owners: Owners) -> View:
        """The view once an entry's owners are others."""
        return View(self.part, self.alive, self.gone, {**self.changed, number: owners})

    def settled(self) -> tuple[Spans, Columns]:
        """The rows that are left, with their owners of now: what goes into a new part."""
        columns = replace(self.part.columns, owners=self._owners())
        if self.alive is None:
            return self.part.spans, columns
        rows = self.rows()
        return self.part.spans.chosen(rows), columns.chosen(rows)

    def rows(self) -> Any:
        """The rows that are left."""
        if self.alive is None:
            return np.arange(len(self.part))
        bits = np.unpackbits(self.alive.view(np.uint8), bitorder="little")
        return np.flatnonzero(bits[: len(self.part)])

    @property
    def entries(self) -> int:
        """How many filters are left in it."""
        return len(np.unique(self.part.columns.number[self.rows()]))

    def match(self, events: Events) -> Piece:
        """The matches of its rows."""
        offsets, rows = self.part.match(events, self.alive)
        return self.part.piece(events, offsets, rows, self.owners)


class Snapshot(NamedTuple):
    """All that a reader sees."""

    views: tuple[View, ...]
    items: list[Item]
    """The delta: a list that only grows, of which this snapshot sees the first so many."""
    size: int = 0
    gone: frozenset[int] = frozenset()
    """Numbers of the delta that were dropped."""
    changed: Mapping[int, Owners] = MappingProxyType({})
    """Owners of entries in the delta that are others now."""

    @property
    def waiting(self) -> int:
        """How many filters are in the delta."""
        return self.size - len(self.gone)

    @property
    def is_scattered(self) -> bool:
        """Whether there is more than one place to look, so that joining all of them helps."""
        return len(self.views) + (self.waiting > 0) > 1

    def like(self, other: Snapshot) -> bool:
        """Whether the delta of another is this one's and perhaps more."""
        same = self.items is other.items and self.gone == other.gone and self.changed == other.changed
        return same and self.size <= other.size

    def delta(self) -> list[Item]:
        """The items that wait."""
        found = [item for item in self.items[: self.size] if item.number not in self.gone]
        if self.changed:
            found = [i._replace(owners=self.changed[i.number]) if i.number in self.changed else i for i in found]
        return found


@dataclass(frozen=True, slots=True)
class _Small:
    """The delta of a snapshot as a part, made when scanning it would take longer."""

    of: Snapshot
    view: View


class ColumnarIndex:
    """Matches whole batches against all filters at once."""

    def __init__(self, schema: Schema | None, axes: Axes) -> None:
        kernels.warm_up()
        self._schema, self._axes = schema, axes
        self._lock = RLock()
        """Held by whoever changes the snapshot: a moment, but for `_lay_out` and `_index`, which build a part
        under it. What is built in the background, or for a match's own use, is built without it."""
        self._now = Snapshot((), [])
        self._places: dict[int, int] = {}
        """Which item of the delta is an entry's."""
        self._joining: Thread | None = None
        self._since: list[tuple[int, Owners | None]] = []
        """Entries that were dropped (None) or got other owners while a part with them was being built in the
        background; empty while nothing is."""
        self._small: _Small | None = None
        self._scans = 0
        """Pairs that were scanned since the delta was last made a part, or changed."""
        self._matched = 0
        """Matches since the last change."""

    # Changes -------------------------------------------------------------------

    def apply(
        self, put: Mapping[int, Entry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Put and drop entries, and change the owners of others, in one step."""
        with self._lock:
            now = self._now
            for number in drop:
                now = self._dropped(now, number)
            for number, who in owners.items() if owners else ():
                now = self._owned(now, number, who)
            if put:
                items = now.items
                for number, entry in put.items():
                    self._places[number] = len(items)
                    items.append(_item(number, entry))
                now = Snapshot(now.views, items, len(items), now.gone, now.changed)
            self._now = now
            matched, self._matched, self._scans = self._matched, 0, 0
            if matched:
                if self._is_due(DELTA):
                    self._join_in_background()
            elif self._joining is None and self._is_due(BULK):
                self._lay_out()

    def _is_due(self, limit: int) -> bool:
        """Whether there is something to join."""
        now = self._now
        if now.size > limit or len(now.gone) > 4 * DELTA or len(now.changed) > 4 * DELTA:
            return True
        for view in now.views:  # noqa: SIM110 - any() with a generator takes twice the time
            if view.is_worn:
                return True
        return False

    def _dropped(self, now: Snapshot, number: int) -> Snapshot:
        if self._joining is not None:
            self._since.append((number, None))
        if self._places.pop(number, None) is not None:
            return now._replace(gone=now.gone | {number})
        views = tuple(view.without(number) if len(view.part.rows(number)) else view for view in now.views)
        return now._replace(views=views)

    def _owned(self, now: Snapshot, number: int, owners: Owners) -> Snapshot:
        if self._joining is not None:
            self._since.append((number, owners))
        if number in self._places:
            return now._replace(changed={**now.changed, number: owners})
        views = tuple(view.owned(number, owners) if len(view.part.rows(number)) else view for view in now.views)
        return now._replace(views=views)

    # Joining -------------------------------------------------------------------

    def _join_in_background(self) -> None:
        if self._joining is None:
            thread = Thread(target=self._join, name="tidegate-join", daemon=True)
            thread.start()  # it waits for the lock, which the caller has
            self._joining = thread

    def _join(self) -> None:
        """Join until there is nothing to join."""
        try:
            while True:
                with self._lock:
                    now = self._now
                    self._since.clear()
                    chosen = _to_join(now, self._matched)
                    if chosen is None:
                        self._joining = None
                        return
                made = self._made(now, chosen)
                with self._lock:
                    self._swap(now, chosen, made)
        except BaseException:  # out of memory: the next change tries again
            with self._lock:
                self._joining = None
                self._since.clear()
            raise

    def _lay_out(self) -> None:
        """Put the delta away as rows that nobody has asked for yet, so that the filters themselves can go."""
        now = self._now
        chosen = [view for view in now.views if view.is_worn]
        self._swap(now, chosen, self._made(now, chosen, index=False))

    def _index(self) -> Snapshot:
        """Index all rows that were put away, for the first match after many filters were added."""
        with self._lock:
            now = self._now
            chosen = [view for view in now.views if not view.part.is_indexed]
            if chosen and self._joining is None:
                self._swap(now, chosen, self._made(now, chosen))
            return self._now

    def _made(self, now: Snapshot, chosen: Sequence[View], index: bool = True) -> list[View]:
        """One part of the delta and some other parts; none where nothing is left."""
        rows = [view.settled() for view in chosen]
        if items := now.delta():
            rows.append(laid_out(items, self._axes))
        rows = [(spans, columns) for spans, columns in rows if spans.rows]
        return [View(Part.joined(rows, self._schema, index))] if rows else []

    def _swap(self, before: Snapshot, joined: Sequence[View], made: list[View]) -> None:
        """Put a new part in the place of what it was made from; what changed meanwhile changes again in it."""
        now = self._now
        taken = {id(view.part) for view in joined}
        views = (*(view for view in now.views if id(view.part) not in taken), *made)
        left = [item for item in now.items[before.size : now.size] if item.number not in now.gone]
        self._places = {item.number: n for n, item in enumerate(left)}
        changed = {number: owners for number, owners in now.changed.items() if number in self._places}
        after = Snapshot(views, left, len(left), frozenset(), changed)
        for number, owners in self._since if made else ():
            if number in self._places or not len(made[0].part.rows(number)):
                continue
            view = after.views[-1].without(number) if owners is None else after.views[-1].owned(number, owners)
            after = after._replace(views=(*after.views[:-1], view))
        self._now = after

    def settle(self) -> None:
        """Wait until what goes on in the background has ended."""
        while (thread := self._joining) is not None:
            thread.join()

    def close(self) -> None:
        """Let the background end."""
        self.settle()

    # Matching ------------------------------------------------------------------

    def match(self, events: Events) -> Matches:
        """Match a batch."""
        now = self._now
        if not all(view.part.is_indexed for view in now.views):
            now = self._index()
        pieces = [view.match(events) for view in now.views]
        if now.waiting:
            pieces += self._match_delta(now, events)
        self._matched += 1
        due = (self._matched >= QUIET and now.is_scattered) or len(now.views) > MANY
        if due and self._joining is None and self._lock.acquire(blocking=False):
            try:
                self._join_in_background()
            finally:
                self._lock.release()
        return Matches(events.size, pieces)

    def _match_delta(self, now: Snapshot, events: Events) -> list[Piece]:
        small = self._small
        if small is not None and small.of.like(now):
            later = now.items[small.of.size : now.size]
        else:
            small, later = None, now.delta()
        pairs = len(later) * events.size
        self._scans += pairs
        if pairs > SCANNED or self._scans > 8 * SCANNED:
            self._scans = 0
            view = View(Part.joined([laid_out(now.delta(), self._axes)], self._schema))
            small = self._small = _Small(now._replace(views=()), view)  # it must not keep old parts alive
            later = []
            self._keep(now, view)
        pieces = [] if small is None else [small.view.match(events)]
        return [*pieces, scanned(later, events, self._axes, self._schema)] if later else pieces

    def _keep(self, of: Snapshot, view: View) -> None:
        """Make a part that was built for a match one of the index's own, if it is worth it and nobody else is at it."""
        if len(view.part) > DELTA and self._lock.acquire(blocking=False):
            try:
                if self._now is of and self._joining is None:
                    self._swap(of, (), [view])
            finally:
                self._lock.release()

    # Reports -------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Report shape and memory."""
        now = self._now
        return {
            "engine": "columnar",
            "filters": now.waiting + sum(view.entries for view in now.views),
            "delta": now.waiting,
            "removed": sum(view.gone for view in now.views),
            "bytes": sum(view.part.nbytes for view in now.views),
            "segments": [
                {
                    "filters": view.entries,
                    "rows": len(view.part),
                    "exact": int((view.part.checks.kind == 0).sum()),
                    "attributes": len(view.part.spans.axes),
                    "bytes": view.part.nbytes,
                }
                for view in now.views
            ],
        }

    def explain(self, number: int, events: Events | None) -> dict[str, Any]:
        """Say where an entry sits, and what matching some events by it takes."""
        now = self._now
        waiting = next((item for item in now.delta() if item.number == number), None)
        if waiting is not None:
            found: dict[str, Any] = {"where": "delta", "waiting": now.waiting}
            found["rows"] = [explained(row, self._axes) for row in waiting.rows]
            if events is not None:
                found["matches"] = int(events.mask(waiting.filter(self._schema)).sum())
            return found
        for place, view in enumerate(now.views):
            rows = view.part.rows(number)
            if len(rows):
                return {"where": "segment", "segment": place, **view.part.explain(rows, events, view.alive)}
        return {"where": "nowhere", "why": "no event can match it", "rows": []}

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            now = self._now
            items = now.delta()
            views = [(view.part, view.alive, view.gone, view.changed) for view in now.views]
            return {"schema": self._schema, "axes": self._axes, "items": items, "views": views}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["schema"], state["axes"])  # type: ignore[misc]
        items = state["items"]
        self._places = {item.number: n for n, item in enumerate(items)}
        self._now = Snapshot(tuple(View(*view) for view in state["views"]), items, len(items))


def _item(number: int, entry: Entry) -> Item:
    compiled, owners = entry.compiled, entry.owners
    if compiled.is_simple:  # most: nothing is ever put to such a filter but an odd value
        return Item(number, compiled.rows, owners, source_of(entry.kept), False)
    whole = compiled.graded or any(row.checks is None for row in compiled.rows)
    return Item(number, compiled.rows, owners, entry.filter, whole)


def _to_join(now: Snapshot, matched: int) -> list[View] | None:
    """The parts to join with the delta; None: nothing is to be done.

    Those that are half gone, and those no larger than twice what is gathered: so
    a filter is joined a few times for each doubling of the index. When nothing
    has changed for long, everything.
    """
    if matched >= QUIET:
        return list(now.views) if now.is_scattered else None
    ordered = sorted(now.views, key=len)
    chosen = ordered[:2] if len(ordered) > MANY else []
    chosen += [view for view in ordered if view.is_worn and view not in chosen]
    gathered = sum(map(len, chosen)) + (now.waiting if now.waiting > DELTA else 0)
    for view in ordered:
        if view not in chosen and len(view) <= 2 * gathered:
            chosen.append(view)
            gathered += len(view)
    return chosen if chosen or now.size > DELTA else None
