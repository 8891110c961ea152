"""A segment and whose rows it has: one immutable part of the columnar index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tidegate.filters import Filter
from tidegate.filters.render import operand
from tidegate.matching.checks import CHECKED, FILTERED, Checks
from tidegate.matching.events import Events
from tidegate.matching.index import Source, made_again, source_of
from tidegate.matching.result import Piece, Table
from tidegate.matching.rows import ODD, Axes, Row, asked
from tidegate.matching.segment import BLOCK, Segment, Spans, alone
from tidegate.model.schema import Schema

Owners = str | tuple[str, ...]
"""Who subscribed with a filter: mostly one."""


class Item(NamedTuple):
    """A filter on its way into a part."""

    number: int
    rows: tuple[Row, ...]
    owners: Owners
    filter: Filter
    whole: bool
    """Whether matches are put to the filter itself; else only what it can be made from again is kept."""

    @property
    def source(self) -> Source | Filter:
        """What a part keeps of the filter."""
        return self.filter if self.whole else source_of(self.filter)


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
        owners = np.repeat(_objects([item.owners for item in items]), sizes)
        source = np.repeat(_objects([item.source for item in items]), sizes)
        checks = _objects([row.checks for item in items for row in item.rows])
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


def laid_out(items: Sequence[Item], axes: Axes) -> tuple[Spans, Columns]:
    """The rows of items that were just added."""
    return Spans.of([row for item in items for row in item.rows], axes), Columns.of(items)


def _objects(values: list[Any]) -> Any:
    out = np.empty(len(values), object)
    out[:] = values
    return out


class Part:
    """Some entries, indexed together; never changes."""

    def __init__(self, spans: Spans, columns: Columns, schema: Schema | None) -> None:
        self.segment, self.columns, self.schema = Segment(spans), columns, schema
        self.checks = Checks(columns.checks)
        self._by_number = np.argsort(columns.number, kind="stable")
        self._numbers = columns.number[self._by_number]
        self._has_repeated = bool(columns.repeated.any())

    @classmethod
    def joined(cls, several: Sequence[tuple[Spans, Columns]], schema: Schema | None) -> Part:
        """Index rows from several places together."""
        spans = Spans.joined([each for each, _ in several]).thinned() if len(several) > 1 else several[0][0]
        order = spans.clustered()
        return cls(spans.chosen(order), Columns.joined([each for _, each in several]).chosen(order), schema)

    def __reduce__(self) -> tuple[object, ...]:
        return Part, (self.segment.spans, self.columns, self.schema)

    def __len__(self) -> int:
        return self.segment.rows

    @property
    def nbytes(self) -> int:
        """Memory of the index; the texts of the filters are not in it."""
        columns = sum(column.nbytes for column in self.columns._all())
        return int(self.segment.nbytes + self.checks.nbytes + columns + 2 * self._numbers.nbytes)

    def rows(self, number: int) -> Any:
        """The rows of an entry; none where it is not here."""
        begin, end = np.searchsorted(self._numbers, [number, number + 1])
        return self._by_number[begin:end]

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
        key = (event[several] << 40) | self.columns.number[rows[several]]
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
            only = alone(rows, self.segment.words)
            found["candidates"] = len(self.segment.candidates(self.codes(events), only)[1])
            found["matches"] = len(self.match(events, only)[1])
            found["all_candidates"] = len(self.segment.candidates(self.codes(events), alive)[1])
        return found

    def _explained(self, row: int) -> dict[str, Any]:
        spans = self.segment.spans
        allows: dict[str, list[str]] = {}
        for p in range(spans.first[row], spans.first[row + 1]):
            axis = spans.axes[spans.axis[p]]
            allows.setdefault(operand(axis.path), []).append(axis.shown(int(spans.low[p]), int(spans.high[p])))
        return {"row": row, "block": row // BLOCK, "allows": allows, "asks": asked(self.columns.checks[row])}

    def piece(self, events: Events, offsets: Any, rows: Any, owners: Any) -> Piece:
        """Matches of rows as matches of whoever owns them."""
        number = self.columns.number

        def grades(row: int) -> Callable[[Any], Any] | None:
            source = self.columns.source[row]
            return (lambda chosen: events.degrees(source, chosen)) if isinstance(source, Filter) else None

        names, starts = owners
        if starts is None:
            return Piece(offsets, rows, Table(names, number, grades))
        counts = np.diff(starts)
        of_row = np.repeat(np.arange(len(counts)), counts)
        repeats = counts[rows]
        ends = np.append(0, np.cumsum(repeats))
        index = np.repeat(starts[rows] - ends[:-1], repeats) + np.arange(ends[-1])
        return Piece(ends[offsets], index, Table(names, number[of_row], lambda slot: grades(int(of_row[slot]))))


def names_of(owners: Any) -> tuple[Any, Any]:
    """The names of rows' owners, and where those of each row begin; None where each has one."""
    several = np.fromiter((owner.__class__ is tuple for owner in owners), dtype=bool, count=len(owners))
    if not several.any():
        return owners, None
    names = [owner if owner.__class__ is tuple else (owner,) for owner in owners]
    starts = np.append(0, np.cumsum(np.fromiter(map(len, names), np.int64, len(names))))
    return _objects([name for each in names for name in each]), starts
