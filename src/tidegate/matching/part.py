"""A segment and whose rows it has: one immutable part of the columnar index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tidegate.filters import Filter
from tidegate.filters.render import operand
from tidegate.matching.checks import CHECKED, FILTERED, Checks
from tidegate.matching.events import Events
from tidegate.matching.index import Owners, Source, made_again, objects, source_of, widened
from tidegate.matching.result import Piece, keys
from tidegate.matching.rows import ODD, Axes, Row, asked
from tidegate.matching.segment import BLOCK, Segment, Spans, alone
from tidegate.model.schema import Schema


class Item(NamedTuple):
    """A filter on its way into a part."""

    number: int
    rows: tuple[Row, ...]
    owners: Owners
    kept: Source | Filter
    """The filter, or what it can be made from again."""
    whole: bool
    """Whether matches are put to the filter itself, so that a part keeps it."""

    def filter(self, schema: Schema | None) -> Filter:
        """The filter."""
        return self.kept if isinstance(self.kept, Filter) else made_again(self.kept, schema)

    @property
    def source(self) -> Source | Filter:
        """What a part keeps of the filter."""
        return source_of(self.kept) if isinstance(self.kept, Filter) and not self.whole else self.kept


@dataclass(frozen=True, slots=True)
class Columns:
    """What a part knows of each row beside its spans."""

    number: Any
    """The number of its entry."""
    owners: Any
    source: Any
    checks: Any
    repeated: Any
    """Whether its entry has other rows."""

    @classmethod
    def of(cls, items: Sequence[Item]) -> Columns:
        """Lay out items, a line for each of their rows."""
        sizes = [len(item.rows) for item in items]
        number = np.repeat(np.array([item.number for item in items], np.int64), sizes)
        owners = np.repeat(objects([item.owners for item in items]), sizes)
        source = np.repeat(objects([item.source for item in items]), sizes)
        checks = objects([row.checks for item in items for row in item.rows])
        return cls(number, owners, source, checks, np.repeat(np.array(sizes, np.int64) > 1, sizes))

    def chosen(self, rows: Any) -> Columns:
        """Some of the rows, in the order given."""
        return Columns(*(column[rows] for column in self._all()))

    @classmethod
    def joined(cls, several: Sequence[Columns]) -> Columns:
        """The rows of several, one after another."""
        return cls(*(np.concatenate(each) for each in zip(*(one._all() for one in several), strict=True)))

    def _all(self) -> tuple[Any, ...]:
        return self.number, self.owners, self.source, self.checks, self.repeated


def _restored(spans: Spans, columns: Columns, schema: Schema | None, indexed: bool) -> Part:
    made = Part(spans, columns, schema)
    if indexed:
        made.index()
    return made


def laid_out(items: Sequence[Item], axes: Axes) -> tuple[Spans, Columns]:
    """The rows of items that were just added."""
    return Spans.of([row for item in items for row in item.rows], axes), Columns.of(items)


class Part:
    """Some entries, indexed together; never changes."""

    def __init__(self, spans: Spans, columns: Columns, schema: Schema | None) -> None:
        self.spans, self.columns, self.schema = spans, columns, schema
        self._has_repeated = bool(columns.repeated.any())

    @classmethod
    def joined(cls, several: Sequence[tuple[Spans, Columns]], schema: Schema | None, index: bool = True) -> Part:
        """Put rows from several places together, and index them unless nobody has asked yet."""
        spans = Spans.joined([each for each, _ in several]) if len(several) > 1 else several[0][0]
        columns = Columns.joined([each for _, each in several])
        if not index:
            return cls(spans, columns, schema)
        order = spans.clustered()
        made = cls(spans.chosen(order), columns.chosen(order), schema)
        made.index()
        return made

    def index(self) -> None:
        """Make the bitsets."""
        _ = self.segment, self.checks, self._by_number

    @property
    def is_indexed(self) -> bool:
        """Whether the bitsets are made."""
        return "segment" in self.__dict__

    @cached_property
    def segment(self) -> Segment:
        """The bitsets over the rows."""
        return Segment(self.spans)

    @cached_property
    def checks(self) -> Checks:
        """What spans leave to ask of the rows."""
        return Checks(self.columns.checks)

    @cached_property
    def _by_number(self) -> tuple[Any, Any]:
        """The numbers in order, and the row of each."""
        order = np.argsort(self.columns.number, kind="stable").astype(np.int32)
        return self.columns.number[order], order

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.spans, self.columns, self.schema, self.is_indexed)

    def __len__(self) -> int:
        return self.spans.rows

    @property
    def nbytes(self) -> int:
        """Memory of the index; the texts of the filters are not in it."""
        own = sum(column.nbytes for column in self.columns._all()) + self.spans.nbytes
        if self.is_indexed:
            own += self.segment.nbytes + self.checks.nbytes + sum(array.nbytes for array in self._by_number)
        return int(own)

    def rows(self, number: int) -> Any:
        """The rows of an entry; none where it is not here."""
        numbers, order = self._by_number
        begin, end = np.searchsorted(numbers, [number, number + 1])
        return order[begin:end]

    def codes(self, events: Events) -> Any:
        """Every event's code on every axis."""
        codes = np.empty((events.size, len(self.segment.axes)), np.int32)
        for j, axis in enumerate(self.segment.axes):
            codes[:, j] = events.codes(axis)
        return codes

    def match(self, events: Events, alive: Any) -> tuple[Any, Any]:
        """Give the rows that match each event, as CSR; of an entry with several rows one."""
        codes = self.codes(events)
        offsets, rows = self.segment.candidates(codes, alive)
        odd = (codes == ODD).any(axis=1)
        if not len(rows) or (self.checks.is_exact and not self._has_repeated and not odd.any()):
            return offsets, rows
        event = np.repeat(np.arange(events.size), np.diff(offsets))
        kind = self.checks.kind[rows]
        if odd.any():  # spans say nothing of a value that its type does not hold
            kind = np.where(odd[event], FILTERED, kind)
        keep = np.ones(len(rows), dtype=bool)
        checked = np.flatnonzero(kind == CHECKED)
        if len(checked):
            keep[checked] = self.checks.passed(events, event[checked], rows[checked])
        asked = np.flatnonzero(kind == FILTERED)
        if len(asked):
            keep[asked] = self._asked(events, event[asked], rows[asked])
        if self._has_repeated:
            keep &= self._first_of_entry(event, rows, keep)
        return np.append(0, np.cumsum(keep))[offsets], rows[keep]

    def _asked(self, events: Events, event: Any, rows: Any) -> Any:
        """Put events to the filters themselves."""
        found = np.empty(len(rows), dtype=bool)
        order = np.argsort(rows, kind="stable")
        wanted, first = np.unique(rows[order], return_index=True)
        for row, begin, end in zip(wanted, first, np.append(first[1:], len(rows)), strict=True):
            at = order[begin:end]
            found[at] = events.mask(self.filter(int(row)), event[at])
        return found

    def _first_of_entry(self, event: Any, rows: Any, keep: Any) -> Any:
        """Say which rows are the first of their entry that an event matches."""
        first = np.ones(len(rows), dtype=bool)
        several = np.flatnonzero(self.columns.repeated[rows] & keep)
        key = keys(event[several], self.columns.number[rows[several]])
        first[several] = False
        first[several[np.unique(key, return_index=True)[1]]] = True
        return first

    def filter(self, row: int) -> Filter:
        """The filter of a row."""
        source = self.columns.source[row]
        return source if isinstance(source, Filter) else made_again(source, self.schema)

    def explain(self, rows: Any, events: Events | None, alive: Any) -> dict[str, Any]:
        """Say how the rows of an entry are indexed, and how many events they take up at each step."""
        found: dict[str, Any] = {"rows": [self._explained(int(row)) for row in rows], "filters": len(self)}
        if events is not None:
            codes, only = self.codes(events), alone(rows, self.segment.words)
            found["candidates"] = len(self.segment.candidates(codes, only)[1])
            found["matches"] = len(self.match(events, only)[1])
            found["all_candidates"] = len(self.segment.candidates(codes, alive)[1])
        return found

    def _explained(self, row: int) -> dict[str, Any]:
        spans = self.spans
        allows: dict[str, list[str]] = {}
        for p in range(spans.first[row], spans.first[row + 1]):
            axis = spans.axes[spans.axis[p]]
            allows.setdefault(operand(axis.path), []).append(axis.shown(int(spans.low[p]), int(spans.high[p])))
        return {"row": row, "block": row // BLOCK, "allows": allows, "asks": asked(self.columns.checks[row])}

    def piece(self, events: Events, offsets: Any, rows: Any, owners: Any) -> Piece:
        """Matches of rows as matches of whoever owns them."""

        def grades(row: int) -> Callable[[Any], Any] | None:
            source = self.columns.source[row]
            return (lambda chosen: events.degrees(source, chosen)) if isinstance(source, Filter) else None

        return widened(offsets, rows, owners, self.columns.number, grades)
