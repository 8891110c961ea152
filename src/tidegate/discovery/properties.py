"""The properties of all services, asked by filters: columns in parts, made when they are first needed.

A change makes one part's columns anew, some thousands of services, and not all. A part
whose services disagree about a property's type is asked service by service.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.filters import Filter

PART = 4_096
"""Services in a part."""

_FEW = 5
"""Fewer services than these are asked one by one: columns are asked as a whole."""
_MANY = 128
"""For fewer services than these columns are not made, only asked where they are there."""

_NOTHING: Mapping[str, Any] = {}


class Properties:
    """Properties by place."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._uses: dict[str, int] = {}

    def names(self) -> Mapping[str, int]:
        """All properties, with how many services have each."""
        return self._uses

    def get(self, place: int) -> Mapping[str, Any]:
        """The properties of a service."""
        return self._parts[place // PART].rows[place % PART]

    def put(self, place: int, properties: Mapping[str, Any]) -> None:
        """Put properties at a place, in the stead of what was there; none: it is left."""
        while place // PART >= len(self._parts):
            self._parts.append(_Part())
        part = self._parts[place // PART]
        for name in part.rows[place % PART]:
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name]
        for name in properties:
            self._uses[name] = self._uses.get(name, 0) + 1
        part.rows[place % PART] = properties
        part.size = max(part.size, place % PART + 1)
        part.columns = None

    def ask(self, filter_: Filter, places: Any) -> tuple[Any, Any]:
        """Say for each of some places, ascending, whether it matches a filter, and how well it fits."""
        matches, degrees = np.zeros(len(places), bool), np.zeros(len(places))
        ends = np.searchsorted(places, [n * PART for n in range(len(self._parts) + 1)])
        for n, part in enumerate(self._parts):
            chosen = slice(ends[n], ends[n + 1])
            rows = places[chosen] - n * PART
            if len(rows):
                matches[chosen], degrees[chosen] = part.ask(filter_, rows)
        return matches, degrees


class _Part:
    """Some services' properties, and their columns."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = [_NOTHING] * PART
        self.size = 0
        """The rows that were ever taken."""
        self.columns: pa.RecordBatch | bool | None = None
        """False: they can't be columns; None: not known yet."""

    def ask(self, filter_: Filter, rows: Any) -> tuple[Any, Any]:
        if self.columns is None and len(rows) >= _MANY:
            self.columns = self._made()
        if self.columns is None or self.columns is False or len(rows) < _FEW:
            chosen = [self.rows[n] for n in rows.tolist()]
            return (
                np.fromiter((filter_.matches(row) for row in chosen), bool, len(chosen)),
                np.fromiter((filter_.degree(row) for row in chosen), np.float64, len(chosen)),
            )
        matches, degrees = filter_.judged(self.columns)
        return matches[rows], degrees[rows]

    def _made(self) -> pa.RecordBatch | bool:
        rows = self.rows[: self.size]
        names = dict.fromkeys(name for row in rows for name in row)
        # A batch has a length only if it has a column.
        columns = {"_": pa.nulls(len(rows))}
        try:
            columns |= {name: pa.array([row.get(name) for row in rows]) for name in names}
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError):
            return False
        return pa.RecordBatch.from_pydict(columns)
