"""The evaluators agree with the oracle, and so with each other."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import generate, oracle
from tidegate import Filter, Schema, UnsatisfiableFilter
from tidegate.filters.parser import parse
from tidegate.filters.typing import resolve
from tidegate.model import arrow

randoms = st.integers(0, 2**64).map(Random)


def make(rng: Random, schema: Schema | None, text: str) -> Filter | None:
    """Return the filter, or None if it is refused because it can never match."""
    try:
        return Filter(text, schema)
    except UnsatisfiableFilter:
        return None


@given(randoms)
def test_one_event_agrees_with_the_oracle(rng: Random) -> None:
    schema = generate.schema(rng)
    text = generate.filter_text(rng, schema)
    actual = make(rng, schema, text)
    for _ in range(5):
        event = generate.wild_event(rng, schema)
        if actual is None:
            assert oracle.truth(resolve(parse(text), text, schema).root, event) is not True
            continue
        assert actual.truth(event) is oracle.truth(actual.tree.root, event)
        assert actual.matches(event) is (actual.truth(event) is True)
        assert math.isclose(actual.degree(event), oracle.degree(actual.tree.root, event), abs_tol=1e-9)


@given(randoms)
def test_one_event_agrees_with_the_oracle_without_a_schema(rng: Random) -> None:
    schema = generate.schema(rng)
    text = generate.filter_text(rng, schema)
    actual = make(rng, None, text)
    for _ in range(5):
        event = generate.wild_event(rng, schema)
        root = resolve(parse(text), text).root if actual is None else actual.tree.root
        expected = oracle.truth(root, event)
        if actual is None:
            assert expected is not True
        else:
            assert actual.truth(event) is expected
            assert actual.matches(event) is (expected is True)


@given(randoms)
def test_record_batch_agrees_with_single_events(rng: Random) -> None:
    schema = generate.schema(rng)
    actual = make(rng, schema, generate.filter_text(rng, schema))
    if actual is None:
        return
    events = [generate.event(rng, schema) for _ in range(20)]
    batch = arrow.to_batch(events, schema)
    assert actual.mask(batch).tolist() == [actual.matches(event) for event in events]
    expected = [actual.degree(event) for event in events]
    assert actual.degrees(batch).tolist() == pytest.approx(expected, abs=1e-9)
    part = batch.slice(7, 9)
    assert actual.mask(part).tolist() == [actual.matches(event) for event in events[7:16]]


@given(randoms)
def test_record_batch_agrees_with_single_events_without_a_schema(rng: Random) -> None:
    schema = generate.schema(rng)
    text = generate.filter_text(rng, schema)
    actual = make(rng, None, text)
    if actual is None:
        return
    batch = arrow.to_batch([generate.event(rng, schema) for _ in range(20)], schema)
    rows: list[dict[str, Any]] = batch.to_pylist()
    assert actual.mask(batch).tolist() == [actual.matches(row) for row in rows]


@given(randoms)
def test_not_swaps_true_and_false_and_keeps_unknown(rng: Random) -> None:
    schema = generate.schema(rng)
    text = generate.filter_text(rng, schema)
    one, other = make(rng, schema, text), make(rng, schema, f"NOT ({text})")
    if one is None or other is None:
        return
    event = generate.event(rng, schema)
    truth = one.truth(event)
    assert other.truth(event) is (None if truth is None else not truth)
