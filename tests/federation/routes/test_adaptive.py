"""Adaptive filtering: links filter while it pays, and always forward requested events."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.federation.network import SERVICE, Network
from tidegate.federation.routes import Adaptive, AdaptiveSettings
from tidegate.filters import Filter

SETTINGS = AdaptiveSettings(crossing_s=50e-6, window=20, sample=4, margin=1.5, max_dropped_share=0.5)


def decide_each(policy: Adaptive, matches: list[bool], spent_s: float = 20e-6) -> list[bool]:
    """Pass events to a policy, which match or not. Returns for each event whether it is forwarded."""
    return [policy.decide(is_match, spent_s) if policy.matches_next() else policy.decide(None) for is_match in matches]


def test_link_on_which_all_events_match_becomes_coarse() -> None:
    policy = Adaptive(SETTINGS)
    assert all(decide_each(policy, [True] * 20))
    assert policy.is_coarse
    assert all(decide_each(policy, [True] * 80))
    assert (policy.is_coarse, policy.figures.asked, policy.figures.forwarded) == (True, 20 + 20, 100)


def test_link_that_stops_many_events_keeps_filtering() -> None:
    policy = Adaptive(SETTINGS)
    assert sum(decide_each(policy, [False, True] * 100)) == 100
    assert (policy.is_coarse, policy.figures.stopped, policy.figures.excess) == (False, 100, 0)


def test_coarse_link_filters_again_when_its_sample_does_not_match() -> None:
    policy = Adaptive(SETTINGS)
    decide_each(policy, [True] * 20)
    assert all(decide_each(policy, [False] * 20))  # forwarded, and dropped by the neighbour
    assert (policy.is_coarse, policy.figures.tightened, policy.figures.excess) == (False, 1, 5)
    assert not any(decide_each(policy, [False] * 10))


def test_coarse_link_filters_again_when_neighbour_drops_more_than_half() -> None:
    policy = Adaptive(SETTINGS)
    decide_each(policy, [True] * 20)
    decide_each(policy, [True] * 10)
    policy.report_dropped(5, of=10)
    assert policy.is_coarse
    policy.report_dropped(1, of=1)
    assert (policy.is_coarse, policy.figures.dropped, policy.figures.tightened) == (False, 6, 1)


def test_link_keeps_its_mode_when_both_cost_the_same() -> None:
    for begin in ([], [True] * 20):
        policy = Adaptive(SETTINGS)
        decide_each(policy, begin)
        before = policy.is_coarse
        decide_each(policy, [n % 5 < 2 for n in range(400)], spent_s=0.6 * 50e-6)  # costs as much as it saves
        assert policy.is_coarse == before == bool(begin)


@given(
    events=st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 1e-6, 1.0]), st.integers(0, 3)), max_size=200),
    window=st.integers(1, 10),
    sample=st.integers(1, 5),
)
def test_matching_event_is_forwarded_in_every_mode(
    events: list[tuple[bool, float, int]], window: int, sample: int
) -> None:
    policy = Adaptive(AdaptiveSettings(window=window, sample=sample))
    for is_match, spent_s, dropped in events:
        is_forwarded = policy.decide(is_match, spent_s) if policy.matches_next() else policy.decide(None)
        assert is_forwarded or not is_match
        policy.report_dropped(dropped, of=9)
    figures = policy.figures
    assert figures.forwarded + figures.stopped == len(events)
    assert figures.stopped + figures.excess <= figures.asked <= len(events)
    assert figures.coarsened - figures.tightened == policy.is_coarse


@given(
    batches=st.lists(st.tuples(st.lists(st.booleans(), max_size=30), st.integers(0, 9)), max_size=20),
    window=st.integers(1, 10),
    sample=st.integers(1, 5),
)
def test_batches_are_sampled_and_counted_like_single_events(
    batches: list[tuple[list[bool], int]], window: int, sample: int
) -> None:
    """The mode changes only between batches."""
    policy = Adaptive(AdaptiveSettings(window=window, sample=sample))
    seen = 0
    for matches, dropped in batches:
        was_coarse = policy.is_coarse
        positions = policy.sample_of(len(matches))
        assert list(positions) == [n for n in range(len(matches)) if not was_coarse or (seen + n + 1) % sample == 0]
        unmatched = sum(not matches[n] for n in positions)
        before = policy.figures.forwarded
        forwards_all = policy.decide_all(len(matches), len(positions), unmatched, 0.0)
        assert forwards_all == was_coarse
        assert policy.figures.forwarded - before == (len(matches) if forwards_all else sum(matches))
        seen += len(matches)
        policy.report_dropped(dropped, of=9)
    figures = policy.figures
    assert figures.forwarded + figures.stopped == seen
    assert figures.stopped + figures.excess <= figures.asked <= seen
    assert figures.coarsened - figures.tightened == policy.is_coarse


def test_coarse_link_ignores_dropped_events_until_a_full_window() -> None:
    policy = Adaptive(AdaptiveSettings(window=40, sample=4))
    decide_each(policy, [True] * 40)
    for _ in range(9):
        policy.decide(None)
        policy.report_dropped(1, of=1)
    assert policy.is_coarse
    policy.decide(None)
    policy.report_dropped(1, of=1)
    assert not policy.is_coarse


def test_broker_has_a_policy_per_link_and_service() -> None:
    settings = AdaptiveSettings(asking_s=1e-6, window=10, sample=2)
    network = Network([("here", "there")], "covering", adaptive=settings)
    network.subscribe("here", "s", Filter("a >= 0"))
    network.settle(Random(0))
    there = network.brokers["there"]
    assert there.link("here").filter_policy("others") is None  # not requested
    for n in range(10):
        assert there.towards(SERVICE, {"a": n}) == ["here"]
    policy = there.link("here").filter_policy(SERVICE)
    assert policy is not None
    assert policy.is_coarse
    assert there.towards(SERVICE, {"a": -1}) == ["here"]
    for _ in range(10):
        there.towards(SERVICE, {"a": -1})
    assert there.towards(SERVICE, {"a": -1}) == []
    network.unsubscribe("here", "s")
    network.settle(Random(0))
    assert there.towards(SERVICE, {"a": 1}) == []  # coarse, but no longer requested
    assert network.brokers["here"].link("there").filter_policy(SERVICE) is None
