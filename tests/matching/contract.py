"""The contract of every engine, checked by evaluating each filter in turn."""

from __future__ import annotations

import pickle
import threading
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests import generate
from tests.conftest import LARGE_EXAMPLES
from tidegate import Filter, Schema, SemanticsUnavailable, UnsatisfiableFilter
from tidegate.errors import MatcherError
from tidegate.matching import Matcher, columnar, segment
from tidegate.model import arrow

randoms = st.integers(0, 2**64).map(Random)

LOW_LIMITS = [
    (columnar, "MAX_DELTA", 8),
    (columnar, "MAX_SCANNED_PAIRS", 60),
    (columnar, "QUIET_MATCHES", 3),
    (columnar, "MAX_PARTS", 2),
    (segment, "MAX_BUCKETS", 12),
    (segment, "MIN_BUCKETS", 8),
]
"""Limits of the columnar engine under which a few filters are many."""


def drawn(rng: Random, of: Schema, schema: Schema | None) -> Filter:
    while True:
        try:
            return Filter(generate.filter_text(rng, of, depth=2), schema)
        except UnsatisfiableFilter:
            continue


def expected(filters: dict[str, Filter], events: list[dict[str, Any]]) -> list[list[str]]:
    return [sorted(name for name, filter_ in filters.items() if filter_.matches(event)) for event in events]


def matched(matcher: Matcher, batch: Any, size: int) -> list[list[str]]:
    matches = matcher.match(batch)
    return [sorted(matches.for_event(n)) for n in range(size)]


class MatcherContract:
    """Subclassed once per engine."""

    engine: str
    few: int
    """How many filters make the engine use every part of itself."""

    @given(randoms)
    @settings(max_examples=LARGE_EXAMPLES)
    def test_agrees_with_each_filter_on_arrow_and_on_dicts(self, rng: Random) -> None:
        schema = generate.schema(rng)
        matcher = Matcher(schema, engine=self.engine)
        filters = {f"s{n}": drawn(rng, schema, schema) for n in range(rng.choice([1, 5, self.few]))}
        for name, filter_ in filters.items():
            matcher.add(name, filter_)
        events = [generate.event(rng, schema) for _ in range(12)]
        truth = expected(filters, events)
        assert matched(matcher, arrow.to_batch(events, schema), 12) == truth
        assert matched(matcher, events, 12) == truth

    @given(randoms)
    @settings(max_examples=LARGE_EXAMPLES)
    def test_agrees_on_events_whose_values_have_any_type(self, rng: Random) -> None:
        of = generate.schema(rng)
        schema = of if rng.random() < 0.5 else None
        matcher = Matcher(schema, engine=self.engine)
        filters = {f"s{n}": drawn(rng, of, schema) for n in range(rng.choice([1, 5, self.few]))}
        for name, filter_ in filters.items():
            matcher.add(name, filter_)
        events = [generate.wild_event(rng, of) for _ in range(12)]
        assert matched(matcher, events, 12) == expected(filters, events)

    @given(randoms)
    @settings(max_examples=LARGE_EXAMPLES)
    def test_agrees_without_a_schema_on_arrow(self, rng: Random) -> None:
        of = generate.schema(rng)
        matcher = Matcher(engine=self.engine)
        filters = {f"s{n}": drawn(rng, of, None) for n in range(rng.choice([1, 5, self.few]))}
        for name, filter_ in filters.items():
            matcher.add(name, filter_)
        batch = arrow.to_batch([generate.event(rng, of) for _ in range(12)], of)
        assert matched(matcher, batch, 12) == expected(filters, batch.to_pylist())

    def test_degrees_are_parallel_to_pairs(self) -> None:
        matcher = Matcher(engine=self.engine)
        matcher.add("fuzzy", Filter("x IS TRIANGLE(0, 10, 20)"))
        matcher.add("crisp", Filter("x > 0"))
        matches = matcher.match([{"x": 9}, {"x": 30}, {"x": 10}])
        event, ids = matches.pairs()
        assert list(zip(event.tolist(), ids, matches.degrees(), strict=True)) == [
            (0, "fuzzy", pytest.approx(0.9)),
            (0, "crisp", 1.0),
            (1, "crisp", 1.0),
            (2, "fuzzy", 1.0),
            (2, "crisp", 1.0),
        ]

    def test_matches_by_subscription(self) -> None:
        matcher = Matcher(engine=self.engine)
        matcher.add("low", "x < 3")
        matcher.add("even", "x IN (0, 2, 4)")
        matches = matcher.match([{"x": n} for n in range(6)])
        assert matches.for_subscription("low").tolist() == [0, 1, 2]
        assert matches.for_subscription("even").tolist() == [0, 2, 4]
        assert matches.for_subscription("nobody").tolist() == []

    def test_equal_filters_share_an_entry(self) -> None:
        matcher = Matcher(engine=self.engine)
        for n in range(5):
            matcher.add(f"s{n}", Filter(f"x > 3 AND y = {n % 2}"))
        assert matcher.describe()["filters"] == 2
        assert sorted(matcher.match([{"x": 5, "y": 0}]).for_event(0)) == ["s0", "s2", "s4"]
        matcher.remove("s2")
        assert sorted(matcher.match([{"x": 5, "y": 0}]).for_event(0)) == ["s0", "s4"]

    def test_empty_matcher_and_empty_batch_match_nothing(self) -> None:
        matcher = Matcher(Schema({"x": "int32"}), engine=self.engine)
        assert len(matcher.match([{"x": 1}])) == 0
        matcher.add("all", "")
        assert len(matcher.match([])) == 0
        assert len(matcher.match(arrow.to_batch([], Schema({"x": "int32"})))) == 0
        assert matcher.match([{}]).for_event(0) == ["all"]

    def test_matcher_pickles(self) -> None:
        matcher = Matcher(engine=self.engine)
        for n in range(self.few):
            matcher.add(f"s{n}", Filter(f"x = {n}"))
        matcher.remove("s0")
        again = pickle.loads(pickle.dumps(matcher))
        assert len(again) == self.few - 1
        assert again.match([{"x": 3}, {"x": 0}]).pairs()[1].tolist() == ["s3"]
        again.add("new", "x = 0")
        assert again.match([{"x": 0}]).for_event(0) == ["new"]
        assert "new" not in matcher

    def test_large_batch_sees_every_change(self) -> None:
        matcher = Matcher(engine=self.engine)
        batch = [{"x": n % 50} for n in range(2_000)]
        for n in range(self.few):
            matcher.add(f"s{n}", f"x = {n % 50} AND y IS NULL OR x = -{n}")
        assert sorted(matcher.match(batch).for_event(49)) == sorted(f"s{n}" for n in range(self.few) if n % 50 == 49)
        matcher.add("late", "x = 49")
        assert "late" in matcher.match(batch).for_event(49)
        matcher.remove("late")
        assert "late" not in matcher.match(batch).for_event(49)

    def test_filter_that_cannot_be_evaluated_is_refused_when_added(self) -> None:
        matcher = Matcher(engine=self.engine)
        with pytest.raises(SemanticsUnavailable, match="needs a semantic space"):
            matcher.add("meaning", "device~ = 'laptop'~")
        assert len(matcher.match([{"device": "laptop"}])) == 0

    def test_misuse_raises_matcher_error(self) -> None:
        matcher = Matcher(engine=self.engine)
        matcher.add("station", "x > 3")
        with pytest.raises(MatcherError, match="subscription 'station' already exists"):
            matcher.add("station", "x > 4")
        with pytest.raises(MatcherError, match="expected a string as the id of a subscription, not 5"):
            matcher.add(5, "x > 4")  # type: ignore[arg-type]
        with pytest.raises(MatcherError, match="no subscription 'staton'; did you mean 'station'"):
            matcher.remove("staton")
        with pytest.raises(MatcherError, match="no subscription 'other'"):
            matcher.replace("other", "x > 4")
        with pytest.raises(IndexError, match="expected an event from 0 to 0, not 1"):
            matcher.match([{}]).for_event(1)

    def test_match_sees_concurrent_changes_completely_or_not_at_all(self) -> None:
        """A replaced subscription matches by the old filter or the new, never by neither or both."""
        matcher = Matcher(engine=self.engine)
        for n in range(self.few):
            matcher.add(f"s{n}", Filter(f"y = {n}"))
        matcher.add("watched", "x < 0")
        stop = threading.Event()

        def change() -> None:
            rng = Random(3)
            while not stop.is_set():
                matcher.replace("watched", f"x < {-rng.randint(0, 5)}")
                name = f"t{rng.randint(0, 9)}"
                if name in matcher:
                    matcher.remove(name)
                else:
                    matcher.add(name, f"x = {rng.randint(0, 9)}")

        writer = threading.Thread(target=change)
        writer.start()
        try:
            for _ in range(200):
                ids = matcher.match([{"x": -10}]).for_event(0)
                assert ids.count("watched") == 1
        finally:
            stop.set()
            writer.join()


