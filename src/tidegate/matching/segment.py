"""An immutable index of many conjuncts: which of them may match an event.

Each conjunct is a *row*, a bit. For each attribute, every place where a row's
value set begins or ends is a *toggle*; all toggles of the attribute are sorted
by the value at which they happen. The rows that allow a value are then the rows
that allow the least one, with the toggles up to the value applied. So that few
have to be applied, every so many toggles a *checkpoint* holds the bits in full:

    value        10        20        30        40
    toggle     row 3     row 7     row 3     row 5
    rows    {1} | {1,3}     | {1,3,7} | {1,7}     | {1,5,7}
             ^ checkpoint              ^ checkpoint

An event is the AND of one such set per attribute.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tidegate.filters.nodes import Path
from tidegate.filters.normalize import Conjunct
from tidegate.filters.sets import Cut, Cuts, ValueSet
from tidegate.filters.values import nearest_float
from tidegate.matching import kernels

CHECKPOINTS = 512
"""Checkpoints of one attribute: more cost memory, fewer cost toggles per event."""


CELLS = 4_096
"""Cells that the range of an attribute's thresholds is cut into."""


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
        if not 0 < width < math.inf:
            return cls(thresholds, np.array([0, len(thresholds)], np.int64), low, 0.0, below)
        edges = low + width * (np.arange(CELLS + 1) / CELLS)
        table = np.searchsorted(thresholds.astype(np.float64), edges, side="right")
        table[0], table[-1] = 0, len(thresholds)
        return cls(thresholds, table.astype(np.int64), low, CELLS / width, below)

    def ranks(self, values: Any) -> Any:
        """Say for each value how many thresholds it has reached."""
        return self.below + kernels.ranks(self.thresholds, self.table, self.low, self.scale, values)


@dataclass(frozen=True)
class Ladder:
    """The toggles of one attribute for one kind of value, in order."""

    kind: str
    values: list[Any]
    """At which value each toggle happens, ascending."""
    checkpoint: int
    """The number of its first checkpoint among the segment's."""
    toggle: int
    """The number of its first toggle among the segment's."""
    step: int
    """Toggles from one checkpoint to the next."""

    def rank(self, value: Any) -> int:
        """How many toggles happen up to one value."""
        return bisect_right(self.values, value)

    def ranks(self, values: Any) -> Any:
        """How many toggles happen up to each number of an array; exact for every width."""
        if values.dtype.kind == "O":
            return np.fromiter(map(self.rank, values), np.int64, len(values))
        if values.dtype.kind == "f":
            return self._floats.ranks(values.astype(np.float64, copy=False))
        if values.dtype == np.uint64:
            return self._unsigned.ranks(values)
        return self._signed.ranks(values.astype(np.int64, copy=False))

    @cached_property
    def _floats(self) -> Grid:
        return Grid.of(np.array(self.values, np.float64))

    @cached_property
    def _signed(self) -> Grid:
        return self._within(-(2**63), 2**63 - 1, np.int64)

    @cached_property
    def _unsigned(self) -> Grid:
        return self._within(0, 2**64 - 1, np.uint64)

    def _within(self, least: int, most: int, dtype: Any) -> Grid:
        """The thresholds inside a type; those below are always reached, those above never."""
        low, high = bisect_left(self.values, least), bisect_right(self.values, most)
        return Grid.of(np.array(self.values[low:high], dtype), low)

    def slots(self, ranks: Any) -> tuple[Any, Any, Any]:
        """Give the checkpoint and the toggles after it, first and last, for each rank."""
        passed = ranks // self.step
        return self.checkpoint + passed, self.toggle + passed * self.step, self.toggle + ranks


@dataclass(frozen=True, slots=True)
class Attribute:
    """What a segment knows of one attribute."""

    path: Path
    ladders: dict[str, Ladder]
    null: int
    """The checkpoint for events without a value."""
    unfit: int
    """The checkpoint for values of a kind that no predicate compares with."""


