"""An attribute as a line of codes: where a value stands among all thresholds.

A code says all that the rows of a segment can tell of a value: two values of
one code are in the same spans. The codes of an axis, from the left:

    null | unfit | odd | kind 1: rank 0, 1, ... n | kind 2: rank 0, 1, ...

where a rank is how many thresholds of that kind a value has reached. An axis
with a type has one kind, one without has five. `odd` is a value that its type
does not hold: every row allows it, and the filters themselves must be asked.
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
from tidegate.matching.rows import BOOL, FLOAT, INT, KINDS, NULL, ODD, STRING, TIME, UNFIT, span_text

_FIRST = 3
"""The first code of an ordered kind; before it are the kinds null, unfit and odd, by their own numbers."""

CELLS = 4_096
"""Cells that the range of a ladder's thresholds is cut into."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Sorted thresholds and a table that finds a value's place among them; see `kernels.ranks`."""

    thresholds: Any
    table: Any
    low: float
    scale: float
    below: int
    """Thresholds that every value has passed."""

    @classmethod
    def of(cls, thresholds: Any, below: int = 0) -> Grid:
        """Cut the range of the finite thresholds into cells; with no range there is one cell."""
        finite = thresholds[np.isfinite(thresholds)].astype(np.float64)
        low, high = (float(finite[0]), float(finite[-1])) if len(finite) else (0.0, 0.0)
        width = high - low
        # No cell narrower than what floats can tell apart there: whole numbers beyond 2^53 are rounded.
        finest = 4 * math.ulp(max(abs(low), abs(high)))
        cells = int(min(CELLS, 4 * len(thresholds), width / finest)) if width < math.inf else 0
        if cells < 1:
            return cls(thresholds, np.array([0, len(thresholds)], np.int64), low, 0.0, below)
        edges = low + width * (np.arange(cells + 1) / cells)
        table = np.searchsorted(thresholds.astype(np.float64), edges, side="right")
        table[0], table[-1] = 0, len(thresholds)
        return cls(thresholds, table.astype(np.int64), low, cells / width, below)

    def ranks(self, values: Any) -> Any:
        """Say for each value how many thresholds it has reached."""
        return self.below + kernels.ranks(self.thresholds, self.table, self.low, self.scale, values)


class Numbers:
    """The thresholds of one kind of number, ascending, each once."""

    def __init__(self, values: Any) -> None:
        self.values = values
        """float64, int64, or Python's own where 64 bits do not hold them all."""

    @classmethod
    def of(cls, kind: int, values: Any) -> Numbers:
        """Take thresholds in any order."""
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
    def joined(cls, several: Sequence[Numbers]) -> Numbers:
        """The thresholds of all."""
        values = [each.values for each in several]
        if len({each.dtype for each in values}) > 1:
            values = [each.astype(object) for each in values]
        return cls(np.unique(np.concatenate(values)))

    def places(self, other: Numbers) -> Any:
        """The ranks of another ladder's thresholds, all of which are among these."""
        return self._places(other.values)

    def only(self, used: Any) -> Numbers:
        """Some of the thresholds."""
        return Numbers(self.values[used[: len(self)]])

    def rank_of(self, values: Any) -> Any:
        """The ranks of thresholds that are among these, as they came from rows."""
        return self._places(values.astype(self.values.dtype))

    def _places(self, values: Any) -> Any:
        if len(values) < CELLS or values.dtype != self.values.dtype or values.dtype.kind == "O":
            return np.searchsorted(self.values, values, side="right")
        return self.ranks(values)

    def rank(self, value: Any) -> int:
        """How many thresholds one value has reached."""
        if value.__class__ is int and not -LARGEST_EXACT <= value <= LARGEST_EXACT:
            return bisect_right(self.values, value, key=_exact)  # numpy would compare it as a float
        return int(self.values.searchsorted(value, "right"))

    def ranks(self, values: Any) -> Any:
        """How many thresholds each number of an array has reached; exact for every width."""
        if values.dtype.kind == "O":
            return np.fromiter(map(self.rank, values), np.int64, len(values))
        if values.dtype.kind == "f":
            return self._floats.ranks(values.astype(np.float64))  # a copy: Arrow's own memory is read-only
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
        """The thresholds inside a type; those below are always reached, those above never."""
        if self.values.dtype == np.int64 and dtype == np.int64:
            return Grid.of(self.values)
        exact = self.values.astype(object)
        low, high = np.searchsorted(exact, least, side="left"), np.searchsorted(exact, most, side="right")
        return Grid.of(exact[low:high].astype(dtype), int(low))

    def threshold(self, n: int) -> Any:
        """One threshold, for a reader."""
        return _exact(self.values[n])


