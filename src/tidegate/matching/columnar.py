"""The default engine: immutable parts of interval bitsets, and a small delta of new filters.

New filters go to the delta. A match scans the delta, or indexes it as a part of its own when the batch is large. When
the delta has grown, a background thread joins it with the parts that are not much larger. The bits of a removed filter
stay in its part and are masked out until the part is rebuilt.

A reader sees one immutable snapshot. A change builds a new snapshot and swaps it in, so a reader sees all of a change
or nothing of it.

Readers take no lock, with one exception: very many filters that are added while no match runs are stored as rows
without bitsets, and the next match builds the bitsets under the lock. Other matches and changes wait for that one.
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
from tidegate.matching.delta_scan import scan_delta
from tidegate.matching.events import EventBatch
from tidegate.matching.index import IndexEntry, Owners, owner_columns, source_of
from tidegate.matching.part import Part, PendingFilter, RowColumns, rows_of
from tidegate.matching.result import Matches, MatchPiece
from tidegate.matching.rows import Axes, describe_row
from tidegate.matching.segment import Spans, clear_rows
from tidegate.model.schema import Schema

MAX_DELTA = 256
"""Filters that the delta may hold before it is joined with the parts."""

MAX_SCANNED_PAIRS = 512
"""(event, filter) pairs of the delta that one match scans in Python; above this, indexing the delta is faster."""

MAX_UNMATCHED_DELTA = 16_384
"""Filters that the delta may hold while no match runs."""

MAX_PARTS = 4
"""Number of parts above which the two smallest are joined, even if one is much larger."""

QUIET_MATCHES = 64
"""Matches without a change after which all parts are joined into one."""


class PartView:
    """A part as one snapshot sees it: removed rows are masked out, and changed owners are replaced."""

    def __init__(
        self, part: Part, alive: Any = None, gone: int = 0, changed: Mapping[int, Owners] | None = None
    ) -> None:
        self.part, self.alive, self.gone, self.changed = part, alive, gone, changed or {}

    @cached_property
    def owners(self) -> tuple[Any, Any]:
        """Names of the owners of all rows, see `index.owner_columns`. Computed by the first reader."""
        return owner_columns(self._current_owners())

    def _current_owners(self) -> Any:
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
    def needs_rebuild(self) -> bool:
        """True if more than half of the rows were removed, or very many owners changed."""
        return 2 * self.gone > len(self.part) or len(self.changed) > 4 * MAX_DELTA

    def without_entry(self, number: int) -> PartView:
        """Return the view without the rows of an entry."""
        rows = self.part.rows(number)
        alive = clear_rows(rows, len(self.part), self.alive)
        view = PartView(self.part, alive, self.gone + len(rows), self.changed)
        if "owners" in self.__dict__:
            view.__dict__["owners"] = self.owners
        return view

    def with_owners(self, number: int, owners: Owners) -> PartView:
        """Return the view with other owners for an entry."""
        return PartView(self.part, self.alive, self.gone, {**self.changed, number: owners})

    def current_rows(self) -> tuple[Spans, RowColumns]:
        """Return the remaining rows with their current owners, as input for a new part."""
        columns = replace(self.part.columns, owners=self._current_owners())
        if self.alive is None:
            return self.part.spans, columns
        rows = self.rows()
        return self.part.spans.select(rows), columns.select(rows)

    def rows(self) -> Any:
        """Return the indices of the remaining rows."""
        if self.alive is None:
            return np.arange(len(self.part))
        bits = np.unpackbits(self.alive.view(np.uint8), bitorder="little")
        return np.flatnonzero(bits[: len(self.part)])

    @property
    def entries(self) -> int:
        """Number of filters that remain."""
        return len(np.unique(self.part.columns.number[self.rows()]))

    def match(self, events: EventBatch) -> MatchPiece:
        """Return the matches of the remaining rows."""
        offsets, rows = self.part.match(events, self.alive)
        return self.part.piece(events, offsets, rows, self.owners)


class IndexSnapshot(NamedTuple):
    """Everything that one match reads."""

    views: tuple[PartView, ...]
    items: list[PendingFilter]
    """The delta: an append-only list shared by snapshots; this snapshot sees the first `size` items."""
    size: int = 0
    gone: frozenset[int] = frozenset()
    """Numbers of delta entries that were removed."""
    changed: Mapping[int, Owners] = MappingProxyType({})
    """New owners of delta entries whose owners changed."""

    @property
    def waiting(self) -> int:
        """Number of filters in the delta."""
        return self.size - len(self.gone)

    @property
    def is_scattered(self) -> bool:
        """True if filters are in more than one place, so that joining helps."""
        return len(self.views) + (self.waiting > 0) > 1

    def extends(self, other: IndexSnapshot) -> bool:
        """True if the delta of `other` starts with this delta and has no removals or owner changes beyond it."""
        same = self.items is other.items and self.gone == other.gone and self.changed == other.changed
        return same and self.size <= other.size

    def delta(self) -> list[PendingFilter]:
        """Return the filters of the delta with their current owners."""
        items = [item for item in self.items[: self.size] if item.number not in self.gone]
        if self.changed:
            items = [i._replace(owners=self.changed[i.number]) if i.number in self.changed else i for i in items]
        return items


@dataclass(frozen=True, slots=True)
class _IndexedDelta:
    """The delta of a snapshot as an indexed part; built when scanning it would take longer."""

    of: IndexSnapshot
    view: PartView


class ColumnarIndex:
    """Matches whole batches against all filters at once.

    `match` may run in any number of threads, `apply` in one at a time.
    """

    def __init__(self, schema: Schema | None, axes: Axes) -> None:
        kernels.warm_up()
        self._schema, self._axes = schema, axes
        self._lock = RLock()
        """Held while the snapshot is swapped: for a moment, except in `_store_unindexed` and `_index`, which also build
        a part. Parts for the background join and for a single match are built without it.
        """
        self._now = IndexSnapshot((), [])
        self._delta_positions: dict[int, int] = {}
        """Position of each entry in the delta, by entry number."""
        self._joining: Thread | None = None
        self._changes_since_join: list[tuple[int, Owners | None]] = []
        """Entries that were removed (None) or got new owners since the background join began; empty if none runs."""
        self._indexed_delta: _IndexedDelta | None = None
        self._scanned_pairs = 0
        """Pairs scanned since the delta was last indexed or changed."""
        self._matches_since_change = 0
        """Matches since the last change."""

    # Changes -------------------------------------------------------------------

    def apply(
        self, put: Mapping[int, IndexEntry], drop: Iterable[int] = (), owners: Mapping[int, Owners] | None = None
    ) -> None:
        """Add, remove and reassign entries in one step. May start a background join."""
        with self._lock:
            now = self._now
            for number in drop:
                now = self._drop(now, number)
            for number, who in owners.items() if owners else ():
                now = self._change_owners(now, number, who)
            if put:
                items = now.items
                for number, entry in put.items():
                    self._delta_positions[number] = len(items)
                    items.append(_item(number, entry))
                now = IndexSnapshot(now.views, items, len(items), now.gone, now.changed)
            self._now = now
            matched, self._matches_since_change, self._scanned_pairs = self._matches_since_change, 0, 0
            if matched:
                if self._is_due(MAX_DELTA):
                    self._join_in_background()
            elif self._joining is None and self._is_due(MAX_UNMATCHED_DELTA):
                self._store_unindexed()

    def _is_due(self, limit: int) -> bool:
        """True if the delta, its removals or a part call for a join."""
        now = self._now
        if now.size > limit or len(now.gone) > 4 * MAX_DELTA or len(now.changed) > 4 * MAX_DELTA:
            return True
        for view in now.views:  # noqa: SIM110 - any() with a generator takes twice the time
            if view.needs_rebuild:
                return True
        return False

    def _drop(self, now: IndexSnapshot, number: int) -> IndexSnapshot:
        if self._joining is not None:
            self._changes_since_join.append((number, None))
        if self._delta_positions.pop(number, None) is not None:
            return now._replace(gone=now.gone | {number})
        views = tuple(view.without_entry(number) if len(view.part.rows(number)) else view for view in now.views)
        return now._replace(views=views)

    def _change_owners(self, now: IndexSnapshot, number: int, owners: Owners) -> IndexSnapshot:
        if self._joining is not None:
            self._changes_since_join.append((number, owners))
        if number in self._delta_positions:
            return now._replace(changed={**now.changed, number: owners})
        views = tuple(view.with_owners(number, owners) if len(view.part.rows(number)) else view for view in now.views)
        return now._replace(views=views)

    # Joining -------------------------------------------------------------------

    def _join_in_background(self) -> None:
        if self._joining is None:
            thread = Thread(target=self._join, name="tidegate-join", daemon=True)
            thread.start()  # it blocks on the lock, which the caller holds
            self._joining = thread

    def _join(self) -> None:
        """Background thread: join parts until no join is due."""
        try:
            while True:
                with self._lock:
                    now = self._now
                    self._changes_since_join.clear()
                    parts = _to_join(now, self._matches_since_change)
                    if parts is None:
                        self._joining = None
                        return
                built = self._build(now, parts)
                with self._lock:
                    self._swap(now, parts, built)
        except BaseException:  # e.g. out of memory; the next change tries again
            with self._lock:
                self._joining = None
                self._changes_since_join.clear()
            raise

    def _store_unindexed(self) -> None:
        """Move the delta into a part without bitsets, so that the parsed filters can be freed.

        The caller holds the lock.
        """
        now = self._now
        parts = [view for view in now.views if view.needs_rebuild]
        self._swap(now, parts, self._build(now, parts, index=False))

    def _index(self) -> IndexSnapshot:
        """Build the bitsets of parts that have none, and return the new snapshot.

        Called by the first match after very many additions. Takes the lock.
        """
        with self._lock:
            now = self._now
            parts = [view for view in now.views if not view.part.is_indexed]
            if parts and self._joining is None:
                self._swap(now, parts, self._build(now, parts))
            return self._now

    def _build(self, now: IndexSnapshot, parts: Sequence[PartView], index: bool = True) -> list[PartView]:
        """Build one part from the delta and some existing parts; return no part if no row remains."""
        rows = [view.current_rows() for view in parts]
        if items := now.delta():
            rows.append(rows_of(items, self._axes))
        rows = [(spans, columns) for spans, columns in rows if spans.rows]
        return [PartView(Part.join(rows, self._schema, index))] if rows else []

    def _swap(self, before: IndexSnapshot, joined_parts: Sequence[PartView], built: list[PartView]) -> None:
        """Replace parts and delta of `before` by the new part, and repeat on it the changes made since.

        The caller holds the lock.
        """
        now = self._now
        replaced_parts = {id(view.part) for view in joined_parts}
        views = (*(view for view in now.views if id(view.part) not in replaced_parts), *built)
        left = [item for item in now.items[before.size : now.size] if item.number not in now.gone]
        self._delta_positions = {item.number: n for n, item in enumerate(left)}
        changed = {number: owners for number, owners in now.changed.items() if number in self._delta_positions}
        after = IndexSnapshot(views, left, len(left), frozenset(), changed)
        for number, owners in self._changes_since_join if built else ():
            if number in self._delta_positions or not len(built[0].part.rows(number)):
                continue
            view = (
                after.views[-1].without_entry(number) if owners is None else after.views[-1].with_owners(number, owners)
            )
            after = after._replace(views=(*after.views[:-1], view))
        self._now = after

    def settle(self) -> None:
        """Block until the background join has ended."""
        while (thread := self._joining) is not None:
            thread.join()

    def close(self) -> None:
        """Block until the background join has ended."""
        self.settle()

    # Matching ------------------------------------------------------------------

    def match(self, events: EventBatch) -> Matches:
        """Return the matches of a batch. Takes no lock unless parts without bitsets wait."""
        now = self._now
        if not all(view.part.is_indexed for view in now.views):
            now = self._index()
        pieces = [view.match(events) for view in now.views]
        if now.waiting:
            pieces += self._match_delta(now, events)
        self._matches_since_change += 1
        due = (self._matches_since_change >= QUIET_MATCHES and now.is_scattered) or len(now.views) > MAX_PARTS
        if due and self._joining is None and self._lock.acquire(blocking=False):
            try:
                self._join_in_background()
            finally:
                self._lock.release()
        return Matches(events.size, pieces)

    def _match_delta(self, now: IndexSnapshot, events: EventBatch) -> list[MatchPiece]:
        indexed = self._indexed_delta
        if indexed is not None and indexed.of.extends(now):
            unindexed = now.items[indexed.of.size : now.size]
        else:
            indexed, unindexed = None, now.delta()
        pairs = len(unindexed) * events.size
        self._scanned_pairs += pairs
        if pairs > MAX_SCANNED_PAIRS or self._scanned_pairs > 8 * MAX_SCANNED_PAIRS:
            self._scanned_pairs = 0
            view = PartView(Part.join([rows_of(now.delta(), self._axes)], self._schema))
            # Without views, so that old parts can be freed.
            indexed = self._indexed_delta = _IndexedDelta(now._replace(views=()), view)
            unindexed = []
            self._adopt(now, view)
        pieces = [] if indexed is None else [indexed.view.match(events)]
        return [*pieces, scan_delta(unindexed, events, self._axes, self._schema)] if unindexed else pieces

    def _adopt(self, of: IndexSnapshot, view: PartView) -> None:
        """Add a part that a match built for itself to the index, if it is large and nothing has changed since."""
        if len(view.part) > MAX_DELTA and self._lock.acquire(blocking=False):
            try:
                if self._now is of and self._joining is None:
                    self._swap(of, (), [view])
            finally:
                self._lock.release()

    # Reports -------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return the engine's name, sizes and memory in bytes."""
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

    def explain(self, number: int, events: EventBatch | None) -> dict[str, Any]:
        """Return where an entry is indexed, and how many of some events it matches."""
        now = self._now
        waiting = next((item for item in now.delta() if item.number == number), None)
        if waiting is not None:
            explanation: dict[str, Any] = {"where": "delta", "waiting": now.waiting}
            explanation["rows"] = [describe_row(row, self._axes) for row in waiting.rows]
            if events is not None:
                explanation["matches"] = int(events.mask(waiting.filter(self._schema)).sum())
            return explanation
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
        self._delta_positions = {item.number: n for n, item in enumerate(items)}
        self._now = IndexSnapshot(tuple(PartView(*view) for view in state["views"]), items, len(items))


