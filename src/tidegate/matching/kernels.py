"""The inner loops of matching, compiled by numba; they release the GIL.

Compiled code is cached on disk. Call `warm_up` at start, so that no event waits for the compiler.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

_MISTYPED = 2
"""Code of a value that is not of the attribute's type; see `axis`."""

DOUBT_BITS = 4_096
"""Size of a bucket's bitset of uncertain rows, indexed by the last bits of the row number: a power of two."""
_DOUBT_WORDS = DOUBT_BITS // 64 - 1

_compiled: Any = njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")


def _lowest_bit(typingctx: Any, x: Any) -> Any:  # noqa: ARG001 - numba's signature
    """The index of the lowest set bit, by one instruction; undefined for 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001 - numba's signature
        from llvmlite import ir

        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


def _bits_set(typingctx: Any, x: Any) -> Any:  # noqa: ARG001 - numba's signature
    """The number of set bits, by one instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001 - numba's signature
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


_trailing_zeros: Any = intrinsic(_lowest_bit)
_popcount: Any = intrinsic(_bits_set)


@_compiled
def fill(bits: Any, start: Any, begins: Any, begin_at: Any, ends: Any, end_at: Any, last_of: Any) -> None:
    """Fill the bitset of each bucket of an axis with the rows that allow some value in it.

    `begins` are rows ordered by the bucket where one of their spans begins, those of bucket b from `begin_at[b]`;
    `ends` are rows ordered by the bucket where a span ends; `last_of` is the last bucket of each span of `begins`.
    `start` are the rows without a span on this axis.
    """
    words = start.shape[0]
    state = start.copy()
    for b in range(bits.shape[0]):
        for n in range(begin_at[b], begin_at[b + 1]):
            state[begins[n] >> 6] |= np.uint64(1) << np.uint64(begins[n] & 63)
        for w in range(words):
            bits[b, w] = state[w]
        for n in range(end_at[b], end_at[b + 1]):
            state[ends[n] >> 6] &= ~(np.uint64(1) << np.uint64(ends[n] & 63))
        # A row with several spans may begin another one in the same bucket.
        for n in range(begin_at[b], begin_at[b + 1]):
            if last_of[n] > b:
                state[begins[n] >> 6] |= np.uint64(1) << np.uint64(begins[n] & 63)


@_compiled
def summarise(bits: Any, summary: Any) -> None:
    """Set one bit for each block of eight words that contains any row."""
    for b in range(bits.shape[0]):
        for block in range(bits.shape[1] // 8):
            any_row = np.uint64(0)
            for w in range(block * 8, block * 8 + 8):
                any_row |= bits[b, w]
            if any_row:
                summary[b, block >> 6] |= np.uint64(1) << np.uint64(block & 63)


@_compiled
def candidates(
    bits: Any,
    summary: Any,
    alive: Any,
    blocks: Any,
    buckets: Any,
    base: Any,
    loose: Any,
    doubts: Any,
    codes: Any,
    first: Any,
    spans: Any,
    offsets: Any,
) -> Any:
    """Return the rows whose spans contain each event's values, event after event; `offsets` receives the CSR offsets.

    The code of event e on axis j is `codes[e, j]`; its bucket there, a line of `bits`, is `buckets[base[j] + code]`.
    The blocks that may contain a match are the AND of the buckets' summaries, the rows are the AND of their bits. A
    bucket with more than one code (`loose`) allows too much: the rows in its `doubts`, by the last bits of their
    number, are checked against their own `spans` (axis, low, high), from `first[r]` to `first[r + 1]`.
    """
    events, axes = codes.shape
    at = np.empty(axes, np.int64)
    acc = np.empty(8, np.uint64)
    doubt = np.empty(doubts.shape[1], np.uint64)
    out = np.empty(max(1 << 12, 2 * events), np.int32)
    n: Any = 0
    for e in range(events):
        verify = False
        for j in range(axes):
            at[j] = buckets[base[j] + codes[e, j]]
            verify |= loose[at[j]]
        begin = n
        for s in range(blocks.shape[0]):
            pending = blocks[s]
            for j in range(axes):
                pending &= summary[at[j], s]
            while pending:
                b = 8 * (64 * s + np.int64(_trailing_zeros(pending)))
                pending &= pending - np.uint64(1)
                # Unrolled: eight words are two registers, and stay there for all axes.
                w0, w1, w2, w3 = alive[b], alive[b + 1], alive[b + 2], alive[b + 3]
                w4, w5, w6, w7 = alive[b + 4], alive[b + 5], alive[b + 6], alive[b + 7]
                for j in range(axes):
                    r = at[j]
                    w0 &= bits[r, b]
                    w1 &= bits[r, b + 1]
                    w2 &= bits[r, b + 2]
                    w3 &= bits[r, b + 3]
                    w4 &= bits[r, b + 4]
                    w5 &= bits[r, b + 5]
                    w6 &= bits[r, b + 6]
                    w7 &= bits[r, b + 7]
                if not (w0 | w1 | w2 | w3 | w4 | w5 | w6 | w7):
                    continue
                acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7] = w0, w1, w2, w3, w4, w5, w6, w7
                if n + 576 > out.shape[0]:
                    grown = np.empty(2 * out.shape[0], np.int32)
                    grown[:n] = out[:n]
                    out = grown
                for w in range(8):
                    word = acc[w]
                    count = np.int64(_popcount(word))
                    row = 64 * (b + w)
                    # Always write two rows: most words have no more, and this avoids branch mispredictions.
                    out[n] = row + np.int64(_trailing_zeros(word))
                    word &= word - np.uint64(1)
                    out[n + 1] = row + np.int64(_trailing_zeros(word))
                    for k in range(2, count):
                        word &= word - np.uint64(1)
                        out[n + k] = row + np.int64(_trailing_zeros(word))
                    n += count
        if verify and n > begin:
            doubt[:] = 0
            for j in range(axes):
                if loose[at[j]]:
                    for w in range(doubt.shape[0]):
                        doubt[w] |= doubts[at[j], w]
            kept = begin
            for k in range(begin, n):
                row = out[k]
                unsure = (doubt[(row >> 6) & _DOUBT_WORDS] >> np.uint64(row & 63)) & np.uint64(1)
                if unsure and not _holds(codes[e], spans, first[row], first[row + 1]):
                    continue
                out[kept] = row
                kept += 1
            n = kept
        offsets[e + 1] = n
    return out[:n]


