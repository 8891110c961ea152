"""The loops over all services, compiled by numba; they release the GIL.

Compiled code is cached on disk. Call `warm_up` at start, so that no request waits for the compiler.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

_compiled: Any = njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")


def _lowest_bit(typingctx: Any, x: Any) -> Any:  # noqa: ARG001 - numba's signature
    """Return the index of the lowest set bit by one instruction; undefined for 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001 - numba's signature
        from llvmlite import ir

        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


_trailing_zeros: Any = intrinsic(_lowest_bit)

_CHUNK = 64
"""Words that are counted together: the sums stay in the first-level cache, and the compiler vectorises the loops."""


@_compiled
def count(slices: Any, first: Any, begins: Any, bits: Any, minimum: int, out: Any) -> None:
    """Count for each slot the requested attributes that have at least one form with all bits set.

    The forms of requested attribute q are `first[q]` to `first[q + 1]`; form f has the bits from `begins[f]` to
    `begins[f + 1]`, and each bit is a line of `slices`. The sums are bit slices too: line p of `planes` holds bit p of
    64 sums per word. Sums below `minimum` are not written.
    """
    attributes = first.shape[0] - 1
    depth = 1
    while (1 << depth) <= attributes:
        depth += 1
    planes = np.empty((depth, _CHUNK), np.uint64)
    whole = np.empty(_CHUNK, np.uint64)
    some = np.empty(_CHUNK, np.uint64)
    zero, ones = np.uint64(0), ~np.uint64(0)
    words = (out.shape[0] + 63) >> 6
    for begin in range(0, words, _CHUNK):
        end = min(_CHUNK, words - begin)
        planes[:] = zero
        for q in range(attributes):
            some[:] = zero
            for f in range(first[q], first[q + 1]):
                whole[:] = ones
                for p in range(begins[f], begins[f + 1]):
                    line = slices[bits[p]]
                    for w in range(end):
                        whole[w] &= line[begin + w]
                for w in range(end):
                    some[w] |= whole[w]
            # Add one bit to 64 sums per word; no sum is above q, so no carry goes beyond its depth.
            p = 0
            while (1 << p) <= q + 1:
                for w in range(end):
                    carry = planes[p, w] & some[w]
                    planes[p, w] ^= some[w]
                    some[w] = carry
                p += 1
        for w in range(end):
            enough, equal = zero, ones
            for p in range(depth - 1, -1, -1):
                if (minimum >> p) & 1:
                    equal &= planes[p, w]
                else:
                    enough |= equal & planes[p, w]
                    equal &= ~planes[p, w]
            pending = enough | equal
            while pending:
                at = _trailing_zeros(pending)
                pending &= pending - np.uint64(1)
                total = zero
                for p in range(depth):
                    total |= ((planes[p, w] >> at) & np.uint64(1)) << np.uint64(p)
                slot = 64 * (begin + w) + np.int64(at)
                if slot < out.shape[0]:
                    out[slot] = total


@_compiled
def turn(slices: Any, place: int, positions: Any, on: bool) -> None:
    """Set or clear bits of one slot."""
    word, bit = place >> 6, np.uint64(1) << np.uint64(place & 63)
    for n in range(positions.shape[0]):
        if on:
            slices[positions[n], word] |= bit
        else:
            slices[positions[n], word] &= ~bit


@_compiled
def verify(
    chosen: Any, begin: Any, count: Any, pool: Any, line_of: Any, likeness: Any, counts: Any, total: Any
) -> None:
    """Count for each chosen row the requested attributes that it has, and sum up their similarities.

    The attributes of row r are `pool[begin[r] : begin[r] + count[r]]`. `line_of` has the line of `likeness` for each
    requested attribute, and -1 for all others; a line has the similarity to each requested attribute, 0 for none.
    """
    best = np.empty(likeness.shape[1], np.float32)
    for n in range(chosen.shape[0]):
        best[:] = 0
        r = chosen[n]
        for p in range(begin[r], begin[r] + count[r]):
            line = line_of[pool[p]]
            if line >= 0:
                for q in range(likeness.shape[1]):
                    best[q] = max(best[q], likeness[line, q])
        number, likenesses = 0, 0.0
        for q in range(likeness.shape[1]):
            number += best[q] > 0
            likenesses += best[q]
        counts[n] = number
        total[n] = likenesses


@_compiled
def encode(slices: Any, begin: Any, count: Any, pool: Any, key_of: Any, bits_of: Any) -> None:
    """Set the bits of each slot's attributes."""
    for r in range(count.shape[0]):
        word, bit = r >> 6, np.uint64(1) << np.uint64(r & 63)
        for p in range(begin[r], begin[r] + count[r]):
            key = key_of[pool[p]]
            for k in range(bits_of.shape[1]):
                slices[bits_of[key, k], word] |= bit


@_compiled
def compact(begin: Any, count: Any, pool: Any, into: Any) -> Any:
    """Copy the attributes of all rows into one contiguous array, and return its end."""
    end: Any = 0
    for r in range(count.shape[0]):
        at = begin[r]
        begin[r] = end
        for p in range(count[r]):
            into[end + p] = pool[at + p]
        end += count[r]
    return end


def warm_up() -> None:
    """Compile all kernels, or load them from the cache, by calling them on minimal input."""
    slices, two, one = np.zeros((1, 1), np.uint64), np.zeros(2, np.int32), np.zeros(1, np.int32)
    count(slices, two, two, one, 1, np.zeros(1, np.uint16))
    turn(slices, 0, one, True)
    counts, pool = np.zeros(1, np.uint16), np.zeros(1, np.uint32)
    counts_out, total = np.zeros(1, np.uint16), np.zeros(1, np.float32)
    verify(np.zeros(1, np.int64), one, counts, pool, one, np.zeros((1, 1), np.float32), counts_out, total)
    encode(slices, one, counts, pool, one, np.zeros((1, 1), np.int32))
    compact(one, counts, pool, pool)
