"""The matching workloads are what they say: seeded, at their rate, the same for every form and peer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.matching import workloads
from benchmarks.matching.workloads import SCHEMA, Boxes, Columns, Groups, Workload
from tidegate import Filter

EVENTS = workloads.columns(3_000, seed=51)
SMALL = [
    Workload("one predicate", 100, 1),
    Workload("three predicates", 100, 3),
    Workload("six predicates", 300),
    Workload("ten predicates", 100, 10),
    Workload("rare", 300, rate=0.001),
    Workload("equalities", 300, rate=0.001, equal=0.8),
    Workload("patterns", 300, like=0.1),
]


def test_events_and_filters_depend_on_the_seed_only() -> None:
    again = workloads.columns(3_000, seed=51)
    assert (again.ranged == EVENTS.ranged).all()
    assert (again.vehicle == EVENTS.vehicle).all()
    assert (workloads.columns(3_000, seed=52).vehicle != EVENTS.vehicle).any()
    assert list(SMALL[2].texts()) == list(SMALL[2].texts())
    assert list(SMALL[2].texts()) != list(replace(SMALL[2], seed=3).texts())


def test_smaller_workload_is_a_prefix_of_a_larger_one() -> None:
    larger = list(replace(SMALL[2], count=10_010).texts())
    assert larger[:300] == list(SMALL[2].texts())
    assert larger[9_990:] == list(SMALL[2].texts(9_990, 20))


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_filters_have_the_match_rate_of_their_workload(workload: Workload) -> None:
    batch = workloads.batch(EVENTS)
    found = float(np.mean([f.mask(batch) for f in workload.filters()]))
    assert workload.rate / 2 < found < workload.rate * 2


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_filters_have_their_number_of_predicates(workload: Workload) -> None:
    for text in workload.texts(0, 50):
        assert text.replace(" AND ", " & ").count("&") + 1 - text.count("BETWEEN") == workload.predicates


def test_shares_of_equalities_and_patterns_are_kept() -> None:
    equal = [text for text in SMALL[5].texts() if "vid = " in text or "site = " in text]
    assert 0.7 < len(equal) / 300 < 0.9
    assert {"vid" in text for text in equal} == {True, False}
    texts = list(SMALL[6].texts())
    assert 0.05 < sum("LIKE" in text for text in texts) / 300 < 0.15
    assert any("STRLIKE" in text for text in texts)
    assert any(" LIKE" in text for text in texts)


def test_all_forms_of_an_event_are_the_same_event() -> None:
    some = EVENTS.first(200)
    batch, rows = workloads.batch(some), workloads.dicts(some)
    assert (batch.schema.names, batch.schema.types) == (SCHEMA.to_arrow().names, SCHEMA.to_arrow().types)
    assert [json.loads(line) for line in workloads.ndjson(some).splitlines()] == rows
    for each in SMALL[2].filters()[:100]:
        assert each.mask(batch).tolist() == [each.matches(row) for row in rows]


def rule_matches(rule: dict[str, Any], event: dict[str, Any]) -> bool:
    """Evaluate a rule as event-ruler does."""
    for name, (wanted,) in rule.items():
        value = event[name]
        if not isinstance(wanted, dict):
            if value != wanted:
                return False
        else:
            numeric = wanted["numeric"]
            low, high = numeric[1], numeric[-1]
            if not low <= value <= high:
                return False
    return True


@pytest.mark.parametrize("workload", SMALL[:6], ids=lambda w: w.name)
def test_rule_of_the_peer_is_equal_to_the_filter(workload: Workload) -> None:
    some = EVENTS.first(300)
    batch, plain = workloads.batch(some), workloads.dicts(some, time=int)
    for (boxes, at), each in zip(workload.places(0, 60), workload.filters(0, 60), strict=True):
        assert [rule_matches(boxes.rule(at), event) for event in plain] == each.mask(batch).tolist()


@pytest.mark.parametrize("workload", SMALL[:6], ids=lambda w: w.name)
def test_filter_matches_the_event_made_for_it(workload: Workload) -> None:
    for (boxes, at), each in zip(workload.places(0, 60), workload.filters(0, 60), strict=True):
        assert each.matches(boxes.event(at))


def test_rate_by_numbers_equals_rate_by_filters() -> None:
    boxes, _ = next(SMALL[5].places())
    some = Boxes(boxes.low[:100], boxes.high[:100], boxes.vehicle[:100], boxes.pattern[:100])
    batch = workloads.batch(EVENTS)
    assert some.rate(EVENTS) == pytest.approx(np.mean([f.mask(batch) for f in SMALL[5].filters(0, 100)]))


def test_groups_of_three_shapes_match_at_their_rate_and_so_do_their_crisp_twins() -> None:
    groups = Groups(100)
    batch = workloads.batch(EVENTS)
    for made in (groups.filters(), groups.crisp()):
        assert 0.004 < np.mean([f.mask(batch) for f in made]) < 0.025
    assert all(text.count(" IS ") == 3 for text in groups.texts())
    assert len({Filter(text, SCHEMA) for text in groups.texts()}) == 100


def test_first_events_are_a_prefix_of_all_events() -> None:
    first = EVENTS.first(5)
    assert isinstance(first, Columns)
    assert workloads.dicts(first) == workloads.dicts(EVENTS)[:5]