@_compiled
def _holds(codes: Any, spans: Any, begin: int, end: int) -> bool:
    """Return whether codes lie in the spans of a row: on each axis in one of them."""
    p = begin
    while p < end:
        j = spans[p, 0]
        inside = codes[j] == _MISTYPED
        while p < end and spans[p, 0] == j:
            inside |= spans[p, 1] <= codes[j] < spans[p, 2]
            p += 1
        if not inside:
            return False
    return True


@_compiled
def mark_doubts(doubts: Any, table: Any, row: Any, low: Any, high: Any) -> None:
    """Mark the rows, by the last bits of their number, that allow only a part of a bucket.

    `table` gives the bucket of each code, ascending. A span covers a bucket in part if it begins after the bucket's
    first code or ends before its last.
    """
    for n in range(row.shape[0]):
        word, bit = (row[n] >> 6) & _DOUBT_WORDS, np.uint64(1) << np.uint64(row[n] & 63)
        begin, last = table[low[n]], table[high[n] - 1]
        if low[n] > 0 and table[low[n] - 1] == begin:
            doubts[begin, word] |= bit
        if high[n] < table.shape[0] and table[high[n]] == last:
            doubts[last, word] |= bit


@_compiled
def cluster(low: Any, high: Any, leaf: int) -> Any:
    """Order rows so that those of one block allow similar values, by recursive halving.

    `low[j, r]` and `high[j, r]` are the bounds of the values that row r allows on axis j, as shares of the axis. A
    block is skipped more often if its rows allow fewer values together. So rows are halved by the bound with the
    greatest spread relative to the part of that axis that they cover.
    """
    axes, rows = low.shape
    order = np.arange(rows)
    begins, ends = [0], [rows]
    while len(begins):
        begin, end = begins.pop(), ends.pop()
        size = end - begin
        if size <= leaf:
            continue
        taken = min(2_048, size)
        best, chosen, by_high = 0.0, -1, False
        for j in range(axes):
            sum_low, sum_high, squares_low, squares_high = 0.0, 0.0, 0.0, 0.0
            for n in range(taken):
                row = order[begin + n * size // taken]
                sum_low += low[j, row]
                sum_high += high[j, row]
                squares_low += low[j, row] ** 2
                squares_high += high[j, row] ** 2
            mean_low, mean_high = sum_low / taken, sum_high / taken
            spread_low = np.sqrt(max(0.0, squares_low / taken - mean_low**2))
            spread_high = np.sqrt(max(0.0, squares_high / taken - mean_high**2))
            together = mean_high - mean_low + spread_low + spread_high + 1e-9
            if max(spread_low, spread_high) / together > best:
                best, chosen, by_high = max(spread_low, spread_high) / together, j, spread_high > spread_low
        if chosen < 0:
            continue
        half = begin + max(leaf, size // 2 // leaf * leaf)
        _halve(order, high[chosen] if by_high else low[chosen], begin, end, half)
        begins.append(begin)
        ends.append(half)
        begins.append(half)
        ends.append(end)
    return order


@_compiled
def _halve(order: Any, key: Any, begin: int, end: int, half: int) -> None:
    """Move the rows with the smallest keys before `half` (quickselect)."""
    left, right = begin, end - 1
    while left < right:
        pivot = key[order[(left + right) >> 1]]
        i, j = left, right
        while i <= j:
            while key[order[i]] < pivot:
                i += 1
            while key[order[j]] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if half <= j:
            right = j
        elif half >= i:
            left = i
        else:
            return


@_compiled
def ranks(thresholds: Any, table: Any, low: float, scale: float, values: Any) -> Any:
    """Return for each value how many thresholds it reaches.

    `table` divides the range of the thresholds into equal cells and holds the rank at each cell's edge, so that a
    search covers one or two cells: a twentieth of the time of a binary search over two thousand thresholds.
    """
    cells = table.shape[0] - 1
    out = np.empty(values.shape[0], np.int64)
    for i in range(values.shape[0]):
        value = values[i]
        place = (np.float64(value) - low) * scale
        cell = 0
        if place >= cells:
            cell = cells - 1
        elif place > 0:
            cell = int(place)
        # One more cell on either side, because the cell of a value is rounded.
        first, last = table[max(cell - 1, 0)], table[min(cell + 2, cells)]
        while first < last:
            middle = (first + last) >> 1
            if thresholds[middle] <= value:
                first = middle + 1
            else:
                last = middle
        out[i] = first
    return out


@_compiled
def text_ranks(ends: Any, data: Any, text_ends: Any, texts: Any) -> Any:
    """Return for each text how many of the sorted thresholds it reaches; both are bytes with end offsets."""
    out = np.empty(text_ends.shape[0] - 1, np.int64)
    for i in range(out.shape[0]):
        begin, size = text_ends[i], text_ends[i + 1] - text_ends[i]
        first, last = 0, ends.shape[0] - 1
        while first < last:
            middle = (first + last) >> 1
            at, length = ends[middle], ends[middle + 1] - ends[middle]
            n, shared = 0, min(size, length)
            while n < shared and data[at + n] == texts[begin + n]:
                n += 1
            reached = length <= size if n == shared else data[at + n] < texts[begin + n]
            if reached:
                first = middle + 1
            else:
                last = middle
        out[i] = first
    return out


TRAPEZOID, BELL, GAUSS, S, Z = range(5)
"""Membership functions of fuzzy items; triangles and rectangles are trapezoids."""


@_compiled
def _membership(shape: int, a: float, b: float, c: float, d: float, x: float) -> Any:
    """Return the membership of a number in a fuzzy set; as `filters.membership`."""
    if shape == TRAPEZOID:
        if b <= x <= c:
            return 1.0
        if x <= a or x >= d:
            return 0.0
        return (x - a) / (b - a) if x < b else (d - x) / (d - c)
    if shape == BELL:
        return 1.0 / (1.0 + abs((x - c) / a) ** (2 * b))
    if shape == GAUSS:
        t = (x - a) / b
        return np.exp(-0.5 * t * t)
    if shape == Z:
        if x <= a:
            return 1.0
        if x >= b:
            return 0.0
        t = (x - a) / (b - a)
        return 1 - 2 * t * t if t <= 0.5 else 2 * (1 - t) * (1 - t)
    if x >= b:
        return 1.0
    if x <= a:
        return 0.0
    t = (x - a) / (b - a)
    return 2 * t * t if t <= 0.5 else 1 - 2 * (1 - t) * (1 - t)


@_compiled
def grade(event: Any, group: Any, columns: Any, first: Any, items: Any, groups: Any, slack: float) -> Any:
    """Return for (event, fuzzy group) pairs whether the event reaches the group's thresholds.

    `groups` has one line per group: minimum degree, whether by minimum, sum of weights, negated.
    `items[first[g]:first[g + 1]]` are its items: column, membership function, its four numbers, minimum membership,
    weight, negated, and the bounds of the inner box. An event inside the inner box of every item is accepted without
    computing memberships.
    """
    out = np.empty(event.shape[0], np.bool_)
    for n in range(event.shape[0]):
        e, g = event[n], group[n]
        has_values, inner = True, True
        for k in range(first[g], first[g + 1]):
            x = columns[np.int64(items[k, 0]), e]
            has_values &= x == x
            inner &= items[k, 9] <= x <= items[k, 10]
        if not has_values:
            out[n] = False
            continue
        reached = inner
        if not inner:
            reached = True
            mean, least = 0.0, 1.0
            for k in range(first[g], first[g + 1]):
                x = columns[np.int64(items[k, 0]), e]
                mu = _membership(np.int64(items[k, 1]), items[k, 2], items[k, 3], items[k, 4], items[k, 5], x)
                if items[k, 8]:
                    mu = 1.0 - mu
                if mu < items[k, 6] - slack:
                    reached = False
                    break
                mean += items[k, 7] * mu
                least = min(least, mu)
            degree = least if groups[g, 1] else mean / groups[g, 2]
            reached &= degree >= groups[g, 0] - slack
        out[n] = reached != (groups[g, 3] > 0)
    return out


BOX, CIRCLE, POLYGON = range(3)
"""Kinds of area."""


@_compiled
def within(event: Any, area: Any, columns: Any, areas: Any, first: Any, corners: Any) -> Any:
    """Return for (event, area) pairs whether the event lies in the area; as `filters.areas`.

    `areas` has one line per area: column of the longitude, column of the latitude, kind, negated, and four numbers. For
    a box these are west, south, east and north; for a circle the centre's longitude and latitude in radians, the cosine
    of that latitude, and the haversine of the radius. A polygon has `corners[first[a]:first[a + 1]]`, with the first
    corner repeated at the end.
    """
    out = np.empty(event.shape[0], np.bool_)
    for n in range(event.shape[0]):
        a = area[n]
        x, y = columns[np.int64(areas[a, 0]), event[n]], columns[np.int64(areas[a, 1]), event[n]]
        if x != x or y != y:
            out[n] = False
            continue
        one, two, three, four = areas[a, 4], areas[a, 5], areas[a, 6], areas[a, 7]
        if areas[a, 2] == BOX:
            around = one > three  # it crosses the date line
            inside = (one <= x <= 180 or -180 <= x <= three) if around else one <= x <= three
            inside = inside and two <= y <= four
        elif areas[a, 2] == CIRCLE:
            lon, lat = np.radians(x), np.radians(y)
            haversine = np.sin((lat - two) / 2) ** 2 + three * np.cos(lat) * np.sin((lon - one) / 2) ** 2
            inside = -180 <= x <= 180 and -90 <= y <= 90 and haversine <= four
        else:
            inside = _in_polygon(x, y, first[a], first[a + 1], corners)
        out[n] = inside != (areas[a, 3] > 0)
    return out


@_compiled
def _in_polygon(x: float, y: float, begin: int, end: int, corners: Any) -> bool:
    """Return whether a point lies in a polygon, by the even-odd rule; its edge is inside."""
    inside = False
    for n in range(begin, end - 1):
        x1, y1, x2, y2 = corners[n, 0], corners[n, 1], corners[n + 1, 0], corners[n + 1, 1]
        side = (x2 - x1) * (y - y1) - (x - x1) * (y2 - y1)
        if side == 0 and min(x1, x2) <= x <= max(x1, x2) and min(y1, y2) <= y <= max(y1, y2):
            return True
        if (y1 > y) != (y2 > y) and (side < 0) != (y2 > y1):
            inside = not inside
    return inside


@_compiled
def transpose(offsets: Any, index: Any, size: int) -> Any:
    """Turn lists of numbers by event into lists of events by number: return offsets and events."""
    begins = np.zeros(size + 1, np.int64)
    for n in range(index.shape[0]):
        begins[index[n] + 1] += 1
    for n in range(size):
        begins[n + 1] += begins[n]
    at = begins[:-1].copy()
    events = np.empty(index.shape[0], np.int64)
    for e in range(offsets.shape[0] - 1):
        for n in range(offsets[e], offsets[e + 1]):
            events[at[index[n]]] = e
            at[index[n]] += 1
    return begins, events


def warm_up() -> None:
    """Compile all kernels, or load them from the cache, by running each on a tiny input."""
    bits, words = np.ones((1, 8), np.uint64), np.zeros(8, np.uint64)
    none, no_rows, some = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(2, np.int64)
    summary = np.zeros((1, 1), np.uint64)
    fill(bits, words, no_rows, some, no_rows, some, no_rows)
    summarise(bits, summary)
    codes, yes = np.zeros((1, 1), np.int32), np.ones(1, np.bool_)
    first, spans = np.zeros(2, np.int32), np.zeros((1, 3), np.int32)
    candidates(bits, summary, words, summary[0], first, none, yes, bits, codes, first, spans, some)
    mark_doubts(bits, np.zeros(1, np.int32), no_rows, no_rows, no_rows)
    cluster(np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32), 1)
    for dtype in (np.float64, np.int64, np.uint64):
        one = np.zeros(1, dtype)
        ranks(one, np.zeros(2, np.int64), 0.0, 0.0, one)
    ends, text = np.frombuffer(bytes(16), np.int64), np.frombuffer(b"\0", np.uint8)
    text_ranks(ends, text, ends, text)
    wide = np.zeros((1, 11))
    grade(none, none, wide, some, wide, wide, 0.0)
    within(none, none, wide, wide, some, wide)
    for index in (no_rows, none[:0]):
        transpose(some, index, 1)
