"""Entries that are indexed at the first match."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import Filter
from tidegate.matching import index
from tidegate.matching.index import IndexEntry, LazySnapshots, Owners
from tidegate.matching.rows import Axes

FILTER = Filter("x > 0")
COMPILED = Axes().compile(FILTER)


def owners(entries: Mapping[int, IndexEntry]) -> dict[int, Owners]:
    return {number: entry.owners for number, entry in entries.items()}


@given(st.integers(0, 2**32).map(Random))
def test_snapshot_contains_exactly_the_changes_before_it(rng: Random) -> None:
    snapshots = LazySnapshots(owners)
    model: dict[int, Owners] = {}
    seen: list[tuple[Mapping[int, IndexEntry], dict[int, Owners]]] = []
    for step in range(30):
        put = {rng.randint(0, 9): IndexEntry(FILTER, COMPILED, (f"s{step}",)) for _ in range(rng.randint(0, 3))}
        drop = {rng.randint(0, 9) for _ in range(rng.randint(0, 2))}
        snapshots.apply(put, drop)
        model = {n: who for n, who in {**model, **owners(put)}.items() if n not in drop}
        if rng.random() < 0.4:
            entries, built = snapshots.now()
            assert owners(entries) == built == model
            seen.append((entries, dict(model)))
    assert all(owners(entries) == then for entries, then in seen)
    assert pickle.loads(pickle.dumps(snapshots)).now()[1] == model


def test_index_is_built_once_for_many_changes() -> None:
    built = []
    snapshots = LazySnapshots(lambda entries: built.append(len(entries)))
    for n in range(100):
        snapshots.apply({n: IndexEntry(FILTER, COMPILED, ("s",))})
    snapshots.now()
    snapshots.now()
    assert built == [100]


def test_changes_without_a_reader_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_MAX_PENDING_CHANGES", 10)
    snapshots = LazySnapshots(owners)
    for _ in range(100):
        snapshots.apply({1: IndexEntry(FILTER, COMPILED, ("s",))})
        snapshots.apply({}, [1])
        assert len(snapshots._now.log) <= 14
    assert snapshots.now() == ({}, {})
