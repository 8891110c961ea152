"""Cuts a matching tree into parts of about equal work (SDaaS, definition 9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar, get_args

import numpy as np

from tidegate.errors import MatcherError, did_you_mean
from tidegate.research.tree import Branch

Key = TypeVar("Key")
By = Literal["predicates", "count"]
"""What parts have about as many of: predicates, or subtrees (naive, to compare with)."""
Ending = tuple[int, tuple[Key, ...]]
"""The number of an entry, and the predicates on the way to it."""

SEVERAL = 4
"""Subtrees for each part, where a level has as many: with few, one large subtree decides."""


def partition(sizes: Sequence[int], parts: int) -> list[slice]:
    """Cut a sequence of sizes into at most `parts` runs whose largest sum is as small as it can be.

    The linear partition of the paper's [48]. It is O(k n^2) there; here O(k n log n),
    to the same optimum: where the last cut moves right, what is before it grows and
    what is behind it shrinks, so the best cut is where they meet.

    >>> partition([3, 1, 1, 2, 2, 1], 2)
    [slice(0, 3, None), slice(3, 6, None)]
    >>> partition([12, 4, 7], 2)
    [slice(0, 1, None), slice(1, 3, None)]
    """
    sums = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    least = sums  # of the first i sizes in one part
    cuts = []
    for _ in range(parts - 1):
        meet = np.searchsorted(least + sums, sums)  # the first cut whose front weighs as much as its back
        before = np.maximum(meet - 1, 0)
        at = np.where(sums - sums[before] < least[meet], before, meet)
        least = np.maximum(least[at], sums - sums[at])
        cuts.append(at)
    found: list[slice] = []
    end = len(sizes)
    for at in reversed(cuts):
        found.append(slice(int(at[end]), end))
        end = int(at[end])
    found.append(slice(0, end))
    return [part for part in reversed(found) if part.start < part.stop]


def even(count: int, parts: int) -> list[slice]:
    """Cut `count` things into at most `parts` runs of equal length, give or take one.

    >>> even(5, 2)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return partition([1] * count, parts)


def level(widths: Sequence[int], parts: int) -> int:
    """Choose the level (from 1) at which a tree falls into subtrees, by how many nodes each level has.

    The first with several times as many as there are parts, else the first with
    enough, else the deepest of the widest.

    >>> level([3, 9, 40], 2), level([3, 5, 6], 2), level([2, 3, 3], 4)
    (2, 1, 3)
    """
    for wanted in (SEVERAL * parts, parts):
        for at, width in enumerate(widths, 1):
            if width >= wanted:
                return at
    return max(range(1, len(widths) + 1), key=lambda at: (widths[at - 1], at), default=0)


def split(root: Branch[Key], parts: int, by: By = "predicates") -> list[list[Ending[Key]]]:
    """Share out the conjuncts of a tree, subtree by subtree, in at most `parts` parts.

    Every conjunct is in one part. It keeps its whole path, so a part is a tree of its own.
    """
    check_by(by)
    subtrees = list(_subtrees(root, level(root.widths(), parts)))
    runs = even(len(subtrees), parts) if by == "count" else partition([size for size, _ in subtrees], parts)
    return [[ending for _, endings in subtrees[run] for ending in endings] for run in runs]


def check_by(by: str) -> None:
    """Refuse a split that there is not."""
    if by not in get_args(By):
        hint = did_you_mean(str(by), get_args(By)) or f"; expected one of {', '.join(get_args(By))}"
        raise MatcherError(f"unknown split {by!r}{hint}")


def _subtrees(root: Branch[Key], at: int) -> Iterator[tuple[int, list[Ending[Key]]]]:
    """Give the subtrees at a level, in order: how many predicates each has, and its conjuncts.

    A conjunct that ends above the level is a subtree by itself.
    """
    for branch, path in _nodes(root, (), at):
        if len(path) < at:
            if branch.ends:
                yield 1, [(number, path) for number in branch.ends]
        else:
            below = _nodes(branch, path)
            endings = [(number, full) for each, full in below for number in each.ends]
            if endings:  # but for an empty tree there are some
                yield 1 + branch.size(), endings


def _nodes(
    root: Branch[Key], path: tuple[Key, ...], deepest: int | None = None
) -> Iterator[tuple[Branch[Key], tuple[Key, ...]]]:
    """Walk a tree in order, down to a level: each node and the predicates on the way to it."""
    pending = [(root, path)]
    while pending:
        branch, here = pending.pop()
        yield branch, here
        if deepest is None or len(here) < deepest:
            pending.extend((below, (*here, key)) for key, below in reversed(branch.below.items()))
