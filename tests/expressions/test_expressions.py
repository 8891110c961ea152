"""The expression language of projections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.services import generate
from tidegate import ExpressionError, Schema
from tidegate.errors import Problem
from tidegate.expressions import Expression, evaluate, resolve, to_sql
from tidegate.expressions.casts import quoted
from tidegate.model.events import value_violations
from tidegate.model.types import parse_type

SCHEMA = generate.SCHEMA
EVENT = {
    "flag": True,
    "count": 7,
    "big": 2**63 - 1,
    "huge": 2**64 - 1,
    "small": 0.1,
    "speed": 2.5,
    "letter": "x",
    "vid": "B17",
    "kind": "BUS",
    "time": "2026-11-15T12:34:56.789012+01:00",
    "pos": {"x": 1.5},
    "wheels": [10, 20],
    "`odd`": "o",
}


def value(text: str, **options: Any) -> Any:
    return evaluate(resolve(text, SCHEMA, **options), EVENT)


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("1 + 2 * 3", "int64", 7),
        ("(1 + 2) * 3", "int64", 9),
        ("10 - 4 - 3", "int64", 3),
        ("7 / 2", "float64", 3.5),
        ("-7 % 3", "int64", -1),
        ("-7.5 % 2", "float64", -1.5),
        ("- - count", "int64", 7),
        ("-speed", "float64", -2.5),
        ("count + 1.0", "float64", 8.0),
        ("big + 1", "int64", None),
        ("-9223372036854775808", "int64", -(2**63)),
        ("-(big + 0 * -9223372036854775808)", "int64", -(2**63) + 1),
        ("huge + 0", "int64", None),
        ("huge / 1", "float64", 2.0**64),
        ("count / 0", "float64", None),
        ("count % 0", "int64", None),
        ("small * 1", "float64", 0.10000000149011612),
        ("small", "float32", 0.10000000149011612),
        ("1e3", "float64", 1000.0),
        (".5 + 5.", "float64", 5.5),
        ("TRUE", "bool", True),
        ("'it''s'", "string", "it's"),
        ("kind", "enum(CAR, BUS)", "BUS"),
        ("pos.x", "float64", 1.5),
        ('pos."y y"', "int16", None),
        ("wheels[1]", "int32", 20),
        ("wheels[3]", "int32", None),
        ("wheels", "int32[4]", [10, 20]),
        ('"`odd`"', "string", "o"),
        ("_id", "string", None),
        ("abs(-3)", "int64", 3),
        ("abs(-9223372036854775808)", "int64", None),
        ("ABS(-2.5)", "float64", 2.5),
        ("round(2.675, 2)", "float64", 2.68),
        ("round(-2.5)", "float64", -3.0),
        ("round(count, 2)", "int64", 7),
        ("floor(-2.5)", "int64", -3),
        ("ceil(2.1)", "int64", 3),
        ("floor(1e19)", "int64", None),
        ("sqrt(9)", "float64", 3.0),
        ("sqrt(-1)", "float64", None),
        ("power(2, 10)", "float64", 1024.0),
        ("power(0, -1)", "float64", math.inf),
        ("power(-8, 0.5)", "float64", None),
        ("exp(1000)", "float64", math.inf),
        ("ln(0)", "float64", None),
        ("sign(-3)", "float64", -1.0),
        ("upper(vid)", "string", "B17"),
        ("lower(kind)", "string", "bus"),
        ("trim('  x ')", "string", "x"),
        ("length('日本🚕')", "int64", 3),
        ("length(wheels)", "int64", 2),
        ("substring(vid, 2)", "string", "17"),
        ("substring(vid, -2, 1)", "string", "1"),
        ("substring(vid, 0, 2)", "string", "B1"),
        ("substring(vid, -9, 8)", "string", "B1"),
        ("replace(vid, '1', 'x')", "string", "Bx7"),
        ("replace(vid, '', 'x')", "string", "B17"),
        ("concat(vid, '-', count, flag)", "string", "B17-7true"),
        ("concat(vid, null)", "string", None),
        ("coalesce(tiny, 3)", "int64", 3),
        ("coalesce(null, kind)", "enum(CAR, BUS)", "BUS"),
        ("coalesce(kind, 'x')", "string", "BUS"),
        ("least(count, 3.5)", "float64", 3.5),
        ("greatest(tiny, count)", "int64", 7),
        ("greatest('a', vid)", "string", "a"),
        ("year(time) + month(time)", "int64", 2037),
        ("hour(time)", "int64", 11),
        ("minute(time)", "int64", 34),
        ("weekday(time)", "int64", 6),
        ("unix_seconds(time)", "int64", 1794742496),
        ("unix_millis(time)", "int64", 1794742496789),
        ("timestamp_seconds(0)", "timestamp", datetime(1970, 1, 1, tzinfo=UTC)),
        ("timestamp_millis(big)", "timestamp", None),
        ("time", "timestamp", datetime(2026, 11, 15, 11, 34, 56, 789012, tzinfo=UTC)),
    ],
)
def test_expression_has_the_expected_type_and_value(text: str, kind: str, expected: Any) -> None:
    expression = resolve(text, SCHEMA)
    assert expression.type == parse_type(kind)
    assert evaluate(expression, EVENT) == expected
    assert to_sql(expression)


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("count", True),
        ("speed", False),
        ("pos.x", True),
        ('pos."y y"', False),
        ("wheels[0]", False),
        ("count + 1", False),
        ("count + 1.0", True),
        ("count / 2", False),
        ("huge * 1.5", True),
        ("coalesce(speed, 0)", True),
        ("coalesce(speed, big)", False),
        ("concat(letter, count)", True),
        ("floor(count)", True),
        ("floor(small)", False),
        ("greatest(speed, small)", True),
    ],
)
def test_expression_is_required_if_it_is_never_null(text: str, required: bool) -> None:
    assert resolve(text, SCHEMA).required is required


@pytest.mark.parametrize(
    ("text", "kind", "expected", "required"),
    [
        ("count", "int8", 7, False),
        ("count", "int64", 7, True),
        ("count * 100", "int8", None, False),
        ("-1", "uint8", None, False),
        ("count", "uint8", 7, False),
        ("speed", "int32", 2, False),
        ("-2.9", "int32", -2, False),
        ("1e300", "int64", None, False),
        ("-0.5", "uint8", 0, False),
        ("count", "float32", 7.0, True),
        ("0.1", "float32", 0.10000000149011612, True),
        ("huge", "float64", 2.0**64, True),
        ("flag", "int32", 1, True),
        ("count", "string", "7", True),
        ("flag", "string", "true", True),
        ("time", "string", "2026-11-15T11:34:56.789012Z", False),
        ("kind", "string", "BUS", True),
        ("'CAR'", "enum(CAR, BUS)", "CAR", False),
        ("'TRAM'", "enum(CAR, BUS)", None, False),
        ("kind", "enum(CAR, BUS, TRAM)", "BUS", True),
        ("vid", "char", None, False),
        ("'12'", "int32", 12, False),
        ("'1.5'", "int32", None, False),
        ("' 12'", "int32", None, False),
        ("'18446744073709551615'", "uint64", 2**64 - 1, False),
        ("'-1.5e3'", "float64", -1500.0, False),
        ("'1_0'", "float64", None, False),
        ("'TRUE'", "bool", True, False),
        ("'yes'", "bool", None, False),
        ("'2010-01-01'", "timestamp", datetime(2010, 1, 1, tzinfo=UTC), False),
        ("'2010-01-01T00:00:00+01:00'", "timestamp", datetime(2009, 12, 31, 23, tzinfo=UTC), False),
        ("'soon'", "timestamp", None, False),
        ("null", "int32", None, False),
    ],
)
def test_cast_has_the_expected_type_and_value(text: str, kind: str, expected: Any, required: bool) -> None:
    expression = resolve(text, SCHEMA, type=kind)
    assert (str(expression.type), evaluate(expression, EVENT), expression.required) == (kind, expected, required)
    assert to_sql(expression)


def test_default_replaces_null() -> None:
    expression = resolve("tiny", SCHEMA, default=5)
    assert (str(expression.type), expression.required) == ("int8", True)
    assert (evaluate(expression, EVENT), evaluate(expression, {"tiny": 1})) == (5, 1)
    assert to_sql(expression) == "coalesce(`tiny`, CAST('5' AS TINYINT))"
    moment = resolve("time", SCHEMA, default="2010-01-01T00:00:00Z")
    assert to_sql(moment) == "coalesce(`time`, timestamp_micros(1262304000000000L))"


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("count + big", "try_add(CAST(`count` AS BIGINT), `big`)"),
        ("huge - 1", "try_subtract(try_cast(`huge` AS BIGINT), 1L)"),
        ("small * 2", "try_multiply(CAST(`small` AS DOUBLE), CAST(2L AS DOUBLE))"),
        ("-speed", "negative(`speed`)"),
        ("speed * -1.5", "try_multiply(`speed`, (-1.5D))"),
        ("wheels[1]", "get(`wheels`, 1)"),
        ('pos."y y"', "`pos`.`y y`"),
        ('"`odd`"', "```odd```"),
        ("'it''s \\ ${x}'", r"'it\'s \\ \u0024{x}'"),
        ("round(speed, 2)", "round(`speed`, 2)"),
        ("concat(vid, count)", "concat(`vid`, CAST(`count` AS STRING))"),
        ("concat(vid, null)", "concat(`vid`, CAST(NULL AS STRING))"),
        ("1e300", "1e+300D"),
    ],
)
def test_expression_is_written_as_the_expected_sql(text: str, sql: str) -> None:
    assert to_sql(resolve(text, SCHEMA)) == sql


@pytest.mark.parametrize(
    ("text", "problem", "at"),
    [
        ("sped * 2", "unknown attribute 'sped'; did you mean 'speed'?", 0),
        ("1 + pos.z", "unknown attribute 'z'; expected one of x, y y", 4),
        ("count.x", "count (int32) has no parts: expected no .x", 0),
        ("count[1]", "count (int32) is no array: expected no index", 0),
        ("wheels[4]", "wheels has at most 4 elements: expected an index below", 0),
        ("rond(speed)", "unknown function 'rond'; did you mean 'round'?", 0),
        ("1 + upper(count)", "'upper' expected text, not int32", 4),
        ("speed + vid", "'+' expected a number and a number, not float64, string", 0),
        ("flag + 1", "'+' expected a number and a number, not bool, int64", 0),
        ("concat(speed)", "'concat' expected text, a whole number or a truth value, not float64", 0),
        ("coalesce(vid, 1)", "'coalesce' expected values of one type, not string, int64", 0),
        ("least(kind, kind)", "'least' expected several numbers, texts or timestamps, not enum(CAR, BUS)", 0),
        ("greatest(1)", "'greatest' expected several numbers, texts or timestamps, not int64", 0),
        ("sqrt(1, 2)", "'sqrt' expected a number, not int64, int64", 0),
        ("hour(vid)", "'hour' expected a timestamp, not string", 0),
        ("length(count)", "'length' expected text or an array, not int32", 0),
        ("9223372036854775808", "expected a whole number of 64 bits, or a float such as 9223372036854775808.0", 0),
        ("1e999", "expected a number that a float64 can hold", 0),
        ("null", "expected something that has a type; null needs one", 0),
        ("", "expected a value or an attribute", 0),
        ("1 +", "expected a value or an attribute", 3),
        ("1 2", "expected an operator or the end, not '2'", 2),
        ("(1", "expected ')'", 2),
        ("abs(", "expected a value or an attribute", 4),
        ("'open", "expected a quote ' that ends this text", 0),
        ("pos.", "expected a name after the dot", 4),
        ("wheels[x]", "expected an index, such as [3], not 'x'", 7),
        ("a ; b", "expected a value, an attribute or an operator, not ';'", 2),
        ("1x", "expected a value, an attribute or an operator, not '1'", 0),
        ("(" * 99, "expected an expression that nests at most 24 deep", 24),
        ("1" + "+1" * 101, "expected at most 100 operators", 202),
        ("1" * 5000, "expected at most 4096 characters, not 5000", 0),
    ],
)
def test_problem_points_to_its_position(text: str, problem: str, at: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        resolve(text, SCHEMA)
    assert problem in caught.value.problems[0].message
    assert caught.value.position == at


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ExpressionError) as caught:
        resolve("sped + cuont + upper(1)", SCHEMA)
    assert [problem.at for problem in caught.value.problems] == [0, 7, 15]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"type": "int32[]"}, "float64 can't be cast to int32[]: only single values can"),
        ({"type": "timestamp"}, "float64 can't be cast to timestamp"),
        ({"type": "string"}, "float64 can't be cast to string"),
        ({"type": "uint64"}, "float64 can't be cast to uint64"),
        ({"default": "x"}, "default: expected a number (float64), not 'x'"),
    ],
)
def test_impossible_casts_and_defaults_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        resolve("speed", SCHEMA, **options)
    assert caught.value.problems[0].message == problem


def test_name_that_spark_would_substitute_is_refused() -> None:
    with pytest.raises(ExpressionError, match="expected a name without"):
        resolve('"${x}"', Schema({"${x}": "string"}))


def test_only_a_plain_selection_has_an_attribute() -> None:
    assert resolve("speed", SCHEMA).attribute == "speed"
    assert resolve("pos.x", SCHEMA).attribute is None
    assert resolve("speed * 1", SCHEMA).attribute is None


# Laws ------------------------------------------------------------------------


@given(st.integers(0, 2**32))
def test_value_has_the_inferred_type(seed: int) -> None:
    random = Random(seed)
    expression: Expression | None = None
    while expression is None:
        with suppress(ExpressionError):
            expression = resolve(generate.expression(random), SCHEMA)
    assert to_sql(expression)
    for _ in range(5):
        result = evaluate(expression, generate.event(random))
        assert result is not None or not expression.required, expression.text
        if result is not None:
            assert list(value_violations(result, expression.type, "value", partial=True)) == [], expression.text


@given(st.text(alphabet="ab1.'\"()[]+-*/%, \\$speed", max_size=30) | st.text(max_size=20))
def test_any_text_parses_or_raises_an_expression_error(text: str) -> None:
    problems: Sequence[Problem] = ()
    try:
        to_sql(resolve(text, SCHEMA))
    except ExpressionError as error:
        problems = error.problems
    assert all(0 <= problem.at <= len(text) for problem in problems)


@given(st.text())
def test_quoted_text_ends_at_its_last_quote(text: str) -> None:
    inner = quoted(text)[1:-1]
    assert inner.replace("\\\\", "").replace("\\'", "").find("'") < 0
    assert "${" not in inner
