"""A federation delivers what one broker would, and loses nothing on the way there."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.conftest import LARGE_EXAMPLES
from tests.federation.network import SERVICE, Network, matches
from tidegate.federation.routes import AdaptiveSettings, Message, RouteEntry, TableState, forest, table
from tidegate.federation.routes.messages import from_json, to_json
from tidegate.filters import Filter
from tidegate.model import Schema

SCHEMA = Schema({"a": "int32", "b": "float64", "s": "string"})
TEXTS = [
    "",
    *(f"a > {n}" for n in range(0, 10, 2)),
    *(f"a BETWEEN {n} AND {n + 1}" for n in range(0, 10, 2)),
    *(f"a = {n}" for n in range(0, 10, 3)),
    *(f"s = '{s}'" for s in ("x", "xy", "y", "z")),
    "s IN ('x', 'y')",
    "s LIKE 'x%'",
    *(f"b >= {n} AND b < {n + 2.5}" for n in (0, 2.5, 5)),
    *(f"b >= {n} AND b < {n + 2.5} AND s = 'x'" for n in (0, 2.5, 5)),
    "a > 4 AND s = 'x'",
    "a > 2 OR s = 'y'",
    "a = 3 OR a = 4",
    "NOT a = 3",
    "b IS TRIANGLE(0, 5, 10)",
    "b IS TRAPEZOID(0, 3, 7, 10)",
    "a < b",
    "FUZZY(a IS TRIANGLE(0, 5, 10), b IS TRIANGLE(0, 5, 10)) >= 0.5",
    "FUZZY(a IS TRAPEZOID(0, 4, 6, 10), b IS TRAPEZOID(0, 4, 6, 10)) >= 0.5",
    "FUZZY MIN(a IS TRIANGLE(0, 5, 10), b IS TRIANGLE(0, 5, 10)) >= 0.5",
    "a = 5 AND b = 5",
    "s~ = 'x'~",
    "s~ = 'y'~",
    "s~ = 'x'~ AND a > 3",
    "s~ = 'x'~ AND a BETWEEN 0 AND 3",
    "s~ = 'x'~ AND a > 3 WITH THEME ('city')",
    "s~ = 'x'~ AND FUZZY(a IS TRIANGLE(0, 5, 10), b IS TRIANGLE(0, 5, 10)) >= 0.5",
]
FILTERS = [Filter(text, SCHEMA) for text in TEXTS]
VALUES = [(0, 0.0, "x"), (1, 5.0, "xy"), (3, 2.5, "y"), (4, 9.0, "z"), (9, 7.4, "x"), (5, 5.0, "xy")]
EVENTS: list[dict[str, Any]] = [
    *({"a": a, "b": b, "s": s} for a, b, s in VALUES),
    {"b": 1.0},
    {"a": 6},
    {},
]


BOUNDS = forest.MIN_MOVES, forest.MAX_MOVES, forest.MAX_ABSORBED, table.MAX_STEP_FILTERS
Wire = Callable[[Message], Message]


def through_json(message: Message) -> Message:
    """A message as the other end reads it."""
    return from_json(json.loads(json.dumps(to_json(message))), lambda _: SCHEMA)


class Federation(RuleBasedStateMachine):
    """Random trees of brokers, and everything that may happen to them."""

    network: Network

    @initialize(
        strategy=st.sampled_from(["flooding", "simple", "identity", "covering", "covering", "merging", "merging"]),
        parents=st.lists(st.integers(0, 2**16), min_size=1, max_size=14),
        seed=st.integers(0, 2**32),
        pool=st.lists(st.sampled_from(range(len(FILTERS))), min_size=3, max_size=9),
        wire=st.sampled_from([lambda message: message, through_json]),
        adaptive=st.none()
        | st.builds(
            AdaptiveSettings,
            crossing_s=st.sampled_from([0, 1e-6, 1]),
            window=st.integers(1, 4),
            sample=st.integers(1, 3),
            margin=st.sampled_from([1, 1.5]),
        ),
        step=st.sampled_from([1, 3, 8]),
    )
    def begin(
        self,
        strategy: str,
        parents: list[int],
        seed: int,
        pool: list[int],
        wire: Callable[[Message], Message],
        adaptive: AdaptiveSettings | None,
        step: int,
    ) -> None:
        # Small limits, so that a few filters already take several steps.
        forest.MIN_MOVES = forest.MAX_MOVES = forest.MAX_ABSORBED = table.MAX_STEP_FILTERS = step
        names = [f"b{n:02}" for n in range(len(parents) + 1)]
        links = [(names[parent % (n + 1)], names[n + 1]) for n, parent in enumerate(parents)]
        self.network = Network(links, strategy, names, wire, adaptive)
        self.network.watch = self._reaches_the_stable
        self.pool = [FILTERS[n] for n in pool]
        """A few filters at a time: among many one would cover all."""
        self.rng = Random(seed)
        self.serial = 0
        self.stable: dict[tuple[str, str], tuple[Filter, ...]] = {}
        """Subscribers whom everybody knows, and all filters that each has had since."""
        self.owed: dict[int, set[tuple[str, str]]] = {}
        """Who must get each event that is under way."""
        self.events: dict[int, dict[str, Any]] = {}

    def _broker(self, pick: int) -> str:
        return sorted(self.network.brokers)[pick % len(self.network.brokers)]

    def _unstable(self, who: tuple[str, str], now: Filter | None) -> None:
        """During the change, a subscriber must get events that match both the old and the new filter."""
        if now is None:
            self.stable.pop(who, None)
        elif who in self.stable:
            self.stable[who] += (now,)
        for number, owed in self.owed.items():
            if now is None or not matches(now, self.events[number]):
                owed.discard(who)

    @rule(given=st.lists(st.tuples(st.integers(0, 14), st.integers(0, 100)), min_size=1, max_size=10))
    def subscribe(self, given: list[tuple[int, int]]) -> None:
        for broker, chosen in given:
            self.serial += 1
            self.network.subscribe(self._broker(broker), f"s{self.serial}", self.pool[chosen % len(self.pool)])

    @precondition(lambda self: self.network.subscriptions)
    @rule(given=st.lists(st.tuples(st.integers(0, 100), st.none() | st.integers(0, 100)), min_size=1, max_size=6))
    def change(self, given: list[tuple[int, int | None]]) -> None:
        """Change the filters of subscriptions, or remove them."""
        for pick, number in given:
            chosen = None if number is None else self.pool[number % len(self.pool)]
            if not self.network.subscriptions:
                return
            who = sorted(self.network.subscriptions)[pick % len(self.network.subscriptions)]
            self._unstable(who, chosen)
            if chosen is None:
                self.network.unsubscribe(*who)
            else:
                self.network.subscribe(*who, chosen)

    @precondition(lambda self: self.network.waiting())
    @rule(picks=st.lists(st.integers(0, 100), min_size=1, max_size=8))
    def deliver(self, picks: list[int]) -> None:
        for pick in picks:
            if waiting := self.network.waiting():
                self.network.deliver(*waiting[pick % len(waiting)])

    @rule(broker=st.integers(0, 14), event=st.sampled_from(EVENTS))
    def publish(self, broker: int, event: dict[str, Any]) -> None:
        number = self.network.publish(self._broker(broker), event)
        self.events[number] = event
        self.owed[number] = {
            who for who, filters in self.stable.items() if all(matches(each, event) for each in filters)
        }

    @rule(broker=st.integers(0, 14))
    def uncover(self, broker: int) -> None:
        """Somebody wants everything until all is settled; while the end of it spreads, the others miss nothing."""
        self.serial += 1
        who = self._broker(broker), f"s{self.serial}"
        self.network.subscribe(*who, FILTERS[0])
        self.settle()
        self._unstable(who, None)
        self.network.unsubscribe(*who)
        for _ in range(20):
            if waiting := self.network.waiting():
                self.network.deliver(*self.rng.choice(waiting))

    @precondition(lambda self: any(each.pending for each in self.network.brokers.values()))
    @rule(pick=st.integers(0, 100))
    def work(self, pick: int) -> None:
        """A broker does one pending step of a change."""
        busy = [name for name, each in sorted(self.network.brokers.items()) if each.pending]
        self.network.work(busy[pick % len(busy)])

    @precondition(lambda self: self.network.adaptive and self.network.links)
    @rule(pick=st.integers(0, 100), count=st.integers(0, 5))
    def dropped(self, pick: int, count: int) -> None:
        """A neighbour reports, truly or not, how many forwarded events were dropped."""
        one, other = sorted(self.network.links)[pick % len(self.network.links)]
        policy = self.network.brokers[one].link(other).filter_policy(SERVICE)
        if policy is not None:
            policy.report_dropped(count, of=5)

    @precondition(lambda self: self.network.waiting())
    @rule(pick=st.integers(0, 100))
    def lose(self, pick: int) -> None:
        waiting = self.network.waiting()
        self.network.lose(*waiting[pick % len(waiting)])

    @precondition(lambda self: self.network.links)
    @rule(pick=st.integers(0, 100))
    def cut_or_heal(self, pick: int) -> None:
        link = sorted(self.network.links)[pick % len(self.network.links)]
        (self.network.heal if link in self.network.down else self.network.cut)(link)

    @rule(broker=st.integers(0, 14))
    def restart(self, broker: int) -> None:
        """A restarted broker forgets the needs of its neighbours until they send them again."""
        self.stable.clear()
        self.owed.clear()
        self.network.restart(self._broker(broker))

    @precondition(lambda self: self.network.links)
    @rule(pick=st.integers(0, 100), ends=st.tuples(st.integers(0, 14), st.integers(0, 14)))
    def move(self, pick: int, ends: tuple[int, int]) -> None:
        """Take a link away, and join the two halves by another."""
        link = sorted(self.network.links)[pick % len(self.network.links)]
        self.stable.clear()
        self.owed.clear()
        self.network.settle(self.rng)
        self.network.remove(link)
        self.network.settle(self.rng)
        halves = [sorted(self._side(end)) for end in link]
        one, other = (half[end % len(half)] for half, end in zip(halves, ends, strict=True))
        self.network.connect(one, other)

    def _side(self, start: str, besides: str = "") -> set[str]:
        """All whom a broker reaches, but for the way over one neighbour."""
        found, todo = {start, besides}, [start]
        while todo:
            here = todo.pop()
            for one, other in self.network.links:
                for a, b in ((one, other), (other, one)):
                    if a == here and b not in found:
                        found.add(b)
                        todo.append(b)
        return found - {besides}

    def _reaches_the_stable(self, broker: str, neighbour: str) -> None:
        """After every message: the table that it changed matches all that those behind the link are owed."""
        if self.network.strategy == "flooding" or neighbour not in self.network.brokers[broker].links:
            return
        behind = self._side(neighbour, broker)
        routes = self.network.brokers[broker].link(neighbour).routes(SERVICE).values()
        filters = {each for who, each in self.stable.items() if who[0] in behind}
        for event in EVENTS:
            if any(all(matches(each, event) for each in had) for had in filters):
                assert any(matches(each, event) for each in routes), (broker, neighbour, event)

    @rule()
    def settle(self) -> None:
        network = self.network
        network.settle(self.rng)
        for number, owed in self.owed.items():
            got = network.delivered[number]
            assert number in network.lost or owed <= set(got), (owed - set(got), "lost on the way")
            assert set(got.values()) <= {1}, "twice"
        self.owed.clear()
        self.stable = {who: (each,) for who, each in network.subscriptions.items()}
        for event in EVENTS:
            wanted = network.wanted(event)
            for broker in self.rng.sample(sorted(network.brokers), min(3, len(network.brokers))):
                number = network.publish(broker, event)
                while waiting := network.waiting():
                    network.deliver(*waiting[0])
                assert network.delivered[number] == wanted
        self._tables_agree()

    def _tables_agree(self) -> None:
        brokers = self.network.brokers
        for one, other in [*self.network.links, *((b, a) for a, b in self.network.links)]:
            asked = brokers[one].link(other).requested(SERVICE)
            routes = brokers[other].link(one).routes(SERVICE)
            assert asked == routes
            held = brokers[other].link(one).states().get(SERVICE, TableState())
            assert held.digest == TableState().after((RouteEntry(*each) for each in routes.items()), (), 0).digest
            if self.network.strategy != "flooding":
                behind = self._side(one, other)
                needed = [each for who, each in self.network.subscriptions.items() if who[0] in behind]
                for event in EVENTS:  # no more than is needed, and no less
                    wanted = any(matches(each, event) for each in needed)
                    assert any(matches(each, event) for each in asked.values()) == wanted
            if self.network.strategy in ("covering", "merging"):
                pairs = [(a, b) for a in asked.values() for b in asked.values() if a is not b]
                assert not any(a.covers(b) for a, b in pairs)

    def teardown(self) -> None:
        try:
            if hasattr(self, "network"):
                self.settle()
        finally:
            forest.MIN_MOVES, forest.MAX_MOVES, forest.MAX_ABSORBED, table.MAX_STEP_FILTERS = BOUNDS


Federation.TestCase.settings = settings(max_examples=LARGE_EXAMPLES, stateful_step_count=40)
TestFederation = Federation.TestCase


@settings(max_examples=LARGE_EXAMPLES)
@given(seed=st.integers(0, 2**32), strategy=st.sampled_from(["covering", "merging"]), step=st.integers(1, 3))
def test_removing_the_widest_filter_loses_no_event_of_others(seed: int, strategy: str, step: int) -> None:
    rng, federation = Random(seed), Federation()
    parents, pool = ([rng.randrange(2**16) for _ in range(count)] for count in (rng.randint(1, 6), 9))
    pool = [each % len(FILTERS) or 1 for each in pool]
    try:
        federation.begin(strategy, parents, seed, pool, lambda message: message, None, step)
        federation.subscribe([(rng.randrange(15), rng.randrange(100)) for _ in range(12)])
        federation.uncover(rng.randrange(15))
    finally:
        federation.teardown()
