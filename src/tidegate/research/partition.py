"""Splits a matching tree into parts of about equal work (SDaaS, definition 9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar, get_args

import numpy as np

from tidegate.errors import MatcherError, did_you_mean
from tidegate.research.tree import TreeBranch

PredicateKey = TypeVar("PredicateKey")
By = Literal["predicates", "count"]
"""What the parts have in about equal numbers: predicates, or subtrees (naive, for comparison)."""
Ending = tuple[int, tuple[PredicateKey, ...]]
"""The number of an entry, and the predicates on its path."""

SUBTREES_PER_PART = 4
"""Subtrees per part, if a level has as many: with fewer, one large subtree decides the balance."""


def partition(sizes: Sequence[int], parts: int) -> list[slice]:
    """Split a sequence of sizes into at most `parts` runs whose largest sum is as small as possible.

    The linear partition of the paper's [48], which is O(k n^2) there. Here it is O(k n log n) with the same optimum:
    when the last cut moves right, the sum before it grows and the sum after it shrinks, so the best cut is where they
    meet.

    >>> partition([3, 1, 1, 2, 2, 1], 2)
    [slice(0, 3, None), slice(3, 6, None)]
    >>> partition([12, 4, 7], 2)
    [slice(0, 1, None), slice(1, 3, None)]
    """
    sums = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    largest = sums  # the first i sizes in one part
    cuts = []
    for _ in range(parts - 1):
        meet = np.searchsorted(largest + sums, sums)  # the first cut whose front sum reaches its back sum
        before = np.maximum(meet - 1, 0)
        at = np.where(sums - sums[before] < largest[meet], before, meet)
        largest = np.maximum(largest[at], sums - sums[at])
        cuts.append(at)
    runs: list[slice] = []
    end = len(sizes)
    for at in reversed(cuts):
        runs.append(slice(int(at[end]), end))
        end = int(at[end])
    runs.append(slice(0, end))
    return [part for part in reversed(runs) if part.start < part.stop]


def even(count: int, parts: int) -> list[slice]:
    """Split `count` items into at most `parts` runs whose lengths differ by at most one.

    >>> even(5, 2)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return partition([1] * count, parts)


def level(widths: Sequence[int], parts: int) -> int:
    """Return the level (from 1) at which to split a tree into subtrees, given the number of nodes of each level.

    The first level with several times as many nodes as parts, else the first with enough, else the deepest of the
    widest.

    >>> level([3, 9, 40], 2), level([3, 5, 6], 2), level([2, 3, 3], 4)
    (2, 1, 3)
    """
    for needed in (SUBTREES_PER_PART * parts, parts):
        for at, width in enumerate(widths, 1):
            if width >= needed:
                return at
    return max(range(1, len(widths) + 1), key=lambda at: (widths[at - 1], at), default=0)


def split(root: TreeBranch[PredicateKey], parts: int, by: By = "predicates") -> list[list[Ending[PredicateKey]]]:
    """Distribute the conjuncts of a tree over at most `parts` parts, subtree by subtree.

    Every conjunct is in one part and keeps its whole path, so each part is a tree.
    """
    check_by(by)
    subtrees = list(_subtrees(root, level(root.widths(), parts)))
    runs = even(len(subtrees), parts) if by == "count" else partition([size for size, _ in subtrees], parts)
    return [[ending for _, endings in subtrees[run] for ending in endings] for run in runs]


def check_by(by: str) -> None:
    """Raise `MatcherError` for an unknown way to split."""
    if by not in get_args(By):
        hint = did_you_mean(str(by), get_args(By)) or f"; expected one of {', '.join(get_args(By))}"
        raise MatcherError(f"unknown split {by!r}{hint}")


def _subtrees(root: TreeBranch[PredicateKey], at: int) -> Iterator[tuple[int, list[Ending[PredicateKey]]]]:
    """Yield the subtrees at a level in order: their number of predicates, and their conjuncts.

    A conjunct that ends above the level is a subtree of its own.
    """
    for branch, path in _nodes(root, (), at):
        if len(path) < at:
            if branch.ends:
                yield 1, [(number, path) for number in branch.ends]
        else:
            below = _nodes(branch, path)
            endings = [(number, full) for node, full in below for number in node.ends]
            if endings:  # there are none only in an empty tree
                yield 1 + branch.size(), endings


def _nodes(
    root: TreeBranch[PredicateKey], path: tuple[PredicateKey, ...], deepest: int | None = None
) -> Iterator[tuple[TreeBranch[PredicateKey], tuple[PredicateKey, ...]]]:
    """Yield the nodes of a tree in order, down to a level, each with the predicates on its path."""
    pending = [(root, path)]
    while pending:
        branch, path_here = pending.pop()
        yield branch, path_here
        if deepest is None or len(path_here) < deepest:
            pending.extend((below, (*path_here, key)) for key, below in reversed(branch.below.items()))
