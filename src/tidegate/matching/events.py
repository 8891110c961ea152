"""A batch of events as the engines read it: Arrow, or dicts as they came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tidegate.errors import EventError, Violation
from tidegate.filters import Filter
from tidegate.filters.columns import Column, distinct, in_one_piece, masks, path_array, read_column
from tidegate.filters.evaluate import matcher
from tidegate.filters.nodes import Node, Path
from tidegate.filters.sets import DOMAINS, Domain, domain_of
from tidegate.filters.values import is_missing, plain, raw_reader, reader
from tidegate.matching.segment import Attribute, Ladder


class Events(Protocol):
    """What an engine asks of a batch."""

    size: int

    def mask(self, filter_: Filter, chosen: Any = None) -> Any:
        """Say which of the chosen events (indexes; all) match a filter."""

    def degrees(self, filter_: Filter, chosen: Any) -> Any:
        """Say how well the chosen events fit a filter."""

    def holds(self, node: Node, chosen: Any = None) -> Any:
        """Say for which of the chosen events (indexes; all) a tree without `Not` is true."""

    def slots(self, attribute: Attribute) -> tuple[Any, Any, Any, Any]:
        """Give checkpoint, first and last toggle for each event, and which events only a scan can judge."""


def read(batch: Any) -> Events:
    """Take a record batch, a table or a list of dicts."""
    batch = in_one_piece(batch)
    if isinstance(batch, pa.RecordBatch):
        return ArrowEvents(batch)
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        for n, event in enumerate(batch):
            if not isinstance(event, Mapping):
                raise EventError([Violation(f"event {n}", f"expected a dict of attributes, not {event!r:.60}")])
        return DictEvents(batch)
    shown = type(batch).__name__
    raise EventError([Violation("batch", f"expected a pyarrow.RecordBatch or a list of dicts, not {shown}")])


class DictEvents:
    """Events one by one: each value is looked up as Python's own."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows, self.size = rows, len(rows)

    def mask(self, filter_: Filter, chosen: Any = None) -> Any:
        """Say which of the chosen events match a filter."""
        rows = self.rows if chosen is None else [self.rows[n] for n in chosen]
        return np.fromiter((filter_.matches(row) for row in rows), dtype=bool, count=len(rows))

    def degrees(self, filter_: Filter, chosen: Any) -> Any:
        """Say how well the chosen events fit a filter."""
        return np.fromiter((filter_.degree(self.rows[n]) for n in chosen), dtype=np.float64, count=len(chosen))

    def holds(self, node: Node, chosen: Any = None) -> Any:
        """Say for which of the chosen events a tree without `Not` is true."""
        test = matcher(node)
        rows = self.rows if chosen is None else [self.rows[n] for n in chosen]
        return np.fromiter((test(row) is True for row in rows), dtype=bool, count=len(rows))

    def slots(self, attribute: Attribute) -> tuple[Any, Any, Any, Any]:
        """Look up each value among the toggles of an attribute."""
        at, begin, end = (np.zeros(self.size, np.int64) for _ in range(3))
        odd = np.zeros(self.size, dtype=bool)
        raw, convert = raw_reader(attribute.path), reader(attribute.path)
        for n, row in enumerate(self.rows):
            value = raw(row)
            if is_missing(value):
                at[n] = attribute.null
                continue
            kind, comparable = _kind_of(convert(row), attribute.path)
            if kind is None:
                odd[n] = attribute.path.type is not None
                at[n] = attribute.unfit
            elif (ladder := attribute.ladders.get(kind)) is None:
                at[n] = attribute.unfit
            else:
                at[n], begin[n], end[n] = ladder.slots(ladder.rank(comparable))
        return at, begin, end, odd


_CLASSES = {bool: "bool", int: "int", float: "float", str: "string"}


