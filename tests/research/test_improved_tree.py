"""The improved tree: what one verdict decides, and how many evaluations that saves."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import generate
from tests.conftest import LARGE_EXAMPLES
from tests.matching.contract import drawn
from tidegate import Filter, Schema
from tidegate.filters.render import render_node
from tidegate.matching import Matcher
from tidegate.matching.events import DictEvents, read_batch
from tidegate.matching.index import IndexEntry
from tidegate.matching.rows import Axes
from tidegate.matching.scan import sort_pairs
from tidegate.model import Enum, arrow
from tidegate.research.improved_tree import ImprovedTreeIndex, Tree, WalkCost, build_tree, conjuncts, cost_bound, walk
from tidegate.research.tree import TreeIndex

randoms = st.integers(0, 2**64).map(Random)


def entries(*filters: str | Filter, schema: Schema | None = None) -> dict[int, IndexEntry]:
    built = [Filter(item, schema) if isinstance(item, str) else item for item in filters]
    axes = Axes()
    return {n: IndexEntry(item, axes.compile(item), (f"s{n}",)) for n, item in enumerate(built)}


def tree(*filters: str, schema: Schema | None = None) -> Tree:
    return build_tree(conjuncts(entries(*filters, schema=schema)))


def work(events: list[dict[str, Any]], *filters: str, schema: Schema | None = None) -> WalkCost:
    return walk(tree(*filters, schema=schema), DictEvents(events))[1]


class TestShape:
    def test_predicates_are_ordered_by_attribute_then_operator_then_value(self) -> None:
        text = "c LIKE 'x%' AND b < 2 AND a >= 1 AND (d = 1 OR e = 1) AND b < 1 AND a < 5"
        actual = [[render_node(term) for term in terms] for _, terms in conjuncts(entries(text))]
        shared = ["a < 5", "a >= 1", "b < 1", "b < 2", "c LIKE 'x%'"]
        assert actual == [[*shared, "d = 1"], [*shared, "e = 1"]]

    def test_between_is_in_two_ordered_lists(self) -> None:
        built = tree("speed BETWEEN 10 AND 20", "speed <= 20 AND speed >= 5")
        assert built.root.size() == 3
        assert built.index.lengths == [1, 2]

    def test_predicate_list_has_one_kind_of_literal(self) -> None:
        built = tree("x < 1 OR x < 2", "x < 1.5", "x < 'a'", "x <= 1", "x < 1 AND y LIKE 'a%'")
        keys = [(key[1], key[2]) for key in built.index.keys if key is not None]
        assert sorted(keys) == [("<", "float"), ("<", "int"), ("<", "string"), ("<=", "int")]

    def test_describe_reports_nodes_lists_and_workers(self) -> None:
        matcher = Matcher(engine="improved-tree")
        matcher.add("r2", "latitude > 32 AND longitude > 130 AND speed < 50")
        matcher.add("r3", "latitude > 34 AND longitude > 130 AND speed > 55")
        assert matcher.describe() == {
            "subscriptions": 2,
            "engine": "improved-tree",
            "filters": 2,
            "predicates": 6,
            "distinct": 5,
            "lists": 4,
            "workers": 1,
            "split": "predicates",
        }


class TestSettling:
    """How many predicates are evaluated for one event; each filter here is one predicate."""

    def test_true_verdict_decides_all_weaker_predicates(self) -> None:
        assert work([{"x": 0}], "x < 1", "x < 2", "x < 3") == WalkCost(visits=3, verifications=1, settled=2)
        assert work([{"x": 9}], "x >= 3", "x >= 2", "x >= 1") == WalkCost(visits=3, verifications=1, settled=2)

    def test_false_verdict_decides_all_stricter_predicates(self) -> None:
        assert work([{"x": 9}], "x < 3", "x < 2", "x < 1") == WalkCost(visits=3, verifications=1, settled=2)
        assert work([{"x": 0}], "x > 1", "x > 2", "x > 3") == WalkCost(visits=3, verifications=1, settled=2)

    def test_undecided_predicate_is_evaluated(self) -> None:
        assert work([{"x": 2.5}], "x < 2", "x < 3", "x < 1", "x < 4").verifications == 2

    def test_true_equality_decides_all_others(self) -> None:
        assert work([{"v": "a"}], "v = 'a'", "v = 'b'", "v = 'c'").verifications == 1
        assert work([{"v": "c"}], "v = 'a'", "v = 'b'", "v = 'c'").verifications == 3

    def test_false_inequality_decides_all_others(self) -> None:
        assert work([{"v": "a"}], "v <> 'a'", "v <> 'b'", "v <> 'c'").verifications == 1
        assert work([{"v": "c"}], "v <> 'a'", "v <> 'b'", "v <> 'c'").verifications == 3

    def test_same_predicate_is_evaluated_once_in_the_whole_tree(self) -> None:
        filters = "a = 1 AND z = 1", "a < 2 AND z = 1", "b = 1 AND z = 1", "b = 1 AND z LIKE 'x'"
        built = work([{"a": 1, "b": 1, "z": 1}], *filters)
        assert built == WalkCost(visits=7, verifications=5, settled=2)

    @pytest.mark.parametrize("value", [None, math.nan, "text", [1]])
    def test_incomparable_value_satisfies_nothing(self, value: object) -> None:
        built = tree("x < 1", "x < 2", "x <> 1", "x <> 2", "x = 1", "x >= 1", "x >= 2")
        pieces, _ = walk(built, DictEvents([{"x": value}]))
        assert len(sort_pairs(pieces)[0]) == 0

    def test_verdict_decides_nothing_for_another_kind(self) -> None:
        """A truth value compares with whole numbers, not with fractions."""
        built = tree("x < 2", "x < 3.5", "x <> 0", "x <> 1", "x <> 0.5")
        _, numbers = sort_pairs(walk(built, DictEvents([{"x": True}]))[0])
        assert numbers.tolist() == [0, 2]

    def test_text_that_is_a_time_has_two_orders(self) -> None:
        texts = "2026-01-01T10:00:00+02:00", "2026-01-01T09:00:00Z"
        built = tree(
            *(f"t < '{text}'" for text in texts), *(f"t = '{text}'" for text in texts), "t = '2026-01-01T08:00Z'"
        )
        moment = datetime(2026, 1, 1, 8, tzinfo=UTC)
        _, numbers = sort_pairs(walk(built, DictEvents([{"t": moment}]))[0])
        assert numbers.tolist() == [1, 2, 4]

    def test_enum_labels_are_ordered_by_position(self) -> None:
        schema = Schema({"light": Enum("RED", "AMBER", "GREEN")})
        built = tree("light < 'AMBER'", "light < 'GREEN'", "light = 'RED'", "light = 'AMBER'", schema=schema)
        pieces, cost = walk(built, DictEvents([{"light": "RED"}]))
        assert sort_pairs(pieces)[1].tolist() == [0, 1, 2]
        assert cost.verifications == 2


class TestWork:
    @given(randoms)
    @settings(max_examples=LARGE_EXAMPLES)
    def test_improved_tree_agrees_with_the_plain_tree(self, rng: Random) -> None:
        schema = generate.schema(rng)
        put = entries(*(drawn(rng, schema, schema) for _ in range(20)))
        events = read_batch(arrow.to_batch([generate.event(rng, schema) for _ in range(12)], schema))
        pairs = []
        for index in (TreeIndex(), ImprovedTreeIndex()):
            index.apply(put)
            event, names = index.match(events).pairs()
            pairs.append((event.tolist(), names.tolist()))
        assert pairs[0] == pairs[1]

    @given(randoms)
    @settings(max_examples=LARGE_EXAMPLES)
    def test_no_predicate_is_evaluated_twice_for_an_event(self, rng: Random) -> None:
        schema = generate.schema(rng)
        index = ImprovedTreeIndex()
        index.apply(entries(*(drawn(rng, schema, schema) for _ in range(20))))
        rows = [generate.event(rng, schema) for _ in range(12)]
        for events in (read_batch(rows), read_batch(arrow.to_batch(rows, schema))):
            cost = index.work(events)
            assert cost.verifications <= index.describe()["distinct"] * events.size
            assert cost.settled <= cost.visits <= index.describe()["predicates"] * events.size

    @given(randoms)
    @settings(max_examples=LARGE_EXAMPLES)
    def test_each_verdict_agrees_with_the_predicate(self, rng: Random) -> None:
        """Any order of questions, over lists that are long enough for verdicts to travel."""
        values = ["0", "1", "2", "1.5", "TRUE", "'a'", "'b'", "'2010-01-01'", "2.0", "-3"]
        texts = [f"x {relation} {value}" for relation in ("<", "<=", ">", ">=", "=", "<>") for value in values]
        rng.shuffle(texts)
        odd = [0, 1, 1.5, True, "a", "b", "c", "2010-01-01", None, math.nan, 2**70, []]
        rows: list[dict[str, Any]] = [{"x": rng.choice(odd), "y": 1} for _ in range(30)]
        texts += [f"{text} AND y = 1" for text in texts]
        actual = sort_pairs(walk(tree(*texts), DictEvents(rows))[0])
        filters = [Filter(text) for text in texts]
        expected = [(e, n) for e, row in enumerate(rows) for n, filter_ in enumerate(filters) if filter_.matches(row)]
        assert list(zip(actual[0].tolist(), actual[1].tolist(), strict=True)) == expected

    def test_improved_tree_evaluates_less_than_the_plain_tree(self) -> None:
        filters = [f"speed > {n} AND vid = 'v{n % 20}'" for n in range(200)]
        rows = [{"speed": float(n % 200), "vid": f"v{n % 20}"} for n in range(100)]
        built = tree(*filters)
        cost = walk(built, DictEvents(rows))[1]
        # The plain tree asks each of 220 predicates of each of 100 events.
        assert len(built.index.slots) == 220
        assert cost.verifications < 220 * 100 / 2


class TestCostBound:
    @given(randoms)
    @settings(max_examples=LARGE_EXAMPLES)
    def test_cost_bound_is_above_the_measured_cost(self, rng: Random) -> None:
        values, attributes = rng.randint(2, 4), rng.randint(1, 4)
        count = rng.choice([1, 5, 60])
        built: set[str] = set()
        for _ in range(count):
            chosen = rng.sample(range(attributes), k=rng.randint(1, attributes))
            built.add(" AND ".join(f"a{n} = {rng.randrange(values)}" for n in sorted(chosen)))
        rows = [{f"a{n}": v for n, v in enumerate(item)} for item in product(range(values), repeat=attributes)]
        passed = _passed(tree(*sorted(built)), rows)
        assert passed / len(rows) <= cost_bound(len(built), values, attributes, visit_s=1.0, verify_s=0.0)

    def test_cost_bound_grows_slower_than_the_number_of_conditions(self) -> None:
        small, large = (cost_bound(n, 10, 4, 1e-7, 1e-6) for n in (1_000, 10_000))
        assert small < large < 10 * small


def _passed(made: Tree, rows: list[dict[str, int]]) -> int:
    """Return how many predicates all events satisfy on their way down."""
    events, total = DictEvents(rows), 0
    pending = [(made.root, np.arange(len(rows)))]
    while pending:
        branch, here = pending.pop()
        for place, below in branch.below.items():
            on = here[events.holds(place.node, here)]
            total += len(on)
            pending.append((below, on))
    return total
