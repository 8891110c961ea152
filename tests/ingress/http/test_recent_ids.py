"""Ids that came lately."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingress.kit import HandClock
from tidegate.ingress.http.recent_ids import RecentIds, read_recent_ids
from tidegate.logs import SegmentLog


@given(
    st.lists(st.tuples(st.integers(0, 15).map(str), st.sampled_from([0.0, 0.5, 3.0, 10.0])), max_size=60),
    st.integers(1, 8),
    st.sampled_from([1.0, 5.0, 1e9]),
)
def test_recent_ids_agree_with_a_plain_list(steps: list[tuple[str, float]], most: int, age_s: float) -> None:
    seen, oracle, now = RecentIds(most, age_s), list[tuple[str, float]](), 0.0
    for id_, passed in steps:
        now += passed
        seen.expire(now)
        known = {old for old, moment in oracle[-most:] if now - moment < age_s}
        assert seen.add(id_, now) == (id_ not in known)
        if id_ not in known:
            oracle.append((id_, now))
        assert len(seen) <= most


@given(st.lists(st.text(max_size=3), max_size=40))
def test_without_limits_it_is_a_set(ids: list[str]) -> None:
    seen, oracle = RecentIds(1_000, 1e9), set[str]()
    for id_ in ids:
        assert seen.add(id_, 0.0) == (id_ not in oracle)
        oracle.add(id_)
    assert len(seen) == len(oracle)


# Found again -----------------------------------------------------------------------


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def log(tmp_path: Path, clock: HandClock) -> Iterator[SegmentLog]:
    made = SegmentLog(tmp_path, clock=clock.now, segment_bytes=256 * 1024)
    made.create("s", ["0", "1"])
    yield made
    made.close()


def fill(log: SegmentLog, clock: HandClock, seconds: int, step_s: float = 1.0) -> list[str]:
    """Some records a step, so long that the time index notices, every other with an id."""
    ids = []
    for n in range(seconds):
        for partition in ("0", "1"):
            ids.append(f"{partition}:{n}")
            record = {"_id": ids[-1], "pad": "x" * 70_000}
            log.append("s", partition, [json.dumps(record).encode(), b'{"n":1}', b'{"in":{"_id":"no"}}'])
        clock.advance(step_s)
    return ids


def test_ids_are_found_at_the_end_of_the_log(log: SegmentLog, clock: HandClock) -> None:
    assert read_recent_ids(log, "s", log.end("s"), 100, 600.0, clock.now()) == []
    ids = fill(log, clock, 10)
    found = read_recent_ids(log, "s", log.end("s"), 1_000, 600.0, clock.now())
    assert sorted(found) == sorted(ids)
    assert [id_ for id_ in found if id_.startswith("0")] == [id_ for id_ in ids if id_.startswith("0")]


def test_older_ones_are_not_looked_for(log: SegmentLog, clock: HandClock) -> None:
    ids = fill(log, clock, 40)
    found = set(read_recent_ids(log, "s", log.end("s"), 1_000, 10.0, clock.now()))
    assert set(ids[-20:]) <= found <= set(ids[-26:])


def test_so_many_records_are_read_and_the_newest_first(log: SegmentLog, clock: HandClock) -> None:
    ids = fill(log, clock, 60)
    found = read_recent_ids(log, "s", log.end("s"), 60, 600.0, clock.now())
    assert len(found) <= 60
    assert set(ids[-10:]) <= set(found)
