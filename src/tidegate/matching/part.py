"""One immutable part of the columnar index: a segment, and the filter and owners of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tidegate.filters import Filter
from tidegate.filters.render import operand
from tidegate.matching.checks import CHECKED, FILTERED, Checks
from tidegate.matching.events import EventBatch
from tidegate.matching.index import FilterSource, Owners, expand_owners, objects, restore_filter, source_of
from tidegate.matching.result import MatchPiece, pair_keys
from tidegate.matching.rows import MISTYPED, Axes, IndexRow, describe_checks
from tidegate.matching.segment import BLOCK, BitsetSegment, Spans, bits_of_rows
from tidegate.model.schema import Schema


class PendingFilter(NamedTuple):
    """A filter of the delta, not yet in a part."""

    number: int
    rows: tuple[IndexRow, ...]
    owners: Owners
    stored: FilterSource | Filter
    """The filter, or the source it can be restored from."""
    whole: bool
    """True if the filter itself must be evaluated on candidates, so that a part stores the filter, not its source."""

    def filter(self, schema: Schema | None) -> Filter:
        """Return the filter, parsed again if only its source is stored."""
        return self.stored if isinstance(self.stored, Filter) else restore_filter(self.stored, schema)

    @property
    def source(self) -> FilterSource | Filter:
        """What a part stores of the filter."""
        return source_of(self.stored) if isinstance(self.stored, Filter) and not self.whole else self.stored


@dataclass(frozen=True, slots=True)
class RowColumns:
    """What a part stores of each row besides its spans."""

    number: Any
    """Number of the row's entry."""
    owners: Any
    source: Any
    checks: Any
    repeated: Any
    """True if the row's entry has other rows."""

    @classmethod
    def of(cls, items: Sequence[PendingFilter]) -> RowColumns:
        """Return one line for each row of some filters."""
        sizes = [len(item.rows) for item in items]
        number = np.repeat(np.array([item.number for item in items], np.int64), sizes)
        owners = np.repeat(objects([item.owners for item in items]), sizes)
        source = np.repeat(objects([item.source for item in items]), sizes)
        checks = objects([row.checks for item in items for row in item.rows])
        return cls(number, owners, source, checks, np.repeat(np.array(sizes, np.int64) > 1, sizes))

    def select(self, rows: Any) -> RowColumns:
        """Return some of the rows in the given order."""
        return RowColumns(*(column[rows] for column in self._all()))

    @classmethod
    def join(cls, several: Sequence[RowColumns]) -> RowColumns:
        """Return the rows of several one after another."""
        return cls(*(np.concatenate(columns) for columns in zip(*(one._all() for one in several), strict=True)))

    def _all(self) -> tuple[Any, ...]:
        return self.number, self.owners, self.source, self.checks, self.repeated


def _restored(spans: Spans, columns: RowColumns, schema: Schema | None, indexed: bool) -> Part:
    part = Part(spans, columns, schema)
    if indexed:
        part.index()
    return part


def rows_of(items: Sequence[PendingFilter], axes: Axes) -> tuple[Spans, RowColumns]:
    """Return the rows of filters of the delta, as input for a part."""
    return Spans.of([row for item in items for row in item.rows], axes), RowColumns.of(items)