class MatcherMachine(RuleBasedStateMachine):
    """Adds, removes, replaces and matches in any order, compared with a plain dict."""

    engine = "scan"
    schema = Schema({"a": "int8", "vid": "string", "f": "float64"})

    def __init__(self) -> None:
        super().__init__()
        self.matcher = Matcher(self.schema, engine=self.engine)
        self.model: dict[str, Filter] = {}

    @rule(name=st.sampled_from([f"s{n}" for n in range(40)]), seed=st.integers(0, 2**32))
    def put(self, name: str, seed: int) -> None:
        built = drawn(Random(seed), self.schema, self.schema)
        if name in self.model:
            self.matcher.replace(name, built)
        else:
            self.matcher.add(name, built)
        self.model[name] = built

    @rule(seed=st.integers(0, 2**32))
    def put_many(self, seed: int) -> None:
        rng = Random(seed)
        for n in range(60):
            self.put(f"m{rng.randint(0, 200)}-{n}", rng.randint(0, 2**32))

    @rule(seed=st.integers(0, 2**32))
    def remove_some(self, seed: int) -> None:
        for name in Random(seed).sample(sorted(self.model), k=min(len(self.model), 40)):
            self.matcher.remove(name)
            del self.model[name]

    @rule(seed=st.integers(0, 2**32))
    def match(self, seed: int) -> None:
        rng = Random(seed)
        events = [generate.event(rng, self.schema) for _ in range(4)]
        assert matched(self.matcher, events, 4) == expected(self.model, events)
        assert matched(self.matcher, arrow.to_batch(events, self.schema), 4) == expected(self.model, events)

    @invariant()
    def it_knows_who_is_there(self) -> None:
        assert sorted(self.matcher) == sorted(self.model)
        assert len(self.matcher) == len(self.model)