def _item(number: int, entry: IndexEntry) -> PendingFilter:
    compiled, owners = entry.compiled, entry.owners
    if compiled.is_simple:  # most filters: only mistyped values need the filter itself
        return PendingFilter(number, compiled.rows, owners, source_of(entry.stored), False)
    whole = compiled.graded or any(row.checks is None for row in compiled.rows)
    return PendingFilter(number, compiled.rows, owners, entry.filter, whole)


def _to_join(now: IndexSnapshot, matched: int) -> list[PartView] | None:
    """Return the parts to join with the delta, or None if no join is due.

    It chooses parts that need a rebuild, and parts at most twice as large as all chosen so far; so a filter is joined
    a few times for each doubling of the index. After `QUIET_MATCHES` matches without a change, all parts are
    chosen.
    """
    if matched >= QUIET_MATCHES:
        return list(now.views) if now.is_scattered else None
    ordered = sorted(now.views, key=len)
    parts = ordered[:2] if len(ordered) > MAX_PARTS else []
    parts += [view for view in ordered if view.needs_rebuild and view not in parts]
    gathered = sum(map(len, parts)) + (now.waiting if now.waiting > MAX_DELTA else 0)
    for view in ordered:
        if view not in parts and len(view) <= 2 * gathered:
            parts.append(view)
            gathered += len(view)
    return parts if parts or now.size > MAX_DELTA else None
