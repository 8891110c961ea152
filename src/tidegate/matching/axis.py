"""An attribute as a sequence of codes: the rank of a value among all thresholds.

Two values with the same code lie in the same spans of a segment. The codes of an axis are ordered as

    null | incomparable | mistyped | kind 1: rank 0, 1, ... n | kind 2: rank 0, 1, ...

where the rank is how many thresholds of that kind a value has reached. An axis with a type has one kind, one without a
type has five. A `mistyped` value is not of the attribute's type: every row allows it, and the filters themselves
decide.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.filters.nodes import Path
from tidegate.filters.sets import domain_of
from tidegate.filters.values import LARGEST_EXACT
from tidegate.matching import kernels
from tidegate.matching.rows import BOOL, FLOAT, INCOMPARABLE, INT, KINDS, MISTYPED, NULL, STRING, TIME, span_text

_FIRST = 3
"""First code of an ordered kind; the codes before it are null, incomparable and mistyped."""

GRID_CELLS = 4_096
"""Cells that the range of the thresholds is divided into."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Sorted thresholds, and a table that speeds up the search among them; see `kernels.ranks`."""

    thresholds: Any
    table: Any
    low: float
    scale: float
    below: int
    """Number of thresholds below the grid, which every value has reached."""

    @classmethod
    def of(cls, thresholds: Any, below: int = 0) -> Grid:
        """Divide the range of the finite thresholds into cells; one cell if there is no range."""
        finite = thresholds[np.isfinite(thresholds)].astype(np.float64)
        low, high = (float(finite[0]), float(finite[-1])) if len(finite) else (0.0, 0.0)
        width = high - low
        # No cell is narrower than the distance of two floats there: integers beyond 2^53 are rounded.
        finest = 4 * math.ulp(max(abs(low), abs(high)))
        cells = int(min(GRID_CELLS, 4 * len(thresholds), width / finest)) if width < math.inf else 0
        if cells < 1:
            return cls(thresholds, np.array([0, len(thresholds)], np.int64), low, 0.0, below)
        edges = low + width * (np.arange(cells + 1) / cells)
        table = np.searchsorted(thresholds.astype(np.float64), edges, side="right")
        table[0], table[-1] = 0, len(thresholds)
        return cls(thresholds, table.astype(np.int64), low, cells / width, below)

    def ranks(self, values: Any) -> Any:
        """Return how many thresholds each value has reached."""
        return self.below + kernels.ranks(self.thresholds, self.table, self.low, self.scale, values)


class NumberThresholds:
    """The thresholds of one kind of number, ascending and distinct."""

    def __init__(self, values: Any) -> None:
        self.values = values
        """float64, int64, or Python integers if 64 bits do not hold all of them."""

    @classmethod
    def of(cls, kind: int, values: Any) -> NumberThresholds:
        """Build from thresholds in any order."""
        if kind == FLOAT:
            return cls(np.unique(values.astype(np.float64)))
        try:
            return cls(np.unique(values.astype(np.int64)))
        except OverflowError:
            return cls(np.unique(values))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """Memory of the thresholds."""
        return int(self.values.nbytes)

    @classmethod
    def join(cls, several: Sequence[NumberThresholds]) -> NumberThresholds:
        """Return the thresholds of several."""
        values = [ladder.values for ladder in several]
        if len({ladder.dtype for ladder in values}) > 1:
            values = [ladder.astype(object) for ladder in values]
        return cls(np.unique(np.concatenate(values)))

    def places(self, other: NumberThresholds) -> Any:
        """Return the ranks of the thresholds of `other`; all of them are thresholds here too."""
        return self._places(other.values)

    def select(self, used: Any) -> NumberThresholds:
        """Return some of the thresholds."""
        return NumberThresholds(self.values[used[: len(self)]])

    def rank_of(self, values: Any) -> Any:
        """Return the ranks of thresholds that rows have; all of them are thresholds here too."""
        return self._places(values.astype(self.values.dtype))

    def _places(self, values: Any) -> Any:
        if len(values) < GRID_CELLS or values.dtype != self.values.dtype or values.dtype.kind == "O":
            return np.searchsorted(self.values, values, side="right")
        return self.ranks(values)

    def rank(self, value: Any) -> int:
        """Return how many thresholds a value has reached."""
        if value.__class__ is int and not -LARGEST_EXACT <= value <= LARGEST_EXACT:
            return bisect_right(self.values, value, key=_exact)  # numpy would compare integers as floats
        return int(self.values.searchsorted(value, "right"))

    def ranks(self, values: Any) -> Any:
        """Return how many thresholds each number of an array has reached; exact for every width."""
        if values.dtype.kind == "O":
            return np.fromiter(map(self.rank, values), np.int64, len(values))
        if values.dtype.kind == "f":
            return self._floats.ranks(values.astype(np.float64))  # a copy, because Arrow's memory is read-only
        if values.dtype == np.uint64:
            return self._unsigned.ranks(values.copy())
        return self._signed.ranks(values.astype(np.int64))

    @cached_property
    def _floats(self) -> Grid:
        return Grid.of(self.values.astype(np.float64))

    @cached_property
    def _signed(self) -> Grid:
        return self._within(-(2**63), 2**63 - 1, np.int64)

    @cached_property
    def _unsigned(self) -> Grid:
        return self._within(0, 2**64 - 1, np.uint64)

    def _within(self, least: int, most: int, dtype: Any) -> Grid:
        """Return the thresholds inside a number type; those below it are always reached, those above never."""
        if self.values.dtype == np.int64 and dtype == np.int64:
            return Grid.of(self.values)
        exact = self.values.astype(object)
        low, high = np.searchsorted(exact, least, side="left"), np.searchsorted(exact, most, side="right")
        return Grid.of(exact[low:high].astype(dtype), int(low))

    def threshold(self, n: int) -> Any:
        """Return one threshold, for display."""
        return _exact(self.values[n])


