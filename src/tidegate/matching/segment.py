"""An immutable index of rows: finds the rows whose spans contain an event's values.

Each row is one bit. The codes of an axis are cut into *buckets*, and every bucket has a bitset of the rows that allow
some value in it. The candidates of an event are the AND of one bitset per axis:

    longitude 116.3 -> bucket 17 of its axis   0 1 1 0 1 0 0 1 ...
    speed      61.5 -> bucket  4 of its axis   1 1 0 0 1 1 0 1 ...
                                          AND  0 1 0 0 1 0 0 1 ...

Rows that allow similar values are neighbours, in blocks of 512, and a bucket also has one bit per block: most blocks
are skipped without being read. A row with an equality is stored near other rows with the same value, so an event reads
only the blocks of its own value, as from an inverted list.

A bucket of one code is exact. If a bucket holds several codes, the few remaining rows are checked against their own
spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from tidegate.matching import kernels
from tidegate.matching.axis import Axis
from tidegate.matching.rows import MISTYPED, Axes, IndexRow

BLOCK = 512
"""Rows per block: one cache line of bits."""
MAX_BUCKETS, MIN_BUCKETS = 2_048, 64
AXIS_BITS = 2**26
"""Maximum number of bits in all buckets of one axis: 8 MB."""


@dataclass(frozen=True, slots=True)
class Spans:
    """The spans of some rows as codes; those of row r are `table[first[r]:first[r + 1]]`."""

    axes: tuple[Axis, ...]
    first: Any
    table: Any
    """One line per span: axis, first code inside, first code outside. Spans of one axis are neighbours."""

    @property
    def axis(self) -> Any:
        """Axis of each span."""
        return self.table[:, 0]

    @property
    def low(self) -> Any:
        """First code of each span."""
        return self.table[:, 1]

    @property
    def high(self) -> Any:
        """First code after each span."""
        return self.table[:, 2]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.first) - 1

    @property
    def nbytes(self) -> int:
        """Memory of the spans and of the axes' thresholds."""
        own = self.first.nbytes + self.table.nbytes
        return int(own + sum(axis.nbytes for axis in self.axes))

    @classmethod
    def of(cls, rows: Sequence[IndexRow], named: Axes) -> Spans:
        """Convert compiled rows to codes; `named` gives the path of each axis."""
        first = np.zeros(len(rows) + 1, np.int32)
        np.cumsum([len(row.flat) // 4 for row in rows], out=first[1:])
        total = int(first[-1])
        flat = list(chain.from_iterable([row.flat for row in rows]))
        number, kinds = np.array(flat[0::4], np.int64), np.array(flat[1::4], np.int8)
        lows, highs = np.empty(total, object), np.empty(total, object)
        lows[:], highs[:] = flat[2::4], flat[3::4]
        used, axis = np.unique(number, return_inverse=True)
        table = np.empty((total, 3), np.int32)
        table[:, 0] = axis
        axes = []
        for j, n in enumerate(used):
            of_it = axis == j
            thresholds = kinds[of_it], lows[of_it], highs[of_it]
            built = Axis.of(named.paths[n], *thresholds)
            table[of_it, 1], table[of_it, 2] = built.codes_of(*thresholds)
            axes.append(built)
        return cls(tuple(axes), first, table)

    def select(self, rows: Any) -> Spans:
        """Return some of the rows in the given order; the axes keep all their thresholds."""
        sizes = np.diff(self.first)[rows]
        first = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(sizes, out=first[1:])
        at = np.repeat(self.first[:-1][rows] - first[:-1], sizes)
        at += np.arange(first[-1], dtype=np.int32)
        return Spans(self.axes, first, self.table[at])

    @classmethod
    def join(cls, parts: Iterable[Spans]) -> Spans:
        """Return the rows of several parts one after another, on axes with just the thresholds of these rows."""
        parts = list(parts)
        named: dict[tuple[str | int, ...], list[Axis]] = {}
        for part in parts:
            for axis in part.axes:
                named.setdefault(axis.path.parts, []).append(axis)
        merged = {name: Axis.join(several) for name, several in named.items()}
        place = {name: j for j, name in enumerate(merged)}
        sizes = [int(part.first[-1]) for part in parts]
        first = np.concatenate([[0], *(part.first[1:] + sum(sizes[:n]) for n, part in enumerate(parts))]).astype(
            np.int32
        )
        table = np.empty((sum(sizes), 3), np.int32)
        for n, part in enumerate(parts):
            table[sum(sizes[:n]) : sum(sizes[: n + 1])] = part._recoded(merged, place)
        return cls(_drop_unused_thresholds(list(merged.values()), table), first, table)

    def _recoded(self, merged: dict[tuple[str | int, ...], Axis], place: dict[tuple[str | int, ...], int]) -> Any:
        """Return axis and codes of every span on the merged axes."""
        table = self.table.copy()
        for j, mine in enumerate(self.axes):
            of_it = self.axis == j
            table[of_it, 0] = place[mine.path.parts]
            there = merged[mine.path.parts]
            if there is not mine:
                table[of_it, 1:] = mine.recode_to(there)[self.table[of_it, 1:]]
        return table

    def clustered(self) -> Any:
        """Return an order of the rows in which rows that allow similar values are neighbours."""
        if self.rows <= 2 * BLOCK or not self.axes:
            return np.arange(self.rows)
        row = np.repeat(np.arange(self.rows, dtype=np.int32), np.diff(self.first))
        begin = np.zeros((len(self.axes), self.rows), np.float32)
        end = np.ones((len(self.axes), self.rows), np.float32)
        for j, axis in enumerate(self.axes):
            of_it = np.flatnonzero(self.axis == j)
            low, high = self.low[of_it], self.high[of_it]
            share = _shares(axis.size, low, high)
            # Use the bounding range of several spans on one axis.
            begin[j, row[of_it]], end[j, row[of_it]] = 1, 0
            np.minimum.at(begin[j], row[of_it], share[low])
            np.maximum.at(end[j], row[of_it], share[high])
        return kernels.cluster(begin, end, BLOCK)


def _drop_unused_thresholds(axes: Sequence[Axis], table: Any) -> tuple[Axis, ...]:
    """Return the axes without thresholds that no span uses; recodes the spans in place."""
    thin = []
    for j, axis in enumerate(axes):
        of_it = np.flatnonzero(table[:, 0] == j)
        ends = table[of_it, 1:]
        used = np.zeros(axis.size + 1, dtype=bool)
        used[ends] = True
        thin.append(axis.keep_thresholds(used))
        back = np.zeros(axis.size + 1, np.int32)
        back[thin[-1].recode_to(axis)] = np.arange(thin[-1].size + 1)
        table[of_it, 1:] = back[ends]
    return tuple(thin)


def _shares(size: int, low: Any, high: Any) -> Any:
    """Return for each code the share of the axis's span ends that lie before it."""
    ends = np.bincount(low, minlength=size + 1) + np.bincount(high, minlength=size + 1)
    return (np.cumsum(ends) / max(1, ends.sum())).astype(np.float32)


class BitsetSegment:
    """Bitsets over the spans of some rows; immutable."""

    def __init__(self, spans: Spans) -> None:
        self.spans, self.rows = spans, spans.rows
        self.words = words_of(self.rows)
        blocks = self.words // (BLOCK // 64)
        limit = max(MIN_BUCKETS, min(MAX_BUCKETS, AXIS_BITS // max(1, self.rows)))
        self._start = all_bits(self.rows, self.words)
        self._blocks = all_bits(blocks, -(-blocks // 64))
        tables = [_buckets(axis, j, spans, limit) for j, axis in enumerate(spans.axes)]
        counts = [int(table[-1]) + 1 for table in tables]
        bits = np.zeros((max(1, sum(counts)), self.words), np.uint64)
        self._loose = np.zeros(len(bits), bool)
        self._doubts = np.zeros((len(bits), kernels.DOUBT_BITS // 64), np.uint64)
        self._base = np.zeros(len(tables), np.int64)
        buckets, begin, code = [], 0, 0
        for j, (table, count) in enumerate(zip(tables, counts, strict=True)):
            self._fill(bits[begin : begin + count], self._doubts[begin : begin + count], j, table)
            self._loose[begin : begin + count] = np.bincount(table, minlength=count) > 1
            buckets.append(table + begin)
            self._base[j] = code
            begin, code = begin + count, code + len(table)
        self._buckets = np.concatenate([*buckets, np.zeros(1, np.int32)]).astype(np.int32)
        self._bits = bits
        self._summary = np.zeros((len(bits), len(self._blocks)), np.uint64)
        kernels.summarise(bits, self._summary)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The attributes that rows have spans on."""
        return self.spans.axes

    @property
    def nbytes(self) -> int:
        """Memory of the bitsets, without the spans."""
        own = self._bits.nbytes + self._summary.nbytes + self._doubts.nbytes + self._buckets.nbytes + self._start.nbytes
        return int(own)

    def candidates(self, codes: Any, alive: Any = None) -> tuple[Any, Any]:
        """Return the rows whose spans contain each event's values, as CSR arrays (offsets, rows).

        `codes` has one line per event and one column per axis; `alive` masks out removed rows.
        """
        offsets = np.zeros(len(codes) + 1, np.int64)
        rows = kernels.candidates(
            self._bits,
            self._summary,
            self._start if alive is None else alive,
            self._blocks,
            self._buckets,
            self._base,
            self._loose,
            self._doubts,
            codes,
            self.spans.first,
            self.spans.table,
            offsets,
        )
        return offsets, rows

    def buckets(self) -> list[int]:
        """Return the number of buckets of each axis."""
        ends = [*self._base[1:].tolist(), len(self._buckets) - 1]
        return [int(np.ptp(self._buckets[a:b])) + 1 for a, b in zip(self._base.tolist(), ends, strict=True)]

    def _fill(self, bits: Any, doubts: Any, j: int, table: Any) -> None:
        spans = self.spans
        of_it = np.flatnonzero(spans.axis == j)
        row = (np.searchsorted(spans.first, of_it, side="right") - 1).astype(np.int32)
        begin, last = table[spans.low[of_it]], table[spans.high[of_it] - 1]
        free = self._start.copy()
        np.bitwise_and.at(free, row >> 6, ~(np.uint64(1) << (row & 63).astype(np.uint64)))
        by_begin, by_last = np.argsort(begin, kind="stable"), np.argsort(last, kind="stable")
        places = np.arange(len(bits) + 1)
        begin_at = np.searchsorted(begin[by_begin], places)
        end_at = np.searchsorted(last[by_last], places)
        kernels.fill(bits, free, row[by_begin], begin_at, row[by_last], end_at, last[by_begin])
        kernels.mark_doubts(doubts, table, row, spans.low[of_it], spans.high[of_it])
        bits[table[MISTYPED]] = self._start  # any row may match a mistyped value


def _buckets(axis: Axis, j: int, spans: Spans, limit: int) -> Any:
    """Return the bucket of each code: one per code if there are few, else with about equal numbers of span ends."""
    if axis.size <= limit:
        return np.arange(axis.size, dtype=np.int32)
    of_it = spans.axis == j
    share = _shares(axis.size, spans.low[of_it], spans.high[of_it])[: axis.size]
    # Null, incomparable and mistyped have buckets of their own, and so has a value that many rows name.
    table = np.minimum(share * (limit - 4), limit - 5).astype(np.int32) + 3
    table[:3] = np.arange(3)
    return np.unique(table, return_inverse=True)[1].astype(np.int32)


def words_of(rows: int) -> int:
    """Return how many 64-bit words the bits of some rows take, in whole blocks."""
    return max(1, -(-rows // BLOCK)) * (BLOCK // 64)


def clear_rows(gone: Any, rows: int, alive: Any = None) -> Any:
    """Return a bitset of `rows` rows (or a copy of `alive`) in which some rows are cleared."""
    left = all_bits(rows, words_of(rows)) if alive is None else alive.copy()
    for row in gone:
        left[row >> 6] &= ~(np.uint64(1) << np.uint64(row & 63))
    return left


def bits_of_rows(rows: Any, words: int) -> Any:
    """Return a bitset with these rows set."""
    bits = np.zeros(words, np.uint64)
    for row in rows:
        bits[row >> 6] |= np.uint64(1) << np.uint64(row & 63)
    return bits


def all_bits(rows: int, words: int) -> Any:
    """Return a bitset with the first `rows` bits set."""
    bits = np.zeros(words, np.uint64)
    full, rest = divmod(rows, 64)
    bits[:full] = ~np.uint64(0)
    if rest:
        bits[full] = (np.uint64(1) << np.uint64(rest)) - np.uint64(1)
    return bits
