"""The inner loops, compiled by numba: no Python per event, no GIL held.

Compiled code is cached on disk; `warm_up` makes sure that no event waits for a
compiler.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

_compiled: Any = njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")


def _lowest_bit(typingctx: Any, x: Any) -> Any:  # noqa: ARG001 - numba's signature
    """The number of the lowest bit that is set, by one instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001 - numba's signature
        from llvmlite import ir

        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


_trailing_zeros: Any = intrinsic(_lowest_bit)


@_compiled
def checkpoints(base: Any, toggles: Any, step: int, rows: Any) -> None:
    """Fill bitset rows with the state after every `step` toggles, the first with `base`."""
    words = base.shape[0]
    state = base.copy()
    rows[0, :] = state
    filled = 1
    for t in range(toggles.shape[0]):
        row = toggles[t]
        state[row >> 6] ^= np.uint64(1) << np.uint64(row & 63)
        if (t + 1) % step == 0:
            for w in range(words):
                rows[filled, w] = state[w]
            filled += 1


@_compiled
def candidates(bits: Any, at: Any, begin: Any, end: Any, toggles: Any, offsets: Any, start: Any) -> Any:
    """Give the rows that every attribute of each event allows, event after event.

    `at[j, e]` is the checkpoint of attribute j for event e, `toggles[begin:end]`
    what has changed since. `offsets` gets where each event's rows begin.
    """
    attributes, events = at.shape
    words = bits.shape[1]
    every = np.empty(words, np.uint64)
    one = np.empty(words, np.uint64)
    out = np.empty(1 << 12, np.int32)
    n = 0
    for e in range(events):
        for w in range(words):
            every[w] = start[w]
        for j in range(attributes):
            row = bits[at[j, e]]
            first, last = begin[j, e], end[j, e]
            if first == last:
                for w in range(words):
                    every[w] &= row[w]
                continue
            for w in range(words):
                one[w] = row[w]
            for t in range(first, last):
                r = toggles[t]
                one[r >> 6] ^= np.uint64(1) << np.uint64(r & 63)
            for w in range(words):
                every[w] &= one[w]
        for w in range(words):
            word = every[w]
            while word:
                if n == out.shape[0]:
                    grown = np.empty(2 * n, np.int32)
                    grown[:n] = out
                    out = grown
                out[n] = np.int32(w * 64) + np.int32(_trailing_zeros(word))
                n += 1
                word &= word - np.uint64(1)
        offsets[e + 1] = n
    return out[:n]


@_compiled
def ranks(thresholds: Any, table: Any, low: float, scale: float, values: Any) -> Any:
    """Say for each value how many thresholds it reaches.

    `table` cuts the range of the thresholds into equal cells and holds the rank
    at each cell's edge, so that a search covers a cell or two and not all
    thresholds: a twentieth of the time of a binary search over two thousand.
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
        # One cell more on either side: the place of a value is rounded.
        first, last = table[max(cell - 1, 0)], table[min(cell + 2, cells)]
        while first < last:
            middle = (first + last) >> 1
            if thresholds[middle] <= value:
                first = middle + 1
            else:
                last = middle
        out[i] = first
    return out


def warm_up() -> None:
    """Compile, or load what was compiled before, on a case of one."""
    bits = np.ones((1, 1), np.uint64)
    none = np.zeros((1, 1), np.int64)
    rows = np.zeros((2, 1), np.uint64)
    checkpoints(bits[0], np.zeros(1, np.int32), 1, rows)
    candidates(bits, none, none, none, np.zeros(1, np.int32), np.zeros(2, np.int64), bits[0])
    for dtype in (np.float64, np.int64, np.uint64):
        one = np.zeros(1, dtype)
        ranks(one, np.zeros(2, np.int64), 0.0, 0.0, one)
