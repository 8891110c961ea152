"""Conditions, positions and time zones in expressions."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.expressions.test_expressions import EVENT, SCHEMA
from tidegate import ExpressionError, Schema
from tidegate.expressions import evaluate, names, resolve, to_sql
from tidegate.expressions.geo import EARTH_M, bearing, distance, geohash
from tidegate.expressions.like import fits


def value(text: str, **changes: Any) -> Any:
    expression = resolve(text, SCHEMA)
    assert to_sql(expression)
    return evaluate(expression, {**EVENT, **changes})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("speed > 2", True),
        ("speed>=2.5 and count<>8", True),
        ("speed != 2.5 OR vid = 'B17'", True),
        ("NOT flag", False),
        ("not not flag", True),
        ("count + 1 = 8", True),
        ("speed > null", None),
        ("tiny > 0 AND false", False),
        ("tiny > 0 AND true", None),
        ("tiny > 0 OR true", True),
        ("NOT (tiny > 0)", None),
        ("huge > big", True),
        ("huge = 9223372036854775807", False),
        ("kind = 'BUS'", True),
        ("'BUS' <> kind", False),
        ("time > '2026-11-15T11:34:56Z'", True),
        ("time BETWEEN '2026-01-01' AND '2027-01-01'", True),
        ("count IN (1, 7.0)", True),
        ("count NOT IN (1, null)", None),
        ("count IN (7, null)", True),
        ("kind IN ('CAR')", False),
        ("vid LIKE 'B%'", True),
        ("vid NOT LIKE '_17'", False),
        ("count NOT BETWEEN 1 AND 7", False),
        ("tiny IS NULL", True),
        ("pos IS NOT NULL", True),
        ("null IS NULL", True),
        ("if(speed > 60, 'fast', 'slow')", "slow"),
        ("if(tiny > 0, 1, 2)", 2),
        ("if(true, null, 2)", None),
        ("CASE WHEN speed > 60 THEN 'fast' WHEN speed > 2 THEN 'medium' ELSE 'slow' END", "medium"),
        ("case when flag then 1 end + 1", 2),
        ("CASE WHEN NOT flag THEN 1 END", None),
        ("CASE kind WHEN 'CAR' THEN 4 WHEN 'BUS' THEN 6 END", 6),
        ("CASE WHEN flag THEN 1 ELSE 0.5 END", 1.0),
        ("hour(time, 'Europe/Berlin')", 12),
        ("hour(time, 'UTC') = hour(time)", True),
        ("day(time, 'Pacific/Auckland')", 16),
        ("weekday(time, 'Pacific/Auckland')", 0),
        ("geohash(13.3777, 52.5163, 7)", "u33db2m"),
        ("geohash(180, 90, 1)", "z"),
        ("geohash(-180, -90, 12)", "000000000000"),
        ("geohash(181, 0, 3)", None),
        ("distance(0, 0, 0, 91)", None),
        ("bearing(0, 0, 0, 0)", None),
        ("bearing(0, 0, 10, 0)", 90.0),
        ("bearing(0, 0, -10, 0)", 270.0),
    ],
)
def test_expression_has_the_expected_value(text: str, expected: Any) -> None:
    assert value(text) == expected
    assert type(value(text)) is type(expected)


def test_keywords_are_attributes_where_a_value_is_expected() -> None:
    schema = Schema({"in": "int32", "case": "int32", "end": "int32", "like": "string"})
    event = {"in": 1, "case": 2, "end": 3, "like": "x"}
    assert evaluate(resolve("CASE WHEN in IN (1) THEN end END + case", schema), event) == 5
    assert evaluate(resolve("like LIKE 'x'", schema), event) is True
    assert names("if(a > 1, CASE b WHEN c THEN d END, e IN (f, 1))") == set("abcdef")


def test_nan_is_equal_to_itself_and_above_all_numbers() -> None:
    assert value("speed = speed", speed=math.nan) is True
    assert value("speed > 1e308", speed=math.nan) is True
    assert value("speed IS NULL", speed=math.nan) is False


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("count > 1", True),
        ("speed > 1", False),
        ("speed > 1 OR flag", False),
        ("count > 1 AND flag", True),
        ("speed IS NULL", True),
        ("if(speed > 1, 1, 2)", True),
        ("if(flag, speed, 2)", False),
        ("CASE WHEN flag THEN 1 END", False),
        ("CASE WHEN speed > 1 THEN 1 ELSE 2 END", True),
        ("count IN (1, 2)", True),
        ("hour(time, 'UTC')", False),
    ],
)
def test_condition_is_required_if_it_is_never_null(text: str, required: bool) -> None:
    assert resolve(text, SCHEMA).required is required


@pytest.mark.parametrize(
    ("text", "problem", "at"),
    [
        ("speed AND flag", "'AND' expected a condition and a condition, not float64, bool", 0),
        ("NOT vid", "'NOT' expected a condition, not string", 0),
        ("vid > 1", "'>' expected values that compare, not string, int64", 0),
        ("kind < 'BUS'", "'<' expected values that compare, not enum(CAR, BUS), string", 0),
        ("wheels = wheels", "'=' expected values that compare, not int32[4], int32[4]", 0),
        ("kind = 'BUZ'", "'BUZ' is no label of enum(CAR, BUS); did you mean 'BUS'?", 0),
        ("kind IN ('BUS', 'TRAM')", "'TRAM' is no label of enum(CAR, BUS); expected one of CAR, BUS", 0),
        ("time > 'soon'", "expected a time such as '2010-01-01T00:00:00Z', not 'soon'", 0),
        ("vid IN (1, 2)", "'IN' expected values that compare, not string, int64, int64", 0),
        ("vid LIKE vid", "'LIKE' expected text and a pattern in quotes, not string, string", 0),
        ("if(count, 1, 2)", "IF expected a condition, not int32", 0),
        ("if(flag, 1)", "'if' expected a condition and two values, not 2 arguments", 0),
        ("if(flag, 1, 'a')", "IF expected values of one type, not int64, string", 0),
        ("CASE WHEN flag THEN 1 ELSE vid END", "CASE expected values of one type, not int64, string", 0),
        ("CASE WHEN flag THEN null END", "expected something that has a type", 0),
        ("CASE WHEN flag 1", "expected THEN, not '1'", 15),
        ("CASE WHEN flag THEN 1", "expected END", 21),
        ("CASE flag THEN 1", "expected WHEN, not 'THEN'", 10),
        ("count IS 3", "expected NULL, not '3'", 9),
        ("count NOT 3", "expected IN, LIKE or BETWEEN after NOT, not '3'", 10),
        ("count IN 3", "expected '(', not '3'", 9),
        ("count BETWEEN 1 OR 2", "expected AND, not 'OR'", 16),
        ("speed > 1 > 2", "expected an operator or the end, not '>'", 10),
        ("hour(time, 'Berlin')", "'hour' expected a timestamp and a time zone such as 'Europe/Berlin'", 0),
        ("hour(time, vid)", "'hour' expected a timestamp and a time zone such as 'Europe/Berlin'", 0),
        ("hour(time, '../etc/passwd')", "'hour' expected a timestamp and a time zone", 0),
        ("geohash(1, 2, 13)", "'geohash' expected a number and a number and a length from 1 to 12, not computed", 0),
        ("roud(speed)", "unknown function 'roud'; did you mean 'round'?", 0),
        ("NOT " * 120 + "flag", "expected at most 100 operators", 400),
        ("flag" + " AND flag" * 101, "expected at most 100 operators", 909),
        ("count IN (" + ",".join("1" * 103) + ")", "expected at most 100 operators", 0),
        ("distance(" * 20 + "1" + ", 2, 3, speed)" * 20, "expected a simpler expression: as SQL it is too long", 0),
    ],
)
def test_problem_points_to_its_position(text: str, problem: str, at: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        resolve(text, SCHEMA)
    assert problem in caught.value.problems[0].message
    assert at in (0, caught.value.position)


positions = st.tuples(st.floats(-180, 180), st.floats(-90, 90))


@given(positions, positions)
def test_distance_is_that_of_vectors_on_a_sphere(one: tuple[float, float], other: tuple[float, float]) -> None:
    (x, y), (x2, y2) = (tuple(map(math.radians, place)) for place in (one, other))
    vectors = [(math.cos(b) * math.cos(a), math.cos(b) * math.sin(a), math.sin(b)) for a, b in ((x, y), (x2, y2))]
    chord = math.dist(*vectors)
    assert distance(*one, *other) == pytest.approx(2 * EARTH_M * math.asin(min(1, chord / 2)), rel=1e-6, abs=0.2)


@given(positions, positions)
def test_bearing_is_from_0_to_360(one: tuple[float, float], other: tuple[float, float]) -> None:
    degrees = bearing(*one, *other)
    assert degrees is None if one == other else degrees is not None and 0 <= degrees < 360


@given(positions, st.integers(1, 12))
def test_geohash_is_that_of_repeated_halving(place: tuple[float, float], length: int) -> None:
    bounds, bits = [[-180.0, 180.0], [-90.0, 90.0]], ""
    for n in range(5 * length):
        low, high = bounds[n % 2]
        middle = (low + high) / 2
        bits += "1" if place[n % 2] >= middle else "0"
        bounds[n % 2] = [middle, high] if bits[-1] == "1" else [low, middle]
    digits = "".join("0123456789bcdefghjkmnpqrstuvwxyz"[int(bits[n : n + 5], 2)] for n in range(0, len(bits), 5))
    edges = [abs(place[n] - edge) for n in (0, 1) for edge in bounds[n]]
    assert geohash(*place, length) == digits or min(edges) < 1e-12  # at an edge, rounding decides


@given(st.text("ab%_\\", max_size=8), st.text("ab%_\\", max_size=8))
def test_like_agrees_with_the_oracle(text: str, pattern: str) -> None:
    from tests import oracle

    assert fits(text, pattern) is oracle.like(text, pattern)