class TextThresholds:
    """The thresholds of text as UTF-8, whose byte order is the order of the characters."""

    def __init__(self, values: pa.Array) -> None:
        self.values = values

    @classmethod
    def of(cls, _: int, values: Any) -> TextThresholds:
        """Build from thresholds in any order."""
        return cls(_sorted(pa.array([as_bytes(text) for text in values], pa.large_binary()).unique()))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """Memory of the thresholds."""
        return int(self.values.nbytes)

    @classmethod
    def join(cls, several: Sequence[TextThresholds]) -> TextThresholds:
        """Return the thresholds of several."""
        return cls(_sorted(pa.concat_arrays([ladder.values for ladder in several]).unique()))

    def places(self, other: TextThresholds) -> Any:
        """Return the ranks of the thresholds of `other`; all of them are thresholds here too."""
        return self._ranks(other.values)

    def select(self, used: Any) -> TextThresholds:
        """Return some of the thresholds."""
        return TextThresholds(self.values.filter(pa.array(used[: len(self)])))

    def rank_of(self, values: Any) -> Any:
        """Return the ranks of thresholds that rows have; all of them are thresholds here too."""
        return self._ranks(pa.array([as_bytes(text) for text in values], pa.large_binary()))

    def rank(self, value: str) -> int:
        """Return how many thresholds a text has reached."""
        return int(self._ranks(pa.array([as_bytes(value)], pa.large_binary()))[0])

    def ranks(self, texts: pa.Array) -> Any:
        """Return how many thresholds each text of an Arrow array has reached."""
        return self._ranks(texts.cast(pa.large_string()))

    def _ranks(self, texts: pa.Array) -> Any:
        return kernels.text_ranks(*self._flat, *flat(texts))

    @cached_property
    def _flat(self) -> tuple[Any, Any]:
        return flat(self.values)

    def threshold(self, n: int) -> Any:
        """Return one threshold, for display."""
        return self.values[n].as_py().decode("utf-8", "surrogatepass")


Ladder = NumberThresholds | TextThresholds


def _exact(value: Any) -> Any:
    """Return a numpy number as a Python number, which compares exactly."""
    return value.item() if isinstance(value, np.generic) else value


def as_bytes(text: str) -> bytes:
    """Return a text as bytes in the order of its characters; lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def flat(array: pa.Array) -> tuple[Any, Any]:
    """Return the offsets and bytes of an array of large strings."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    letters = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
    ends.flags.writeable = letters.flags.writeable = False  # numba compiles another function for writable arrays
    return ends, letters


def _sorted(values: pa.Array) -> pa.Array:
    return values.take(pc.sort_indices(values))