class Segment:
    """Some conjuncts, indexed together; never changes."""

    def __init__(self, conjuncts: Sequence[Conjunct]) -> None:
        self.rows = len(conjuncts)
        self.words = max(1, (self.rows + 63) // 64)
        builder = _Builder(self.rows, self.words)
        by_path: dict[Path, list[tuple[int, ValueSet]]] = {}
        for row, conjunct in enumerate(conjuncts):
            for path, allowed in conjunct.necessary.items():
                by_path.setdefault(path, []).append((row, allowed))
        self.attributes = [builder.attribute(path, allowed) for path, allowed in by_path.items()]
        self.bits, self.toggles = builder.arrays()
        self.start = _all_bits(self.rows, self.words)

    @property
    def nbytes(self) -> int:
        """Memory of the bits and toggles."""
        return int(self.bits.nbytes + self.toggles.nbytes)

    def candidates(self, at: Any, begin: Any, end: Any) -> tuple[Any, Any]:
        """Give the rows that each event may match, as CSR; arguments as `kernels.candidates`."""
        offsets = np.zeros(at.shape[1] + 1, np.int64)
        found = kernels.candidates(self.bits, at, begin, end, self.toggles, offsets, self.start)
        return offsets, found


class _Builder:
    """Collects the checkpoints and toggles of a segment, attribute by attribute."""

    def __init__(self, rows: int, words: int) -> None:
        self.rows, self.words = rows, words
        self.checkpoints: list[Any] = []
        self.toggles: list[Any] = []
        self.count = self.toggled = 0

    def attribute(self, path: Path, allowed: list[tuple[int, ValueSet]]) -> Attribute:
        named = np.zeros(self.words, np.uint64)
        for row, _ in allowed:
            named[row >> 6] |= np.uint64(1) << np.uint64(row & 63)
        free = _all_bits(self.rows, self.words) & ~named
        kinds = sorted({kind for _, values in allowed for kind in values.cuts if kind != "other"})
        ladders = {kind: self.ladder(kind, free, allowed) for kind in kinds}
        null = self.fixed(free, [row for row, values in allowed if values.null])
        unfit = self.fixed(free, [row for row, values in allowed if values.cuts.get("other")])
        return Attribute(path, ladders, null, unfit)

    def ladder(self, kind: str, free: Any, allowed: list[tuple[int, ValueSet]]) -> Ladder:
        base = free.copy()
        happens: list[tuple[Any, int]] = []
        for row, values in allowed:
            cuts: Cuts = values.cuts.get(kind, ())
            for cut in cuts:
                if cut[0] < 0:
                    base[row >> 6] |= np.uint64(1) << np.uint64(row & 63)
                elif cut[0] == 0 and (first := _first_value(cut, kind)) is not None:
                    happens.append((first, row))
        happens.sort()
        toggles = np.array([row for _, row in happens], np.int32)
        step = max(1, -(-len(toggles) // CHECKPOINTS))
        rows = np.zeros((len(toggles) // step + 1, self.words), np.uint64)
        kernels.checkpoints(base, toggles, step, rows)
        made = Ladder(kind, [value for value, _ in happens], self.count, self.toggled, step)
        self.add(rows, toggles)
        return made

    def fixed(self, free: Any, rows: list[int]) -> int:
        bits = free.copy()
        for row in rows:
            bits[row >> 6] |= np.uint64(1) << np.uint64(row & 63)
        self.add(bits[None, :], np.empty(0, np.int32))
        return self.count - 1

    def add(self, rows: Any, toggles: Any) -> None:
        self.checkpoints.append(rows)
        self.toggles.append(toggles)
        self.count += len(rows)
        self.toggled += len(toggles)

    def arrays(self) -> tuple[Any, Any]:
        if not self.checkpoints:
            return np.zeros((1, self.words), np.uint64), np.zeros(1, np.int32)
        return np.concatenate(self.checkpoints), np.concatenate([*self.toggles, np.zeros(1, np.int32)])


def _first_value(cut: Cut, kind: str) -> Any:
    """The first value beyond a cut: from it on, the toggle has happened; None: never."""
    _, value, side = cut
    if kind == "string":
        return value + "\0" if side else value  # no text lies between
    if kind == "float":
        return _first_float(value, bool(side))
    return value + 1 if side else value


def _first_float(value: int | float, beyond: bool) -> float | None:
    """The least float that is at a number or above it, or, where `beyond`, above it."""
    nearest = nearest_float(value)
    if nearest > value or (nearest == value and not beyond):
        return nearest
    return None if nearest == math.inf else math.nextafter(nearest, math.inf)


def _all_bits(rows: int, words: int) -> Any:
    bits = np.zeros(words, np.uint64)
    full, rest = divmod(rows, 64)
    bits[:full] = ~np.uint64(0)
    if rest:
        bits[full] = (np.uint64(1) << np.uint64(rest)) - np.uint64(1)
    return bits
