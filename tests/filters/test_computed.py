"""Filters that compute: `speed * 3.6 > 80`."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import generate
from tests.filters.test_fuzz import STEPS_OF_ANY, with_steps
from tidegate import Filter, FilterError, FilterTypeError, Matcher, Schema, UnsatisfiableFilter
from tidegate.filters.explain import describe, verdicts
from tidegate.filters.nodes import ComputedValue, Path
from tidegate.filters.sets import holds
from tidegate.model import arrow

SCHEMA = Schema(
    {
        "speed": "float64",
        "small": "float32",
        "n": "int16",
        "big": "int64",
        "huge": "uint64",
        "vid": "string",
        "time": "timestamp",
        "lon": "float64",
        "lat": "float64",
        "kind": "enum(CAR, BUS)",
        "wheels": "int32[]",
        "pos": {"x": "float64"},
    }
)
randoms = st.integers(0, 2**64).map(Random)
numbers = st.floats(allow_nan=False) | st.integers(-100, 100).map(float)


@given(randoms, st.sampled_from(["speed", "small", "n", "big", "huge"]), st.booleans(), st.data())
def test_linear_comparison_is_a_range_of_its_field(rng: Random, field: str, typed: bool, data: st.DataObject) -> None:
    constants = [str(rng.choice([3.6, 2, -3, 0.1, 1e300, 5e-324, 7, 2**53 + 1, -0.5])) for _ in range(3)]
    text = f"{constants[0]} - {field} * {constants[1]} + {constants[2]}"
    relation = rng.choice(["<", "<=", ">", ">=", "=", "<>"])
    limit = data.draw(numbers | st.integers(-(2**64), 2**64))
    filter_ = Filter(f"{text} {relation} %0", SCHEMA if typed else None, [limit])
    conjuncts = filter_.normal.conjuncts
    ((path, values),) = conjuncts[0].exact.items() if conjuncts else ((Path((field,)), None),)
    assert type(path) is Path
    kind = "float" if field in ("speed", "small") else "int"
    edges = [cut[1] for cut in values.cuts[kind] if not cut[0]] if values is not None else []
    low, high = {"n": (-(2**15), 2**15 - 1), "huge": (0, 2**64 - 1)}.get(field, (-(2**63), 2**63 - 1))
    if kind == "float":
        near = [
            number for edge in edges for number in (edge, math.nextafter(edge, 9e999), math.nextafter(edge, -9e999))
        ]
        events = [*near, 0.0, data.draw(numbers), math.inf, -math.inf]
        events = [n for n in events if field != "small" or pa.scalar(n, pa.float32()).as_py() == n]
    else:
        near = [edge + step for edge in edges for step in (-1, 0, 1)]
        events = [n for n in (*near, 0, 1, low, high, 2**63, data.draw(st.integers(low, high))) if low <= n <= high]
    for number in events:
        allowed = values is not None and holds(values.cuts[kind], number)
        assert filter_.matches({field: number}) is allowed, (str(filter_), number)


@given(randoms)
def test_matcher_agrees_with_each_filter(rng: Random) -> None:
    schema = generate.schema(rng)
    matcher = Matcher(schema)
    filters: dict[str, Filter] = {}
    for n in range(6):
        try:
            filters[str(n)] = Filter(generate.filter_text(rng, schema, 1), schema)
        except UnsatisfiableFilter:
            continue
        matcher.add(str(n), filters[str(n)])
    events = [generate.wild_event(rng, schema) for _ in range(12)]
    matches = matcher.match(events)
    for n, event in enumerate(events):
        assert set(matches.for_event(n)) == {name for name, filter_ in filters.items() if filter_.matches(event)}


@pytest.mark.parametrize(
    ("text", "allows"),
    [
        ("speed * 3.6 > 80", {"speed": ["float from 22.222222222222225"]}),
        ("n * 2 IN (3, 4, 6)", {"n": ["int from 2 below 4"]}),
        ("10 - n >= 3", {"n": ["int from -32768 below 8"]}),
        ("n / 4 = 0.25", {"n": ["int from 1 below 2"]}),
    ],
)
def test_linear_comparison_is_a_span_of_the_index(text: str, allows: dict[str, list[str]]) -> None:
    from tidegate.matching.rows import Axes, describe_row

    axes = Axes()
    (row,) = axes.compile(Filter(text, SCHEMA)).rows
    assert describe_row(row, axes) == {"allows": allows, "asks": []}


def test_other_expressions_are_verified_for_the_events_that_the_rest_leaves() -> None:
    from tidegate.matching.rows import Axes, describe_row

    axes = Axes()
    (row,) = axes.compile(Filter("distance(lon, lat, 116.4, 39.9) < 500 AND vid = 'B17'", SCHEMA)).rows
    described = describe_row(row, axes)
    assert described["asks"] == ["the whole filter"]
    assert described["allows"]["vid"] == ["string from 'B17' below 'B17\\x00'"]
    assert described["allows"]["lon"][0].startswith("float from 116.394")
    assert described["allows"]["lat"][0].startswith("float from 39.895")


positions = st.tuples(st.floats(-180, 180), st.floats(-90, 90))


@given(positions, positions, st.floats(0, 2.1e7))
def test_index_misses_no_position_within_a_distance(one: Any, other: Any, metres: float) -> None:
    filter_ = Filter("distance(lon, lat, %0, %1) <= %2", SCHEMA, [*other, metres])
    matcher = Matcher(SCHEMA)
    matcher.add("near", filter_)
    event = {"lon": one[0], "lat": one[1]}
    assert (matcher.match([event]).for_event(0) == ["near"]) is filter_.matches(event)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("speed * 3.6 > 80", "speed * 3.6 > 100", True),
        ("speed * 3.6 > 80", "speed > 30", True),
        ("speed > 20", "speed * 3.6 > 80", True),
        ("speed * 3.6 > 80", "speed > 22", False),
        ("-n <= 3", "n >= 0", True),
        ("hour(time) >= 20", "hour(time) >= 22", True),
        ("hour(time) >= 22", "hour(time) >= 20", False),
        ("hour(time) >= 20", "hour(time, 'Europe/Berlin') >= 22", False),
        ("distance(lon, lat, 1, 2) < 500", "distance(lon, lat, 1, 2) < 400 AND n = 1", True),
        ("distance(lon, lat, 1, 2) < 500", "distance(lon, lat, 1, 3) < 400", False),
        ("lat < 40", "distance(lon, lat, 116, 39) < 500", True),
        ("upper(vid) LIKE 'B%'", "upper(vid) = 'B17'", True),
        ("speed * n > 3", "speed * n > 4", True),
        ("speed * n > 3", "n * speed > 4", False),
    ],
)
def test_covers(wide: str, narrow: str, expected: bool) -> None:
    assert Filter(wide, SCHEMA).covers(Filter(narrow, SCHEMA)) is expected


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("speed*3.6>80", "80 < speed * 3.60", True),
        ("(speed) > 3", "speed > 3", True),
        ("speed * %0 > 80", "speed * 3.6 > 80", True),
        ("SPEED * 2 > 1", "speed * 2 > 1", False),
        ("Abs(speed) > 1", "abs(speed) > 1", True),
        ("n * 2 > 1", "n * 2.0 > 1", False),
        ("n - (1 - big) > 1", "n - 1 - big > 1", False),
    ],
)
def test_equality_does_not_depend_on_how_an_expression_is_written(one: str, other: str, equal: bool) -> None:
    params = ["3.6"] if "%" in one else []
    first, second = Filter(one, None, params), Filter(other)
    assert (first == second) is equal
    assert Filter(str(first)) == first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sped * 2 > 1", "unknown attribute 'sped'; did you mean 'speed'?"),
        ("vid * 2 > 1", "'*' expected a number and a number, not string, int64"),
        ("abss(speed) > 1", "unknown function 'abss'; did you mean 'abs'?"),
        ("hour(time, 'Berlin') > 1", "'hour' expected a timestamp and a time zone such as 'Europe/Berlin'"),
        ("speed * 2 > 'x'", "'x' is wrong: speed * 2 (float64) expected a number"),
        ("upper(vid) = 3", "3 is wrong: upper(vid) (string) expected a string in quotes"),
        ("upper(vid) > speed", "upper(vid) (string) does not compare with speed (float64)"),
        ("coalesce(pos, pos) IS NULL", "expected an expression of single values"),
        ("coalesce(wheels, wheels) IS NULL", "expected an expression of single values"),
        ("speed + 99999999999999999999 > 1", "expected a whole number of 64 bits"),
        ("speed + 1e999 > 1", "expected a number that a float64 can hold"),
        ("n * 2 LIKE 'x'", "LIKE expected a string field, not n * 2 (int64)"),
    ],
)
def test_problem_says_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(FilterTypeError) as caught:
        Filter(text, SCHEMA)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["abss(speed) > 1", "speed + 99999999999999999999 > 1"])
def test_unknown_functions_and_wrong_constants_are_refused_without_a_schema(text: str) -> None:
    with pytest.raises(FilterTypeError):
        Filter(text)


def test_linear_comparison_that_contradicts_a_constraint_is_refused() -> None:
    schema = Schema({"speed": "float64"}, constraints={"speed": "BETWEEN 0 AND 50"})
    with pytest.raises(UnsatisfiableFilter, match="contradicts the constraint speed BETWEEN 0 AND 50"):
        Filter("speed * 3.6 > 200", schema)
    assert Filter("speed * 3.6 > 150", schema)
    with pytest.raises(UnsatisfiableFilter, match=r"hour\(time\) < 3 contradicts hour\(time\) > 20"):
        Filter("hour(time) > 20 AND hour(time) < 3", SCHEMA)


def test_constraint_may_compute() -> None:
    schema = Schema({"lane": "int32"}, constraints={"lane": "> 0 AND lane % 2 = 0"})
    with pytest.raises(UnsatisfiableFilter):
        Filter("lane < 0", schema)
    assert Filter("lane = 4", schema)


def test_explain_shows_the_range_and_the_computed_value() -> None:
    filter_ = Filter("speed * 3.6 > 80", SCHEMA)
    described = describe(filter_, {"speed": 25.0})
    assert described["normal_form"]["alternatives"][0]["sets"] == {"speed": "[22.222222222222225, +inf)"}
    (verdict,) = verdicts(filter_, {"speed": 25.0})
    assert (verdict.truth, verdict.values) == (True, {"speed": 25.0, "speed * 3.6": 90.0})
    assert describe(Filter("x > y * 2"))["warnings"] == []


def test_values_that_are_not_of_their_type_are_null() -> None:
    speeds: list[Any] = ["25", None, math.nan, [1], {}]
    for speed in speeds:
        assert Filter("speed * 3.6 > 80", SCHEMA).truth({"speed": speed}) is None
    for number in (1.5, 40_000, True):
        assert Filter("n * 2 > -1e9", SCHEMA).truth({"n": number}) is None
    assert Filter("upper(kind) = 'BUS'", SCHEMA).matches({"kind": 1})
    assert Filter("length(kind) = 3", SCHEMA).truth({"kind": "TRAM"}) is None
    assert Filter("hour(time) = 5").matches({"time": datetime(2026, 1, 1, 5, tzinfo=UTC)})
    assert Filter("timestamp_seconds(n) > '1970-01-01T00:00:05Z'").matches({"n": 6})


def test_time_that_python_cannot_hold_is_null_on_arrow() -> None:
    batch = pa.record_batch({"time": pa.array([10**17, 0], pa.timestamp("us", "UTC"))})
    assert Filter("hour(time) = 0", SCHEMA).mask(batch).tolist() == [False, True]
    nanos = pa.record_batch({"time": pa.array([1, 3_600_000_000_001], pa.timestamp("ns", "UTC"))})
    assert Filter("hour(time) = 1", SCHEMA).mask(nanos).tolist() == [False, True]


def test_batch_without_the_columns_matches_nothing() -> None:
    batch = arrow.to_batch([{"a": 1}, {"a": 2}], Schema({"a": "int32"}))
    assert Filter("speed * 2 > 1", SCHEMA).mask(batch).tolist() == [False, False]
    assert Filter("speed * 2 IS NULL", SCHEMA).mask(batch).tolist() == [True, True]


def test_fields_of_a_computed_value_are_those_of_its_predicate() -> None:
    from tidegate.filters.nodes import operands, paths, predicates

    (node,) = predicates(Filter("distance(lon, pos.x, 1, 2) < n", SCHEMA).tree.root)
    assert [path.parts for path in paths(node)] == [("lon",), ("pos", "x"), ("n",)]
    assert isinstance(operands(node)[0], ComputedValue)


MAX_STEPS_PER_CHARACTER = 200
"""Lines of Python to parse, index, compare and match a filter, for each character of its text."""


@pytest.mark.parametrize(
    "text",
    [
        "speed" + "+1" * 8000 + " > 3",
        "(" * 250 + "speed" + ")" * 250 + " > 3",
        "((" * 4000,
        "abs(" * 4000,
        "-" * 16000 + "speed > 1",
        "n * 2 IN (" + ",".join(map(str, range(3300))) + ")",
        " AND ".join(f"distance(lon, lat, {n}, 1) < 5" for n in range(300)),
        " OR ".join(f"speed * {n}.5 > 5" for n in range(1, 600)),
        "(speed + 1" * 1500,
        "distance(" * 20 + "speed" + ", 1, 2, speed)" * 20 + " > 1",
    ],
    ids=range(10),
)
@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["typed", "untyped"])
def test_hostile_text_is_handled_in_few_steps(text: str, schema: Schema | None) -> None:
    def use() -> None:
        try:
            filter_ = Filter(text, schema)
        except FilterError:
            return
        Matcher(schema).add("x", filter_)
        assert filter_.covers(filter_)
        filter_.matches({"speed": 1.0, "lon": 1.0, "lat": 1.0, "n": 7})

    _, steps = with_steps(use)
    assert steps <= STEPS_OF_ANY + MAX_STEPS_PER_CHARACTER * len(text)
