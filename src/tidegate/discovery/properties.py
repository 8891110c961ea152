"""The properties of all services, evaluated by filters as Arrow columns that are built on first use.

The columns are split into parts of some thousands of services, so that a change rebuilds one part only. A part whose
services have different types for one property is evaluated service by service.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.filters import Filter

PART = 4_096
"""Services per part."""

_MIN_COLUMNAR = 5
"""Fewer services are evaluated one by one, because a filter evaluates columns as a whole."""
_MIN_TO_BUILD = 128
"""For fewer services no columns are built; existing ones are used."""

_NOTHING: Mapping[str, Any] = {}


class Properties:
    """Properties by slot."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._uses: dict[str, int] = {}

    def names(self) -> Mapping[str, int]:
        """Return all property names with the number of services that have each."""
        return self._uses

    def get(self, slot: int) -> Mapping[str, Any]:
        """Return the properties of the service in a slot."""
        return self._parts[slot // PART].rows[slot % PART]

    def put(self, slot: int, properties: Mapping[str, Any]) -> None:
        """Replace the properties of a slot; an empty mapping clears it."""
        while slot // PART >= len(self._parts):
            self._parts.append(_Part())
        part = self._parts[slot // PART]
        for name in part.rows[slot % PART]:
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name]
        for name in properties:
            self._uses[name] = self._uses.get(name, 0) + 1
        part.rows[slot % PART] = properties
        part.size = max(part.size, slot % PART + 1)
        part.columns = None

    def ask(self, filter_: Filter, slots: Any) -> tuple[Any, Any]:
        """Return which of some slots, ascending, match a filter, and the degree of each."""
        matches, degrees = np.zeros(len(slots), bool), np.zeros(len(slots))
        ends = np.searchsorted(slots, [n * PART for n in range(len(self._parts) + 1)])
        for n, part in enumerate(self._parts):
            chosen = slice(ends[n], ends[n + 1])
            rows = slots[chosen] - n * PART
            if len(rows):
                matches[chosen], degrees[chosen] = part.ask(filter_, rows)
        return matches, degrees


class _Part:
    """The properties of some services, and their columns."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = [_NOTHING] * PART
        self.size = 0
        """Number of rows up to the last one that was ever used."""
        self.columns: pa.RecordBatch | bool | None = None
        """False: the rows can't be columns; None: not built yet."""

    def ask(self, filter_: Filter, rows: Any) -> tuple[Any, Any]:
        if self.columns is None and len(rows) >= _MIN_TO_BUILD:
            self.columns = self._build_columns()
        if self.columns is None or self.columns is False or len(rows) < _MIN_COLUMNAR:
            chosen = [self.rows[n] for n in rows.tolist()]
            return (
                np.fromiter((filter_.matches(row) for row in chosen), bool, len(chosen)),
                np.fromiter((filter_.degree(row) for row in chosen), np.float64, len(chosen)),
            )
        matches, degrees = filter_.judged(self.columns)
        return matches[rows], degrees[rows]

    def _build_columns(self) -> pa.RecordBatch | bool:
        rows = self.rows[: self.size]
        names = dict.fromkeys(name for row in rows for name in row)
        # A batch has a length only if it has a column.
        columns = {"_": pa.nulls(len(rows))}
        try:
            for name in names:
                values = [row.get(name) for row in rows]
                kinds = set(map(type, values)) - {type(None)}
                if bool in kinds and len(kinds) > 1:  # Arrow would convert a truth value among floats to 1.0
                    return False
                columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError):
            return False
        return pa.RecordBatch.from_pydict(columns)