def _kind_of(value: Any, path: Path) -> tuple[str | None, Any]:
    """The kind of a value that was read, and the value as a ladder compares it; None: only a scan can say."""
    if path.type is None:
        value = plain(value)
        kind = _CLASSES.get(value.__class__)
        if kind is None and isinstance(value, int):  # a moment
            return "time", int(value)
        return kind, int(value) if kind == "bool" else value
    domain = domain_of(path.type)
    fits = {"float": (float, int), "string": (str,), "bool": (bool,)}.get(domain.kind, (int,))
    if value.__class__ not in fits or not domain.holds(value):
        return None, None
    return domain.kind, int(value) if domain.kind == "bool" else value


class ArrowEvents:
    """Events as Arrow columns: each attribute is read once, numbers without a copy."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch, self.size = batch, batch.num_rows
        self._mask = masks(batch)
        self._columns: dict[Path, tuple[pa.Array, Column] | None] = {}
        """The attributes that were read already: every segment asks for the same ones."""

    def mask(self, filter_: Filter, chosen: Any = None) -> Any:
        """Say which of the chosen events match a filter."""
        return filter_.mask(self.batch if chosen is None else self.batch.take(pa.array(chosen)))

    def degrees(self, filter_: Filter, chosen: Any) -> Any:
        """Say how well the chosen events fit a filter."""
        return filter_.degrees(self.batch.take(pa.array(chosen)))

    def holds(self, node: Node, chosen: Any = None) -> Any:
        """Say for which of the chosen events a tree without `Not` is true."""
        found = self._mask(node)  # to compare a whole column takes less time than to gather some rows of it
        return found if chosen is None else found[chosen]

    def slots(self, attribute: Attribute) -> tuple[Any, Any, Any, Any]:
        """Rank a whole column among the toggles of an attribute."""
        nothing = np.zeros(self.size, np.int64)
        read = self._column(attribute.path)
        if read is None:
            return np.full(self.size, attribute.null), nothing, nothing, nothing.astype(bool)
        array, column = read
        typed = attribute.path.type
        domain = domain_of(typed) if typed is not None else DOMAINS[column.kind]
        present = np.asarray(array.is_valid()) if array.null_count else np.ones(self.size, dtype=bool)
        if column.kind == "float":
            present &= column.values == column.values
        fits = column.kind in _FITTING.get(domain.kind, ())
        known = _known(column, domain, present) if fits else nothing.astype(bool)
        # Of a typed attribute every value that does not fit is odd; without a type it compares with nothing.
        odd = present & ~known if typed is not None else nothing.astype(bool)
        ladder = attribute.ladders.get(domain.kind) if fits else None
        if ladder is None:
            return np.where(present, attribute.unfit, attribute.null), nothing, nothing, odd
        at, begin, end = ladder.slots(_ranks(ladder, column))
        return np.where(known, at, attribute.null), np.where(known, begin, 0), np.where(known, end, 0), odd

    def _column(self, path: Path) -> tuple[pa.Array, Column] | None:
        if path not in self._columns:
            array = path_array(self.batch, path)
            self._columns[path] = None if array is None else (array, read_column(array, path.type))
        return self._columns[path]


def _known(column: Column, domain: Domain, present: Any) -> Any:
    """Which values of a column lie in a domain."""
    known = present if column.valid is None else present & column.valid
    if domain.low is None or domain.high is None or column.kind == "bool":
        return known
    return known & (column.values >= domain.low) & (column.values <= domain.high)


def _ranks(ladder: Ladder, column: Column) -> Any:
    """How many toggles happen up to each value; texts are looked up once each."""
    if ladder.kind != "string":
        return ladder.ranks(column.values)
    codes, texts = distinct(column.values)
    by_text = np.fromiter(map(ladder.rank, texts), dtype=np.int64, count=len(texts))
    return np.append(by_text, 0)[codes]


_FITTING = {
    "bool": ("bool",),
    "int": ("int",),
    "float": ("float",),
    "string": ("string",),
    "time": ("int", "time"),
    "enum": ("int",),
}
"""Which columns a ladder of a kind can rank."""