class Axis:
    """One attribute of a segment."""

    def __init__(self, path: Path, ladders: dict[int, Ladder]) -> None:
        self.path, self.ladders = path, ladders
        """Thresholds of each kind of value that the attribute may have."""
        self.base: dict[int, int] = {NULL: NULL, INCOMPARABLE: INCOMPARABLE, MISTYPED: MISTYPED}
        size = _FIRST
        for kind, ladder in ladders.items():
            self.base[kind] = size
            size += len(ladder) + 1
        self.size = size
        """Number of codes."""

    @classmethod
    def of(cls, path: Path, kinds: Any, lows: Any, highs: Any) -> Axis:
        """Build the axis from the bounds of all spans on it."""
        ladders: dict[int, Ladder] = {}
        for kind in kinds_of(path):
            named = np.concatenate([lows[kinds == kind], highs[kinds == kind]])
            named = named[_is_bounded(named)]
            ladders[kind] = (TextThresholds if kind == STRING else NumberThresholds).of(kind, named)
        return cls(path, ladders)

    def codes_of(self, kinds: Any, lows: Any, highs: Any) -> tuple[Any, Any]:
        """Return spans as codes: the first code inside and the first code outside."""
        first, last = np.empty(len(kinds), np.int32), np.empty(len(kinds), np.int32)
        for kind, base in self.base.items():
            of_it = kinds == kind
            if not of_it.any():
                continue
            ladder = self.ladders.get(kind)
            open_end = base + (1 if ladder is None else len(ladder) + 1)
            for out, bounds, default in ((first, lows, base), (last, highs, open_end)):
                chosen = bounds[of_it]
                ends = _is_bounded(chosen)
                codes = np.full(len(chosen), default, np.int32)
                if ladder is not None and ends.any():
                    codes[ends] = base + ladder.rank_of(chosen[ends])
                out[of_it] = codes
        return first, last

    def code(self, kind: int, value: Any) -> int:
        """Return the code of one value."""
        if kind < _FIRST:
            return kind
        return self.base[kind] + self.ladders[kind].rank(value)

    def shown(self, low: int, high: int) -> str:
        """Return a span of codes in readable form."""
        kind = max((kind for kind, base in self.base.items() if base <= low), key=self.base.__getitem__)
        ladder, base = self.ladders.get(kind), self.base[kind]
        if ladder is None:
            return span_text(kind, None, None)
        begin = None if low == base else ladder.threshold(low - base - 1)
        return span_text(kind, begin, None if high == base + len(ladder) + 1 else ladder.threshold(high - base - 1))

    @classmethod
    def join(cls, several: Sequence[Axis]) -> Axis:
        """Return the axis of one attribute with the thresholds of several."""
        first = several[0]
        if len(several) == 1:
            return first
        ladders: dict[int, Ladder] = {}
        for kind, ladder in first.ladders.items():
            of_kind: Any = [axis.ladders[kind] for axis in several]
            ladders[kind] = type(ladder).join(of_kind)
        return cls(first.path, ladders)

    def recode_to(self, to: Axis) -> Any:
        """Return for each code of this axis, and for its end, the first code at the same place on a finer axis."""
        out = np.empty(self.size + 1, np.int32)
        out[:_FIRST] = np.arange(_FIRST)
        for kind, ladder in self.ladders.items():
            base, there = self.base[kind], to.base[kind]
            out[base] = there
            out[base + 1 : base + 1 + len(ladder)] = there + to.ladders[kind].places(ladder)  # type: ignore[arg-type]
        out[self.size] = to.size
        return out

    def keep_thresholds(self, used: Any) -> Axis:
        """Return the axis with just the thresholds whose codes are used."""
        ladders = {kind: ladder.select(used[self.base[kind] + 1 :]) for kind, ladder in self.ladders.items()}
        return Axis(self.path, ladders)

    @property
    def nbytes(self) -> int:
        """Memory of the thresholds."""
        return sum(ladder.nbytes for ladder in self.ladders.values())


def _is_bounded(bounds: Any) -> Any:
    """Return which bounds are not None."""
    return np.asarray(bounds != _NOTHING, dtype=bool)


_NOTHING = np.array(None, dtype=object)


def kinds_of(path: Path) -> tuple[int, ...]:
    """Return the ordered kinds of value that an attribute may have."""
    if path.type is None:
        return BOOL, INT, FLOAT, STRING, TIME
    kind = KINDS[domain_of(path.type).kind]
    return (kind,) if kind >= _FIRST else ()
