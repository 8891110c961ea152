"""A link filters as far as it pays, and never loses what somebody wants."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.federation.network import SERVICE, Network
from tidegate.federation.routes import Adaptive, AdaptiveSettings
from tidegate.filters import Filter

SETTINGS = AdaptiveSettings(crossing_s=50e-6, window=20, sample=4, margin=1.5, most_dropped=0.5)


def offer(link: Adaptive, wanted: list[bool], spent_s: float = 20e-6) -> list[bool]:
    """Events that are wanted or not come to a link; which of them it forwards."""
    return [link.decide(each, spent_s) if link.asks() else link.decide(None) for each in wanted]


def test_a_link_that_stops_nothing_forwards_without_asking() -> None:
    link = Adaptive(SETTINGS)
    assert all(offer(link, [True] * 20))
    assert link.is_coarse
    assert all(offer(link, [True] * 80))
    assert (link.is_coarse, link.figures.asked, link.figures.forwarded) == (True, 20 + 20, 100)


def test_a_link_that_stops_much_goes_on_asking() -> None:
    link = Adaptive(SETTINGS)
    assert sum(offer(link, [False, True] * 100)) == 100
    assert (link.is_coarse, link.figures.stopped, link.figures.excess) == (False, 100, 0)


def test_a_coarse_link_tightens_when_its_sample_says_that_asking_pays() -> None:
    link = Adaptive(SETTINGS)
    offer(link, [True] * 20)
    assert all(offer(link, [False] * 20))  # forwarded, and dropped by the other side
    assert (link.is_coarse, link.figures.tightened, link.figures.excess) == (False, 1, 5)
    assert not any(offer(link, [False] * 10))


def test_a_coarse_link_tightens_when_the_other_side_drops_much() -> None:
    link = Adaptive(SETTINGS)
    offer(link, [True] * 20)
    offer(link, [True] * 10)
    link.dropped(5, of=10)
    assert link.is_coarse
    link.dropped(1, of=1)
    assert (link.is_coarse, link.figures.dropped, link.figures.tightened) == (False, 6, 1)


def test_a_link_on_the_edge_stays_as_it_is() -> None:
    for begin in ([], [True] * 20):
        link = Adaptive(SETTINGS)
        offer(link, begin)
        before = link.is_coarse
        offer(link, [n % 5 < 2 for n in range(400)], spent_s=0.6 * 50e-6)  # costs as much as it saves
        assert link.is_coarse == before == bool(begin)


@given(
    events=st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 1e-6, 1.0]), st.integers(0, 3)), max_size=200),
    window=st.integers(1, 10),
    sample=st.integers(1, 5),
)
def test_what_is_wanted_is_forwarded_whatever_was_decided(
    events: list[tuple[bool, float, int]], window: int, sample: int
) -> None:
    link = Adaptive(AdaptiveSettings(window=window, sample=sample))
    for is_wanted, spent_s, dropped in events:
        is_sent = link.decide(is_wanted, spent_s) if link.asks() else link.decide(None)
        assert is_sent or not is_wanted
        link.dropped(dropped, of=9)
    figures = link.figures
    assert figures.forwarded + figures.stopped == len(events)
    assert figures.stopped + figures.excess <= figures.asked <= len(events)
    assert figures.coarsened - figures.tightened == link.is_coarse


@given(
    batches=st.lists(st.tuples(st.lists(st.booleans(), max_size=30), st.integers(0, 9)), max_size=20),
    window=st.integers(1, 10),
    sample=st.integers(1, 5),
)
def test_many_events_at_once_are_decided_as_one_by_one(
    batches: list[tuple[list[bool], int]], window: int, sample: int
) -> None:
    """Which of a batch are asked about, what is forwarded, and the counts; decisions come between batches alone."""
    link = Adaptive(AdaptiveSettings(window=window, sample=sample))
    seen = 0
    for wanted, dropped in batches:
        was_coarse = link.is_coarse
        asked = link.asked_of(len(wanted))
        assert list(asked) == [n for n in range(len(wanted)) if not was_coarse or (seen + n + 1) % sample == 0]
        unwanted = sum(not wanted[n] for n in asked)
        before = link.figures.forwarded
        sends_all = link.decide_all(len(wanted), len(asked), unwanted, 0.0)
        assert sends_all == was_coarse
        assert link.figures.forwarded - before == (len(wanted) if sends_all else sum(wanted))
        seen += len(wanted)
        link.dropped(dropped, of=9)
    figures = link.figures
    assert figures.forwarded + figures.stopped == seen
    assert figures.stopped + figures.excess <= figures.asked <= seen
    assert figures.coarsened - figures.tightened == link.is_coarse


def test_a_coarse_link_does_not_tighten_by_one_event_that_was_dropped() -> None:
    link = Adaptive(AdaptiveSettings(window=40, sample=4))
    offer(link, [True] * 40)
    for _ in range(9):
        link.decide(None)
        link.dropped(1, of=1)
    assert link.is_coarse
    link.decide(None)
    link.dropped(1, of=1)
    assert not link.is_coarse


def test_a_broker_adapts_each_link_and_service_by_itself() -> None:
    settings = AdaptiveSettings(asking_s=1e-6, window=10, sample=2)
    network = Network([("here", "there")], "covering", adaptive=settings)
    network.subscribe("here", "s", Filter("a >= 0"))
    network.settle(Random(0))
    there = network.brokers["there"]
    assert there.link("here").filter_policy("others") is None  # nobody asked for any
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
    assert there.towards(SERVICE, {"a": 1}) == []  # however coarse: nobody asked for any
    assert network.brokers["here"].link("there").filter_policy(SERVICE) is None
