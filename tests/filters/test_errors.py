"""Every message that the author of a filter can get, with its position."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta, timezone

import pytest

from tidegate import (
    Enum,
    Filter,
    FilterParameterError,
    FilterSyntaxError,
    FilterTypeError,
    Schema,
    SchemaError,
    SemanticsUnavailable,
    TidegateError,
    UnsatisfiableFilter,
)

SCHEMA = Schema(
    {
        "vid": "string",
        "mark": "char",
        "speed": "float64",
        "count": "int32",
        "on": "bool",
        "kind": Enum("CAR", "BUS"),
        "other": Enum("X", "Y"),
        "time": "timestamp",
        "pos": {"x": "float64", "y": "float64"},
        "wheels": "int32[4]",
        "log": "string[]",
    },
    terms={"speed": {"slow": "TRAPEZOID(0, 0, 20, 35)", "broken": "TRIANGLE(3, 2, 1)", "odd": "nonsense"}},
)

SYNTAX = [
    # text, offset, message
    ("speed >", 7, "a value or a field"),
    ("speed", 5, "an operator"),
    ("speed > 5 AND", 13, "a field, a value, NOT or ("),
    ("(speed > 5", 10, "AND, OR or )"),
    ("speed > 5)", 9, "AND, OR, WITH THEME, THRESHOLD or the end"),
    ("speed > 5 6", 10, "AND, OR, WITH THEME, THRESHOLD or the end"),
    ("speed >> 5", 7, "a value or a field"),
    ("speed = 'abc", 8, "a quote ' that ends this string"),
    ("speed = `abc", 8, "a quote ' that ends this string"),
    ("pos. = 3", 3, "a name after the dot"),
    ("wheels[x] = 3", 6, "an index in brackets"),
    ('"pos = 3', 0, 'a name in quotes "..."'),
    ("speed > %", 8, "a parameter from %0 to %99"),
    ("speed > %101", 8, "a parameter from %0 to %99"),
    ("speed == 5", 7, "a value or a field (equality is one =)"),
    ("speed => 5", 7, "a value or a field (at least is >=)"),
    ("speed =< 5", 7, "a value or a field (at most is <=)"),
    ("speed IS slow.fast", 9, "the name of a term, without dots and brackets"),
    ("NOT (" * 129 + "x=1" + ")" * 129, 640, "at most 256 levels of parentheses and NOT"),
    ('vid BETWEEN "A" AND 3', 12, "a value, not a field; did you mean 'A'?"),
    ("speed @ 3", 6, "not '@'"),
    ("speed > 3AND on = 1", 8, "a number, and a blank between it and a word"),
    ("speed > -..", 9, "a number"),
    ("speed > ..", 8, "a number or a field"),
    ("5 = 6", 0, "a field on one side of the comparison"),
    ("%0 = 6", 0, "a field on one side of the comparison"),
    ("'a' LIKE 'b'", 0, "a field on one side of LIKE"),
    ("5 BETWEEN 1 AND 2", 0, "a field before BETWEEN"),
    ("speed BETWEEN 1", 15, "AND"),
    ("speed BETWEEN count AND 3", 14, "a value, not a field; did you mean 'count'?"),
    ("speed NOT = 3", 10, "BETWEEN, LIKE, MATCH, IN or STRLIKE after NOT"),
    ("speed IN ()", 10, "a value or a field"),
    ("speed * > 3", 8, "a field, a value, NOT or ("),
    ("speed * 3", 9, "an operator (=, <>, <"),
    ("1 + 2 > 3", 0, "a field in this expression"),
    ("(speed + 1 > 3", 14, "AND, OR or )"),
    ("speed * 2 ~= 'fast'", 0, "a field before ~, not an expression"),
    ("upper(vid) STRLIKE 'B17'", 0, "a field before STRLIKE, not an expression"),
    ("speed * 2 IS TRIANGLE(1, 2, 3)", 0, "a field before IS and a shape, not an expression"),
    ("FUZZY(vid IN (a, 'b'))", 6, "values in the list of IN, not fields, inside FUZZY(...)"),
    ("pos.x(3) > 1", 0, "the name of a function before ("),
    ("in(3) = 1", 0, "the name of a function before ("),
    ("abs(speed > 3", 10, ", or )"),
    ("speed" + " + 1" * 101 + " > 3", 406, "at most 100 operators in an expression"),
    ("abs(" * 30 + "speed" + ")" * 30 + " > 1", 96, "an expression that nests at most 24 deep"),
    ("speed IN (1 2)", 12, ", or )"),
    ("speed IN 3", 9, "("),
    ("speed IS", 8, "NULL, a shape"),
    ("speed IS NOT slow", 13, "NULL after IS NOT"),
    ("speed IS BLOB(1)", 9, "a shape (TRAPEZOID, TRIANGLE"),
    ("speed IS TRIANGLE(1, 2)", 9, "3 numbers in TRIANGLE(...), not 2"),
    ("speed IS TRIANGLE(1, 2, 'x')", 24, "a number"),
    ("(pos.x, pos.y) INSIDE HEXAGON(1)", 22, "BOX, CIRCLE or POLYGON"),
    ("(pos.x, pos.y) INSIDE BOX(1, 2)", 22, "BOX(west, south, east, north), not 2 numbers"),
    ("(pos.x, pos.y) INSIDE CIRCLE(1)", 22, "CIRCLE(longitude, latitude, metres), not 1 numbers"),
    ("(pos.x, pos.y) INSIDE POLYGON(1 1, 2 2)", 22, "a POLYGON of three corners or more"),
    ("(pos.x, 3) INSIDE BOX(1, 2, 3, 4)", 8, "the field of the latitude"),
    ("(pos.x, pos.y)", 14, "INSIDE"),
    ("FUZZY(speed IS NULL)", 6, "an item of a group"),
    ("FUZZY(vid MATCH 'x')", 6, "an item of a group"),
    ("FUZZY()", 6, "a field, a value"),
    ("FUZZY(speed IS slow", 19, ", or )"),
    ("FUZZY(speed IS slow AT 0.5)", 23, "LEAST"),
    ("speed > 5 WITH", 14, "THEME"),
    ("speed > 5 WITH THEME (power)", 22, "a theme in quotes"),
    ("speed > 5 THRESHOLD", 19, "a number"),
    ("device~ > 5", 8, "="),
    ("vid~ = speed", 7, "a value, not a field"),
    ("AND = 5", 0, 'not the keyword AND (a field of that name: "AND")'),
    ("x" * 17_000, 0, "at most 16384 bytes of text, not 17000"),
    ("x = '\ud800'", 5, "Unicode text without lone surrogates"),
    ("(" * 257 + "x=1" + ")" * 257, 256, "at most 256 levels of parentheses and NOT"),
    ("NOT " * 257 + "x=1", 1024, "at most 256 levels of parentheses and NOT"),
]


@pytest.mark.parametrize(("text", "at", "expected"), SYNTAX, ids=lambda value: repr(value)[:40])
def test_syntax_error_points_at_its_position(text: str, at: int, expected: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        Filter(text)
    assert expected in caught.value.expected
    assert caught.value.position == at


TYPES = [
    ("sped > 5", "unknown field 'sped'; did you mean 'speed'?"),
    ("zzz > 5", "unknown field 'zzz'; expected one of vid, mark"),
    ("pos.z > 5", "unknown field 'z' of pos; expected one of x, y"),
    ("pos > 5", "pos is a struct: expected one of its fields, such as pos.x, pos.y"),
    ("wheels > 5", "wheels is an array: expected an index, such as wheels[0]"),
    ("wheels.x > 5", "wheels is an array: expected an index, such as wheels[0]"),
    ("wheels[4] > 5", "expected an index of wheels from 0 to 3, not 4"),
    ("speed[0] > 5", "speed (float64) is no array: expected no index"),
    ("speed.x > 5", "speed (float64) has no fields: expected no .x"),
    ("vid = 5", "5 is wrong: vid (string) expected a string in quotes"),
    ("mark = 5", "5 is wrong: mark (char) expected a character in quotes"),
    ("speed = 'x'", "'x' is wrong: speed (float64) expected a number"),
    ("speed = TRUE", "TRUE is wrong: speed (float64) expected a number"),
    ("count = 'x'", "'x' is wrong: count (int32) expected a number, TRUE or FALSE"),
    ("on = 1.0", "1.0 is wrong: on (bool) expected TRUE, FALSE or a whole number"),
    ("kind = 1.5", "1.5 is wrong: kind (enum(CAR, BUS)) expected one of 'CAR', 'BUS' or a position"),
    ("kind = 'CARR'", "did you mean 'CAR'?"),
    ("time > 5", "time (timestamp) expected a time in quotes"),
    ("time > 'soon'", "'soon' is wrong: time (timestamp) expected a time in quotes"),
    ("vid = speed", "vid (string) does not compare with speed (float64)"),
    ("kind = other", "kind (enum(CAR, BUS)) does not compare with other (enum(X, Y))"),
    ("kind = vid", "does not compare"),
    ("on = speed", "does not compare"),
    ("vid = AAPL", "unknown field AAPL; did you mean 'AAPL'?"),
    ("vid = NULL", "NULL compares with nothing: expected IS NULL or IS NOT NULL"),
    ("speed = NULL", "NULL compares with nothing: expected IS NULL or IS NOT NULL"),
    ("FUZZY(speed IS slow WEIGHT 1e308, count > 3 WEIGHT 1e308)", "expected weights whose sum is a finite number"),
    ("speed IS S(-1.7e308, 1.7e308)", "expected a width in S(...) that a float can hold"),
    ("kind = CAR", "did you mean 'CAR'?"),
    ("speed BETWEEN 1 AND 'x'", "'x' is wrong: speed (float64) expected a number"),
    ("speed IN (1, 'x')", "'x' is wrong"),
    ("speed LIKE 'x'", "LIKE expected a string field, not speed (float64)"),
    ("mark LIKE 'x'", "LIKE expected a string field, not mark (char)"),
    ("vid LIKE kind", "LIKE expected a string field, not vid (string), kind (enum(CAR, BUS))"),
    ("vid LIKE 5", "LIKE expected a string in quotes, not 5"),
    ("vid MATCH '('", "expected a regular expression (RE2): missing )"),
    ("speed STRLIKE 'x'", "STRLIKE expected a string field, not speed (float64)"),
    ("vid STRLIKE 5", "STRLIKE expected a string in quotes, not 5"),
    ("vid STRLIKE 'x' WITHIN 1.5", "expected a whole number of EDITS, 0 or more, not 1.5"),
    ("vid STRLIKE 'x' WITHIN -1", "expected a whole number of EDITS, 0 or more, not -1"),
    ("vid STRLIKE 'x' SIMILARITY 2", "expected a SIMILARITY from 0 to 1, not 2"),
    ("vid IS TRIANGLE(1, 2, 3)", "IS expected a number field, not vid (string)"),
    ("speed IS TRIANGLE(3, 2, 1)", "expected a <= b <= c in TRIANGLE(a, b, c)"),
    ("speed IS BELL(0, 1, 1)", "expected a other than 0 and b > 0 in BELL(a, b, c)"),
    ("speed IS GAUSS(1, 0)", "expected sigma other than 0 in GAUSS(mean, sigma)"),
    ("speed IS S(1, 1e999)", "expected finite numbers in S(...)"),
    ("speed IS fast", "unknown term 'fast' of speed; speed has slow, broken, odd"),
    ("speed IS slo", "unknown term 'slo' of speed; did you mean 'slow'?"),
    ("speed IS broken", "the term 'broken' is 'TRIANGLE(3, 2, 1)': expected a <= b <= c"),
    ("speed IS odd", "the term 'odd' is 'nonsense': expected a shape with numbers"),
    ("count IS slow", "unknown term 'slow' of count; count has no terms"),
    ("FUZZY(speed IS slow) >= 2", "expected a least degree from 0 to 1, not 2"),
    ("FUZZY(speed IS slow AT LEAST 2)", "expected AT LEAST 0 to 1, not 2"),
    ("FUZZY(speed IS slow WEIGHT 0)", "expected a WEIGHT above 0, not 0"),
    ("(vid, speed) INSIDE BOX(1, 2, 3, 4)", "INSIDE expected a number field, not vid (string)"),
    ("(speed, speed) INSIDE BOX(39, 116, 40, 117)", "a latitude from -90 to 90, not 116 (longitude comes first)"),
    ("(speed, speed) INSIDE BOX(1, 4, 3, 2)", "with south <= north"),
    ("(speed, speed) INSIDE CIRCLE(1, 4, -3)", "a radius of 0 metres or more, not -3"),
    ("(speed, speed) INSIDE CIRCLE(200, 4, 3)", "a longitude from -180 to 180, not 200"),
    ("speed > 5 THRESHOLD 2", "expected a THRESHOLD from 0 to 1, not 2"),
    ("vid = 5~", "expected a string in quotes before ~, not 5"),
    ("speed = 'x'~", "~ expected a string field, not speed (float64)"),
]


@pytest.mark.parametrize(("text", "message"), TYPES)
def test_type_error_says_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(FilterTypeError) as caught:
        Filter(text, SCHEMA)
    assert message in str(caught.value)
    assert text in str(caught.value)
    assert "^" in str(caught.value)


def test_fuzzy_term_without_schema_is_refused() -> None:
    with pytest.raises(FilterTypeError, match="the term 'slow' needs a schema that defines it"):
        Filter("speed IS slow")


def test_several_problems_are_reported_together() -> None:
    with pytest.raises(FilterTypeError) as caught:
        Filter("sped > 5 AND vid = 3 AND kind = 'TRAM'", SCHEMA)
    assert [problem.at for problem in caught.value.problems] == [0, 19, 32]
    assert str(caught.value).startswith("3 problems, the first: unknown field 'sped'")


PARAMS = [
    ("speed > %0", [], "expected a value for %0, but 0 were given"),
    ("speed > %1", ["3"], "expected a value for %1, but 1 was given"),
    ("speed > %0", ["x"], "%0 is 'x': speed (float64) expected a number"),
    ("speed > %0", ["'3'"], "%0 is '3': speed (float64) expected a number"),
    ("vid LIKE %0", ["'Z??"], "expected a quote ' that ends this string"),
    ("vid LIKE %0", ["'"], "expected a quote ' that ends this string"),
    ("vid MATCH %0", ["("], "expected a regular expression (RE2)"),
    ("vid = %0", ["\ud800"], "expected Unicode text without lone surrogates"),
    ("speed > %0", [None], "expected text, a number or a truth value, not NoneType"),
    ("speed > %0", [float("nan")], "expected a number"),
    ("speed IS TRIANGLE(1, %0, 3)", ["x"], "expected a number, not 'x'"),
    ("kind = %0", ["TRAM"], "%0 is 'TRAM': kind (enum(CAR, BUS)) expected one of"),
    ("time > %0", ["noon"], "%0 is 'noon': time (timestamp) expected a time"),
    ("time > %0", [datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))], "expected a time in the years 1 to 9999"),
]


@pytest.mark.parametrize(("text", "params", "message"), PARAMS)
def test_parameter_errors_name_the_parameter(text: str, params: list[object], message: str) -> None:
    with pytest.raises(FilterParameterError) as caught:
        Filter(text, SCHEMA, params)
    assert message in str(caught.value)


def test_extra_params_are_refused_only_if_strict() -> None:
    assert Filter("speed > %0", SCHEMA, ["1", "2"]).params == ("1", "2")
    with pytest.raises(FilterParameterError, match="expected 1 parameters, not 2"):
        Filter("speed > %0", SCHEMA, ["1", "2"], strict_params=True)


def test_params_that_are_not_a_list_are_refused() -> None:
    with pytest.raises(FilterParameterError, match="expected a list of parameters, not '60'"):
        Filter("speed > %0", SCHEMA, "60")


def test_schema_may_be_a_dict_and_params_may_be_none() -> None:
    assert Filter("speed > 3", {"speed": "float64"}, None) == Filter("speed > 3", Schema({"speed": "float64"}), [])
    with pytest.raises(SchemaError, match="speed: unknown type 'flot'"):
        Filter("speed > 3", {"speed": "flot"})


def test_text_that_is_not_a_string_is_refused() -> None:
    with pytest.raises(FilterSyntaxError, match="the text of a filter, not int"):
        Filter(5)  # type: ignore[arg-type]


def test_with_params_changes_nothing_if_one_value_is_refused() -> None:
    built = Filter("speed > %0 AND vid = %1", SCHEMA, ["60", "B17"])
    with pytest.raises(FilterParameterError):
        built.with_params(["80", "'B"])
    assert built.params == ("60", "B17")
    assert built.matches({"speed": 61, "vid": "B17"})
    assert not built.with_params(["80", "B17"]).matches({"speed": 61, "vid": "B17"})


NEVER = [
    ("speed > 10 AND speed < 5", "speed < 5 contradicts speed > 10"),
    ("count = 1 AND count = 2", "count = 2 contradicts count = 1"),
    ("count > 5 AND count < 6", "count < 6 contradicts count > 5"),
    ("vid LIKE 'B%' AND vid = 'C'", "vid = 'C' contradicts vid LIKE 'B%'"),
    ("kind = 'CAR' AND kind <> 'CAR'", "kind <> 'CAR' contradicts kind = 'CAR'"),
    ("speed IS NULL AND speed > 3", "speed > 3 contradicts speed IS NULL"),
    ("NOT (speed > 5 OR speed <= 5)", "contradicts"),
    ("speed > 5 AND speed < 3 OR count = 1 AND count = 2", "speed < 3 contradicts speed > 5"),
    ("speed IS TRIANGLE(0, 10, 20) AND speed > 50", "speed > 50 contradicts speed IS TRIANGLE"),
    ("FUZZY(speed IS TRIANGLE(0, 1, 2), speed IS TRIANGLE(8, 9, 10))", "no speed reaches the degrees it asks for"),
    ("(pos.x, pos.y) INSIDE BOX(0, 0, 1, 1) AND pos.x > 2", "pos.x > 2 contradicts (pos.x, pos.y) INSIDE"),
    ("time > '2026-01-01' AND time < '2025-01-01'", "contradicts"),
]


@pytest.mark.parametrize(("text", "message"), NEVER)
def test_contradiction_is_refused_with_both_predicates(text: str, message: str) -> None:
    with pytest.raises(UnsatisfiableFilter) as caught:
        Filter(text, SCHEMA)
    assert message in str(caught.value)


INTE_GPS = Schema(
    {"longitude": "float64", "speed": "float64", "vid": "string"},
    constraints={"longitude": "BETWEEN 115.25 AND 117.30", "speed": "> 0", "vid": "LIKE 'B%' OR vid LIKE 'C%'"},
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("longitude > 130", "longitude > 130 contradicts the constraint longitude BETWEEN 115.25 AND 117.30"),
        ("speed > 10 AND longitude > 130", "longitude > 130 contradicts the constraint"),
        ("speed = 0", "speed = 0 contradicts the constraint speed > 0"),
        ("speed IS NULL", "speed IS NULL contradicts the constraint speed > 0"),
        ("vid = 'D'", "vid = 'D' contradicts the constraint vid LIKE 'B%' OR vid LIKE 'C%'"),
        ("longitude > 130 OR speed < 0", "contradicts the constraint"),
    ],
)
def test_filter_outside_a_constraint_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnsatisfiableFilter) as caught:
        Filter(text, INTE_GPS)
    assert message in str(caught.value)


def test_constraint_without_a_value_set_refuses_no_filter() -> None:
    schema = Schema({"speed": "float64"}, constraints={"speed": "< 0 OR NOT speed IS S(40, 80)"})
    assert Filter("speed = 5", schema).matches({"speed": 5.0})


def test_several_kinds_of_problems_are_reported_together() -> None:
    with pytest.raises(FilterTypeError) as caught:
        Filter("sped > 3 AND speed IS TRIANGLE(3, 2, 1)", SCHEMA)
    assert len(caught.value.problems) == 2


def test_covers_refuses_anything_but_a_filter() -> None:
    with pytest.raises(TypeError, match="expected a Filter to compare with, not str"):
        Filter("x > 1").covers("x > 2")  # type: ignore[arg-type]


def test_filter_inside_a_constraint_is_accepted() -> None:
    for text in ("longitude > 117", "longitude > 130 OR speed > 3", "vid = 'C9'", "vid LIKE '%9'"):
        assert Filter(text, INTE_GPS).text == text


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ({"sped": "> 0"}, "constraints.sped: unknown field 'sped'"),
        ({"speed": ">"}, "constraints.speed: expected a value or a field"),
        ({"speed": "> 0 AND vid = 'x'"}, "expected a constraint on speed alone, but it reads vid"),
        ({"speed": "> 5 AND speed < 3"}, "constraints.speed: can never match"),
        ({"vid": "= 'x'~"}, "expected a constraint without likeness of meaning"),
    ],
)
def test_invalid_constraint_raises_schema_error(constraints: dict[str, str], message: str) -> None:
    schema = Schema({"speed": "float64", "vid": "string"}, constraints=constraints)
    with pytest.raises(SchemaError) as caught:
        Filter("speed > 3", schema)
    assert message in str(caught.value)


def test_paper_example_matches_on_a_service_without_the_constraint() -> None:
    e1 = {"longitude": 131.0, "speed": 61.0}
    e2 = {"longitude": 131.0, "speed": 12.0}
    r2 = Filter("longitude > 130 AND speed > 10 AND speed < 60")
    r3 = Filter("longitude > 130 AND speed >= 60")
    assert [r2.matches(e1), r2.matches(e2)] == [False, True]
    assert [r3.matches(e1), r3.matches(e2)] == [True, False]


@pytest.mark.parametrize("method", ["matches", "degree", "truth"])
def test_filter_with_tilde_without_semantics_is_refused(method: str) -> None:
    built = Filter("speed > 3 AND device~ = 'laptop'~ WITH THEME ('power')")
    with pytest.raises(SemanticsUnavailable) as caught:
        getattr(built, method)({"device": "laptop"})
    assert caught.value.position == 14
    assert "needs a semantic space" in str(caught.value)


@pytest.mark.parametrize("method", ["matches", "degree", "truth"])
def test_event_that_is_no_mapping_is_refused(method: str) -> None:
    with pytest.raises(TidegateError, match="expected a dict of attributes, not"):
        getattr(Filter("speed > 3"), method)(["speed"])


def test_errors_survive_pickling() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        Filter("speed >")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.position) == (FilterSyntaxError, str(caught.value), 7)


def test_error_shows_a_long_text_only_around_the_position() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        Filter("speed > 5 AND " * 50 + "speed >> 3" + " AND speed > 5" * 50)
    shown, carets = str(caught.value).splitlines()[1:3]
    assert len(shown) < 140
    assert shown.startswith("  ...")
    assert shown[carets.index("^")] == ">"


def test_filter_is_immutable() -> None:
    built = Filter("speed > 3")
    with pytest.raises(AttributeError, match="a Filter is immutable"):
        built.text = "speed > 4"