class Texts:
    """The thresholds of text: UTF-8, whose bytes are in the order of the letters."""

    def __init__(self, values: pa.Array) -> None:
        self.values = values

    @classmethod
    def of(cls, _: int, values: Any) -> Texts:
        """Take thresholds in any order."""
        return cls(_sorted(pa.array([as_bytes(text) for text in values], pa.large_binary()).unique()))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """Memory of the thresholds."""
        return int(self.values.nbytes)

    @classmethod
    def joined(cls, several: Sequence[Texts]) -> Texts:
        """The thresholds of all."""
        return cls(_sorted(pa.concat_arrays([each.values for each in several]).unique()))

    def places(self, other: Texts) -> Any:
        """The ranks of another ladder's thresholds, all of which are among these."""
        return self._ranks(other.values)

    def only(self, used: Any) -> Texts:
        """Some of the thresholds."""
        return Texts(self.values.filter(pa.array(used[: len(self)])))

    def rank_of(self, values: Any) -> Any:
        """The ranks of thresholds that are among these, as they came from rows."""
        return self._ranks(pa.array([as_bytes(text) for text in values], pa.large_binary()))

    def rank(self, value: str) -> int:
        """How many thresholds one text has reached."""
        return int(self._ranks(pa.array([as_bytes(value)], pa.large_binary()))[0])

    def ranks(self, texts: pa.Array) -> Any:
        """How many thresholds each text of an Arrow array has reached."""
        return self._ranks(texts.cast(pa.large_string()))

    def _ranks(self, texts: pa.Array) -> Any:
        return kernels.text_ranks(*self._flat, *flat(texts))

    @cached_property
    def _flat(self) -> tuple[Any, Any]:
        return flat(self.values)

    def threshold(self, n: int) -> Any:
        """One threshold, for a reader."""
        return self.values[n].as_py().decode("utf-8", "surrogatepass")


Ladder = Numbers | Texts


def _exact(value: Any) -> Any:
    """A number of numpy's as Python's own, which compares exactly."""
    return value.item() if isinstance(value, np.generic) else value


def as_bytes(text: str) -> bytes:
    """A text as bytes in its own order; half a letter, which is no text, included."""
    return text.encode("utf-8", "surrogatepass")