class Part:
    """Some entries, indexed together; immutable."""

    def __init__(self, spans: Spans, columns: RowColumns, schema: Schema | None) -> None:
        self.spans, self.columns, self.schema = spans, columns, schema
        self._has_repeated = bool(columns.repeated.any())

    @classmethod
    def join(cls, several: Sequence[tuple[Spans, RowColumns]], schema: Schema | None, index: bool = True) -> Part:
        """Return a part with rows from several places; with `index=False` the first match builds the bitsets."""
        spans = Spans.join([spans for spans, _ in several]) if len(several) > 1 else several[0][0]
        columns = RowColumns.join([columns for _, columns in several])
        if not index:
            return cls(spans, columns, schema)
        order = spans.clustered()
        part = cls(spans.select(order), columns.select(order), schema)
        part.index()
        return part

    def index(self) -> None:
        """Build the bitsets."""
        _ = self.segment, self.checks, self._by_number

    @property
    def is_indexed(self) -> bool:
        """True if the bitsets have been built."""
        return "segment" in self.__dict__

    @cached_property
    def segment(self) -> BitsetSegment:
        """The bitsets over the rows."""
        return BitsetSegment(self.spans)

    @cached_property
    def checks(self) -> Checks:
        """What remains to be checked for candidates."""
        return Checks(self.columns.checks)

    @cached_property
    def _by_number(self) -> tuple[Any, Any]:
        """Entry numbers in ascending order, and the row of each."""
        order = np.argsort(self.columns.number, kind="stable").astype(np.int32)
        return self.columns.number[order], order

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.spans, self.columns, self.schema, self.is_indexed)

    def __len__(self) -> int:
        return self.spans.rows

    @property
    def nbytes(self) -> int:
        """Memory of the index, without the texts of the filters."""
        own = sum(column.nbytes for column in self.columns._all()) + self.spans.nbytes
        if self.is_indexed:
            own += self.segment.nbytes + self.checks.nbytes + sum(array.nbytes for array in self._by_number)
        return int(own)

    def rows(self, number: int) -> Any:
        """Return the rows of an entry; empty if it is not in this part."""
        numbers, order = self._by_number
        begin, end = np.searchsorted(numbers, [number, number + 1])
        return order[begin:end]

    def codes(self, events: EventBatch) -> Any:
        """Return the code of every event on every axis, one line per event."""
        codes = np.empty((events.size, len(self.segment.axes)), np.int32)
        for j, axis in enumerate(self.segment.axes):
            codes[:, j] = events.codes(axis)
        return codes

    def match(self, events: EventBatch, alive: Any) -> tuple[Any, Any]:
        """Return the rows that match each event, as CSR arrays; of an entry with several rows, one."""
        codes = self.codes(events)
        offsets, rows = self.segment.candidates(codes, alive)
        odd = (codes == MISTYPED).any(axis=1)
        if not len(rows) or (self.checks.is_exact and not self._has_repeated and not odd.any()):
            return offsets, rows
        event = np.repeat(np.arange(events.size), np.diff(offsets))
        kind = self.checks.kind[rows]
        if odd.any():  # spans can't decide about a mistyped value
            kind = np.where(odd[event], FILTERED, kind)
        keep = np.ones(len(rows), dtype=bool)
        checked = np.flatnonzero(kind == CHECKED)
        if len(checked):
            keep[checked] = self.checks.passed(events, event[checked], rows[checked])
        filtered = np.flatnonzero(kind == FILTERED)
        if len(filtered):
            keep[filtered] = self._ask_filters(events, event[filtered], rows[filtered])
        if self._has_repeated:
            keep &= self._first_of_entry(event, rows, keep)
        return np.append(0, np.cumsum(keep))[offsets], rows[keep]

    def _ask_filters(self, events: EventBatch, event: Any, rows: Any) -> Any:
        """Return which (event, row) pairs pass the row's own filter."""
        passed = np.empty(len(rows), dtype=bool)
        order = np.argsort(rows, kind="stable")
        filter_rows, first = np.unique(rows[order], return_index=True)
        for row, begin, end in zip(filter_rows, first, np.append(first[1:], len(rows)), strict=True):
            at = order[begin:end]
            passed[at] = events.mask(self.filter(int(row)), event[at])
        return passed

    def _first_of_entry(self, event: Any, rows: Any, keep: Any) -> Any:
        """Return which pairs are the first of their event and entry."""
        first = np.ones(len(rows), dtype=bool)
        several = np.flatnonzero(self.columns.repeated[rows] & keep)
        key = pair_keys(event[several], self.columns.number[rows[several]])
        first[several] = False
        first[several[np.unique(key, return_index=True)[1]]] = True
        return first

    def filter(self, row: int) -> Filter:
        """Return the filter of a row."""
        source = self.columns.source[row]
        return source if isinstance(source, Filter) else restore_filter(source, self.schema)

    def explain(self, rows: Any, events: EventBatch | None, alive: Any) -> dict[str, Any]:
        """Return how the rows of an entry are indexed, and how many events remain after each step."""
        explanation: dict[str, Any] = {"rows": [self._describe_row(int(row)) for row in rows], "filters": len(self)}
        if events is not None:
            codes, only = self.codes(events), bits_of_rows(rows, self.segment.words)
            explanation["candidates"] = len(self.segment.candidates(codes, only)[1])
            explanation["matches"] = len(self.match(events, only)[1])
            explanation["all_candidates"] = len(self.segment.candidates(codes, alive)[1])
        return explanation

    def _describe_row(self, row: int) -> dict[str, Any]:
        spans = self.spans
        allows: dict[str, list[str]] = {}
        for p in range(spans.first[row], spans.first[row + 1]):
            axis = spans.axes[spans.axis[p]]
            allows.setdefault(operand(axis.path), []).append(axis.shown(int(spans.low[p]), int(spans.high[p])))
        return {"row": row, "block": row // BLOCK, "allows": allows, "asks": describe_checks(self.columns.checks[row])}

    def piece(self, events: EventBatch, offsets: Any, rows: Any, owners: Any) -> MatchPiece:
        """Return matches of rows as matches of the subscriptions that own them."""

        def grades(row: int) -> Callable[[Any], Any] | None:
            source = self.columns.source[row]
            return (lambda chosen: events.degrees(source, chosen)) if isinstance(source, Filter) else None

        return expand_owners(offsets, rows, owners, self.columns.number, grades)
