"""Partitions of a sequence and of a tree, compared with all partitions."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import MatcherError
from tidegate.research.partition import even, level, partition, split
from tidegate.research.tree import TreeBranch


def best(sizes: list[int], parts: int) -> int:
    """Return the smallest largest sum over all partitions."""
    ways = combinations(range(len(sizes) + 1), min(parts, len(sizes)) - 1)
    return min(max(sum(sizes[a:b]) for a, b in pairwise((0, *cuts, len(sizes)))) for cuts in ways)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=9), st.integers(1, 5))
def test_partition_minimises_the_largest_part(sizes: list[int], parts: int) -> None:
    actual = partition(sizes, parts)
    assert len(actual) <= parts
    assert [n for run in actual for n in range(run.start, run.stop)] == list(range(len(sizes)))
    assert all(run.start < run.stop for run in actual)
    assert max(sum(sizes[run]) for run in actual) == best(sizes, parts)


def test_empty_tree_has_no_parts() -> None:
    assert partition([], 3) == []


def test_long_sequence_is_partitioned_quickly() -> None:
    actual = partition([1, 2, 3] * 50_000, 8)
    assert {run.stop - run.start for run in actual} <= set(range(18_740, 18_760))


@given(st.integers(0, 40), st.integers(1, 6))
def test_even_split_is_within_one_item_of_the_largest(count: int, parts: int) -> None:
    lengths = [run.stop - run.start for run in even(count, parts)]
    assert sum(lengths) == count
    assert max(lengths, default=0) == -(-count // parts)


conjunct_lists = st.lists(st.lists(st.sampled_from("abcdef"), max_size=5, unique=True).map(sorted), max_size=20)


def build_tree(conjuncts: list[list[str]]) -> TreeBranch[str]:
    root: TreeBranch[str] = TreeBranch()
    for number, terms in enumerate(conjuncts):
        root.grow(terms, number)
    return root


@given(conjunct_lists, st.integers(1, 4), st.sampled_from(["predicates", "count"]))
def test_every_conjunct_is_in_one_part_with_its_whole_path(conjuncts: list[list[str]], parts: int, by: Any) -> None:
    actual = split(build_tree(conjuncts), parts, by)
    assert len(actual) <= parts
    endings = [(number, list(path)) for part in actual for number, path in part]
    assert sorted(endings) == list(enumerate(conjuncts))


def test_tree_is_split_by_predicates_not_by_subtrees() -> None:
    """Three subtrees of 5, 1 and 1 predicates: in halves by count the first brings another along."""
    root = build_tree([["a", "b"], ["a", "c"], ["a", "d"], ["a", "e"], ["x"], ["y"]])
    assert root.widths() == [3, 4]
    by_predicates, by_count = split(root, 2), split(root, 2, "count")
    assert [[number for number, _ in part] for part in by_predicates] == [[0, 1, 2, 3], [4, 5]]
    assert [len(part) for part in by_count] in ([5, 1], [4, 2])


def test_split_level_prefers_wide_levels() -> None:
    widths = [1, 3, 20, 7]
    assert [level(widths, parts) for parts in (1, 2, 5, 6, 21)] == [3, 3, 3, 3, 3]
    assert level([4, 4], 1) == 1
    assert level([2, 3, 3], 4) == 3
    assert level([], 4) == 0


def test_conjuncts_below_one_common_predicate_are_still_split() -> None:
    actual = split(build_tree([["a", "b", str(n)] for n in range(10)]), 2)
    assert [len(part) for part in actual] == [5, 5]


def test_unknown_split_is_refused_by_name() -> None:
    with pytest.raises(MatcherError, match="unknown split 'counts'; did you mean 'count'"):
        split(build_tree([]), 2, "counts")  # type: ignore[arg-type]
    with pytest.raises(MatcherError, match="unknown split 7; expected one of predicates, count"):
        split(build_tree([]), 2, 7)  # type: ignore[arg-type]