def flat(array: pa.Array) -> tuple[Any, Any]:
    """The offsets and bytes of an array of large texts."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    letters = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
    ends.flags.writeable = letters.flags.writeable = False  # for numba another type is another function
    return ends, letters


def _sorted(values: pa.Array) -> pa.Array:
    return values.take(pc.sort_indices(values))


class Axis:
    """One attribute of a segment."""

    def __init__(self, path: Path, ladders: dict[int, Ladder]) -> None:
        self.path, self.ladders = path, ladders
        """Thresholds for each kind of value that the attribute may have."""
        self.base: dict[int, int] = {NULL: NULL, UNFIT: UNFIT, ODD: ODD}
        size = _FIRST
        for kind, ladder in ladders.items():
            self.base[kind] = size
            size += len(ladder) + 1
        self.size = size
        """How many codes it has."""

    @classmethod
    def of(cls, path: Path, kinds: Any, lows: Any, highs: Any) -> Axis:
        """Take the thresholds of all spans on it."""
        ladders: dict[int, Ladder] = {}
        for kind in kinds_of(path):
            named = np.concatenate([lows[kinds == kind], highs[kinds == kind]])
            named = named[_given(named)]
            ladders[kind] = (Texts if kind == STRING else Numbers).of(kind, named)
        return cls(path, ladders)

    def codes_of(self, kinds: Any, lows: Any, highs: Any) -> tuple[Any, Any]:
        """The spans as codes: the first that is in, the first that is out."""
        first, last = np.empty(len(kinds), np.int32), np.empty(len(kinds), np.int32)
        for kind, base in self.base.items():
            of_it = kinds == kind
            if not of_it.any():
                continue
            ladder = self.ladders.get(kind)
            open_end = base + (1 if ladder is None else len(ladder) + 1)
            for out, bounds, default in ((first, lows, base), (last, highs, open_end)):
                chosen = bounds[of_it]
                given = _given(chosen)
                codes = np.full(len(chosen), default, np.int32)
                if ladder is not None and given.any():
                    codes[given] = base + ladder.rank_of(chosen[given])
                out[of_it] = codes
        return first, last

    def code(self, kind: int, value: Any) -> int:
        """The code of one value."""
        if kind < _FIRST:
            return kind
        return self.base[kind] + self.ladders[kind].rank(value)

    def shown(self, low: int, high: int) -> str:
        """A span of codes for a reader."""
        kind = max((kind for kind, base in self.base.items() if base <= low), key=self.base.__getitem__)
        ladder, base = self.ladders.get(kind), self.base[kind]
        if ladder is None:
            return span_text(kind, None, None)
        begin = None if low == base else ladder.threshold(low - base - 1)
        return span_text(kind, begin, None if high == base + len(ladder) + 1 else ladder.threshold(high - base - 1))

    @classmethod
    def joined(cls, several: Sequence[Axis]) -> Axis:
        """The axis of one attribute with the thresholds of all."""
        first = several[0]
        if len(several) == 1:
            return first
        ladders: dict[int, Ladder] = {}
        for kind, ladder in first.ladders.items():
            of_kind: Any = [each.ladders[kind] for each in several]
            ladders[kind] = type(ladder).joined(of_kind)
        return cls(first.path, ladders)

    def moved(self, to: Axis) -> Any:
        """For each code here, and for the end, the code that begins at the same place on a finer axis."""
        out = np.empty(self.size + 1, np.int32)
        out[:_FIRST] = np.arange(_FIRST)
        for kind, ladder in self.ladders.items():
            base, there = self.base[kind], to.base[kind]
            out[base] = there
            out[base + 1 : base + 1 + len(ladder)] = there + to.ladders[kind].places(ladder)  # type: ignore[arg-type]
        out[self.size] = to.size
        return out

    def thinned(self, used: Any) -> Axis:
        """The axis with only those thresholds whose codes are used."""
        ladders = {kind: ladder.only(used[self.base[kind] + 1 :]) for kind, ladder in self.ladders.items()}
        return Axis(self.path, ladders)

    @property
    def nbytes(self) -> int:
        """Memory of the thresholds."""
        return sum(ladder.nbytes for ladder in self.ladders.values())


def _given(bounds: Any) -> Any:
    """Which ends of spans there are."""
    return np.asarray(bounds != _NOTHING, dtype=bool)


_NOTHING = np.array(None, dtype=object)


def kinds_of(path: Path) -> tuple[int, ...]:
    """The ordered kinds of value that an attribute may have."""
    if path.type is None:
        return BOOL, INT, FLOAT, STRING, TIME
    kind = KINDS[domain_of(path.type).kind]
    return (kind,) if kind >= _FIRST else ()
