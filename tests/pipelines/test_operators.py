"""Every operator against slow, obvious Python: records in, what a writer gets out."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines import obvious, postgres
from tests.pipelines.batches import KEY, START, Lines, Written, moment, run, scanned, stream
from tests.pipelines.obvious import Event
from tests.services import generate
from tidegate.errors import ExpressionError, ServiceError
from tidegate.expressions import evaluate, resolve
from tidegate.expressions.conditions import CONDITIONS
from tidegate.expressions.functions import APPROXIMATE, FUNCTIONS
from tidegate.model import Schema, timestamps
from tidegate.model.types import Type
from tidegate.pipelines.resources import JdbcConnection, RunnerResources
from tidegate.services import loads
from tidegate.services.operators import Computed, Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

STREAMS = """
streams:
  a:
    schema: &s {k: "string?", "n": "int64?", f: "float64?", e: "enum(ZED, ALPHA, MID)?", u: "uint64?", time: timestamp}
    event_time: time
  b: {schema: *s, event_time: time}
"""
EVENTS = loads(STREAMS).streams["a"].schema
KEYS = ["x", "#", "@", "|", "%", "%23", "%7C", "", "x|y", None, "%00"]


def kind(name: str) -> Type:
    field = EVENTS.root.get(name)
    assert field is not None
    return field.type


def some(count: int, seed: int = 1, stream: str = "a", span: int = 60) -> list[Event]:
    """Events with every kind of oddity, in the order of their records."""
    random = Random(seed)
    found = []
    for n in range(count):
        second = random.randrange(span * 4) / 4
        found.append(
            {
                "k": random.choice(KEYS),
                "n": random.choice([None, 0, 1, -1, 7, 2**53 + 1, 2**63 - 1, -(2**63)]),
                "f": random.choice([None, 0.0, 1.5, -2.25, 1e300]),
                "e": random.choice([None, "ZED", "ALPHA", "MID"]),
                "u": random.choice([None, 0, 3, 2**63, 2**64 - 1]),
                "time": moment(second),
                "_id": f"{stream}:0:{n}",
                "_time": START + round(second * 1e6),
                "_source": n,
            }
        )
    return found


def lines(events: list[Event]) -> list[str]:
    return [json.dumps({name: value for name, value in event.items() if name[0] != "_"}) for event in events]


def attributes(event: Event) -> Event:
    return {field.name: event[field.name] for field in EVENTS.root}


def service(pipeline: str, rest: str = "", inputs: str = "a") -> str:
    return f"{STREAMS}\nservices: {{out: {{from: {inputs}, pipeline: [{pipeline}]{rest}}}}}"


# Records -------------------------------------------------------------------------

TYPES = Schema(
    {
        "b": "bool?", "i8": "int8?", "i64": "int64?", "u8": "uint8?", "u64": "uint64?", "f32": "float32?",
        "f": "float64?", "c": "char?", "s": "string?", "e": "enum(CAR, BUS)?", "t": "timestamp?",
        "st": "{x: float64, y: int16?}?", "a": "int32[2]?", "as": "{k: string, n: uint8?}[]?", "aa": "int8[][]?",
        "it's": "int32?", "dot.ted": "int32?",
    }
)  # fmt: skip
PLAIN = f"streams: {{in: {{schema: {json.dumps(TYPES.to_dict())}}}}}\nservices: {{out: {{from: in}}}}"
WORDS: dict[str, list[str]] = {
    "b": ["true", "false", "null", '"true"', "1", "0", "[]"],
    "i8": ["1", "127", "128", "255", "-128", "-129", "1.0", "1.5", "1e1", '"1"', "true", "1E400", "00012"],
    "i64": [str(2**63 - 1), str(-(2**63)), str(2**63), "1e3", '"5"', str(2**53 + 1)],
    "u8": ["0", "255", "256", "-1", "1.0", '"3"'],
    "u64": [str(2**64 - 1), str(2**63), str(2**64), "-1", "1.5", "1.0", "1e2", "9" * 30, "0.4", "-0.4", "true"],
    "f32": ["1", "0.1", "1e39", "-1e39", "3.4028235e38", '"1"', "NaN", "-Infinity", "true", "16777217"],
    "f": ["1", "1e308", "1e309", "NaN", '"x"', "+1", ".5", "01", "true", "12345678901234567890", "{}"],
    "c": ['"a"', '"ab"', '""', '"🚕"', "null"],
    "s": ['"a"', '""', "null", '"\\u0000"', "'a'", '"ß\u2028"', '"a\tb"'],
    "e": ['"CAR"', '"TRAM"', '""', '"car"', "true"],
    "t": [
        *('"2026-01-01T00:00:00Z"', '"2026-01-01T00:00:00"', '"2026-01-01"', '"2026-01-01 01:02:03"', '"soon"', '""'),
        *('"2026-01-01T00:00:00.123456789Z"', '"2026-01-01T00:00:00.5+05:30"', '"2026-01-01T00:00"', '"2026"'),
        *('"T12:00"', '"12:00"', '"now"', '"today"', "5", "1.5", "true", '"0000-01-01T00:00:00Z"', '"2026-1-1"'),
        *('"0001-01-01T00:00:00+01:00"', '"9999-12-31T23:59:59-01:00"', '"9999-12-31T23:59:59.999999Z"'),
        *('"10000-01-01T00:00:00Z"', '"+12026-01-01"', '"2026-02-30"', '"2026-01-01T24:00:00Z"'),
        *('"2026-01-01T00:00:60Z"', '"1582-10-10T00:00:00Z"', '"0001-01-01T00:00:00Z"'),
    ],
    "st": [
        *('{"x": 1}', '{"x": 1, "y": 2}', "{}", '{"x": null}', '{"y": 1}', '{"x": "a"}', '{"x": 1, "y": "q"}'),
        *('{"x": 1, "z": 2}', "1", "[]", "[1]", '"a"', '"{}"', "null"),
    ],
    "a": ["[]", "[1]", "[1, 2]", "[1, 2, 3]", "[1, null]", '["a"]', '[1, "a"]', "[1.5]", "{}", "1", '"[1]"', "[[1]]"],
    "as": [
        *("[]", '[{"k": "a"}]', '[{"k": null}]', "[{}]", "[null]", '[{"k": "a", "n": 256}]', "[1]", '{"k": "a"}'),
        *('[{"k": "a"}, {"n": 1}]', '[{"k": "a", "n": "x"}]'),
    ],
    "aa": ["[[]]", "[[1], null]", "[1]", "[[200]]", '[["x"]]'],
    "it's": ["1", '"x"'],
    "dot.ted": ["1", '"x"'],
}  # fmt: skip
WHOLE = [
    *("", "   ", "\t", "null", "5", "[1]", "[]", '"x"', "true", '[{"i8": 1}]', '{"i8": 1', "{'i8': 1}", "{i8: 1}"),
    *('{"i8": 1,}', '{"I8": 1}', '{"zz": 1, "i8": 3}', '{"i8": 1 /* c */}', '{"i8": 1, "i8": 2}', '{"_corrupt": "x"}'),
    *('{"_time": "soon"}', '{"_themes": "a"}', "{}", '{"zz": ' + "[" * 900 + "]" * 900 + "}", '\ufeff{"i8": 1}'),
]
LENIENT: dict[str, dict[str, Any]] = {
    '{"s": 1.50}': {"s": "1.5"},
    '{"s": true}': {"s": "true"},
    '{"s": [1, 2]}': {"s": "[1,2]"},
    '{"c": 1}': {"c": "1"},
    '{"u64": "7"}': {"u64": 7},
    '{"f": "NaN"}': {"f": None},
    '{"s": "\\ud800"}': {"s": "?"},
    '{"t": "2026-01-01T00:00:00 Europe/Berlin"}': {"t": "2025-12-31T23:00:00.000000Z"},
    '{"i8": 1} {"i8": 2}': {"i8": 1},
}
"""What Spark's reader takes and the model does not: docs/limits.md has them."""
STRICT = ['{"e": 1}', '{"t": "20260101"}', '{"t": "2026-01-01T00:00:00+18:30"}', '{"i8": "x", "i8": 1}']
"""What the model takes and Spark's reader does not."""


REASONS = {
    "": "expected a JSON object, not an empty line",
    "[1]": "expected a JSON object, not [1]",
    '{"i8": 200}': "i8: expected int8, -128 to 127, not 200",
    '{"i8": "x"}': "i8: expected int8?, not x",
    '{"it\'s": "x", "b": 1}': "b: expected bool?, not 1; it's: expected int32?, not x",
    '{"st": {"x": "a"}}': "st.x: expected float64, not a",
    '{"st": {}}': "st.x: expected float64, but it is missing",
    '{"as": [{"k": "a"}, {}]}': "as[].k: expected string, but it is missing",
    '{"as": [{"k": "a", "n": 300}]}': "as[].n: expected uint8, 0 to 255, not 300",
    '{"aa": [[1], [200]]}': "aa[][]: expected int8, -128 to 127, not 200",
    '{"a": [1, 2, 3]}': "a: expected at most 2 elements, not 3",
    '{"e": "TRAM", "c": "ab"}': "c: expected one character, not ab; e: expected one of CAR, BUS, not TRAM",
    '{"u64": -1}': "u64: expected uint64, 0 to 18446744073709551615, not -1",
    '{"t": "12:00"}': "t: expected a timestamp such as 2026-01-31T12:00:00Z, not 12:00",
    '{"_time": "soon"}': "_time: expected a timestamp such as 2026-01-31T12:00:00Z, not soon",
}
GIVEN = [f"{{{json.dumps(name)}: {word}}}" for name, words in WORDS.items() for word in words] + WHOLE


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[str, Written]:
    """Return the result of each line, in one Spark job."""
    every = [*GIVEN, *LENIENT, *STRICT, *REASONS]
    return dict(zip(every, run(spark, PLAIN, **{"in": every}), strict=True))


@pytest.mark.parametrize("line", GIVEN)
def test_spark_accepts_and_refuses_the_records_of_the_model(rows: dict[str, Written], line: str) -> None:
    row, expected = rows[line], obvious.read(line, TYPES)
    assert row.verdict == ("quarantine" if expected is None else "pass"), row.text
    body = row.body
    if expected is None:
        assert body["_raw"] == line
        assert body["_reason"]
        return
    if expected["f32"] is not None:  # written with the digits of its own type
        assert body["f32"] == pytest.approx(expected["f32"], rel=1e-7)
        body["f32"] = expected["f32"]
    assert body == {"_time": body["_time"], **expected}


def test_documented_differences_of_reader_and_model(rows: dict[str, Written]) -> None:
    for line, expected in LENIENT.items():
        assert rows[line].verdict == "pass", line
        assert {name: rows[line].body[name] for name in expected} == expected
        if line.count("{") == 1:
            assert obvious.read(line, TYPES) is None, line
    for line in STRICT:
        assert rows[line].verdict == "quarantine", line
        assert obvious.read(line, TYPES) is not None, line


def test_reasons_name_the_attribute_and_what_was_found(rows: dict[str, Written]) -> None:
    assert {line: rows[line].body["_reason"] for line in REASONS} == REASONS


def test_ids_and_times_of_records(spark: SparkSession) -> None:
    text = "streams: {a: {schema: {t: timestamp?}, event_time: t}}\nservices: {out: {from: a}}"
    given: Lines = [
        {"_id": "mine", "t": moment(1)},
        {"_time": moment(2)},
        {"t": moment(3), "_time": moment(4), "_themes": ["x"]},
        {},
    ]
    found = run(spark, text, a=given)
    assert [(row.id, row.source) for row in found] == [
        ("mine", "a/0:0"), ("a:0:1", "a/0:1"), ("a:0:2", "a/0:2"), ("a:0:3", "a/0:3")
    ]  # fmt: skip
    assert [row.body["_time"] for row in found] == [moment(1), moment(2), moment(3), timestamps.to_text(START + 3)]
    assert [row.body.get("_themes") for row in found] == [None, None, ["x"], None]


# Filter, project -----------------------------------------------------------------


def test_filters_keep_what_matches(spark: SparkSession) -> None:
    from tidegate import Filter

    events = some(150)
    for text in (
        "n > 0 AND k LIKE '%'",
        "e >= 'ALPHA' OR f IS NULL",
        "k MATCH '(x[|]?)+y?'",
        "u > 9223372036854775807",
    ):
        keeps = Filter(text, EVENTS)
        found = run(spark, service(f"{{filter: {json.dumps(text)}}}"), a=lines(events))
        assert [row.id for row in found] == [e["_id"] for e in events if keeps.matches(attributes(e))], text


def _projected(spark: SparkSession, texts: list[str], events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from tidegate.pipelines import records
    from tidegate.pipelines.operators import project
    from tidegate.services.schema_inference import schema_after

    schema = generate.SCHEMA
    operator = Project({f"x{n}": Computed(text) for n, text in enumerate(texts)})
    parsed = records.Parser(schema)(scanned(spark, events), "a")
    made = project.apply(parsed, operator, schema, schema_after(operator, schema))
    found: list[dict[str, Any]] = made.select(*operator.attributes, "_problem").toArrow().to_pylist()
    assert all(row["_problem"] is None for row in found)
    return found


def _same(found: Any, expected: Any, close: bool = False) -> bool:
    if isinstance(found, float) and isinstance(expected, float):
        if math.isnan(found) or math.isnan(expected):
            return math.isnan(found) and math.isnan(expected)
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-300) if close else found == expected
    return bool(found == expected)


def _check(spark: SparkSession, texts: list[str], random: Random, close: bool = False, count: int = 24) -> None:
    events = [generate.event(random) for _ in range(count)]
    # JSON has no NaN, but its writers have.
    for event, row in zip(events, _projected(spark, texts, events), strict=True):
        for n, text in enumerate(texts):
            expected = evaluate(resolve(text, generate.SCHEMA), event)
            assert _same(row[f"x{n}"], expected, close), (text, event, row[f"x{n}"], expected)


def _fits(text: str) -> bool:
    try:
        resolve(text, generate.SCHEMA)
    except ExpressionError:
        return False
    return True


ARGUMENTS = {
    "int": "big", "number": "speed", "text": "vid", "word": "count", "time": "time", "array": "wheels", "digits": "2",
    "place": "-2", "any*": "vid, kind", "ordered*": "speed, big", "word*": "vid, big, flag", "length": "9",
    "zone": "'Asia/Kathmandu'",
}  # fmt: skip


def test_functions_have_equal_results_in_spark_and_python(spark: SparkSession) -> None:
    exact: list[str] = []
    close: list[str] = []
    for name, overloads in FUNCTIONS.items():
        for overload in overloads if name not in CONDITIONS else ():
            given = [ARGUMENTS[each] for each in overload.takes]
            text = f"({f' {name} '.join(given)})" if name in "+-*/%" else f"{name}({', '.join(given)})"
            text = f"-{given[0]}" if name == "negative" else text
            assert _fits(text), text
            (close if name in APPROXIMATE else exact).append(text)
    _check(spark, exact, Random(3), count=60)
    _check(spark, close, Random(4), close=True, count=60)


def test_random_expressions_on_spark_are_what_they_are_in_python(spark: SparkSession) -> None:
    random = Random(11)
    texts: list[str] = []
    while len(texts) < 120:
        text = generate.expression(random)
        if _fits(text) and not set(re.findall(r"\w+(?=\()", text)) & APPROXIMATE:
            texts.append(text)
    for start in range(0, len(texts), 40):
        _check(spark, texts[start : start + 40], random)


def test_random_conditions_on_spark_are_what_they_are_in_python(spark: SparkSession) -> None:
    random = Random(5)
    texts: list[str] = []
    while len(texts) < 90:
        text = random.choice([generate.condition, generate.choice])(random, 2)
        if _fits(text) and not set(re.findall(r"\w+(?=\()", text)) & APPROXIMATE:
            texts.append(text)
    for start in range(0, len(texts), 45):
        _check(spark, texts[start : start + 45], random, count=40)


def test_positions_on_spark_are_what_they_are_in_python(spark: SparkSession) -> None:
    places = [(-180, -90), (180, 90), (0, 0), (13.3777, 52.5163), (116.4, 39.9), (-0.1, 51.5), (180, 0), (181, 0)]
    pairs = [f"{x}, {y}, {x2}, {y2}" for x, y in places for x2, y2 in places]
    _check(spark, [f"distance({pair})" for pair in pairs], Random(1), close=True, count=1)
    _check(spark, [f"round(bearing({pair}), 6) % 360" for pair in pairs], Random(1), close=True, count=1)
    lengths = (1, 2, 5, 6, 11, 12)
    _check(spark, [f"geohash({x}, {y}, {length})" for x, y in places for length in lengths], Random(1), count=1)


def test_projections_of_a_service(spark: SparkSession) -> None:
    pipeline = "{project: {k2: {value: k, default: none}, big: n / 2, e: e, time: time, s: {value: u, type: string}}}"
    events = some(40)
    found = run(spark, service(pipeline), a=lines(events))
    assert [row.body for row in found] == [
        {
            "_time": e["time"],
            "k2": "none" if e["k"] is None else e["k"],
            "big": None if e["n"] is None else e["n"] / 2,
            "e": e["e"],
            "time": e["time"],
            "s": None if e["u"] is None else str(e["u"]),
        }
        for e in events
    ]


# Sort, aggregate -------------------------------------------------------------------


def test_sorted_in_time_windows(spark: SparkSession) -> None:
    events = some(120)
    found = run(spark, service("{sort: {by: [-e, u], window: {length: 20s, lateness: 60s}}}"), a=lines(events))
    expected = []
    for (_, end), held in sorted(obvious.in_time(events, 20_000_000, 20_000_000).items()):
        order = obvious.in_order(held, [("e", True, kind("e")), ("u", False, kind("u"))])
        expected += [(f"{e['_id']}@{timestamps.to_text(end)}", attributes(e)) for e in order]
    assert [(row.id, _attributes(row)) for row in sorted(found, key=lambda r: (str(r.key).split("/")[0], r.child))] == (
        expected
    )


def _attributes(row: Written) -> Event:
    return {field.name: row.body[field.name] for field in EVENTS.root}


AGGREGATES = (
    "count: c, sum: {n: sn, u: su, f: sf}, avg: {n: an, u: au}, min: {e: le, n: ln, f: lf}, max: {e: ge, k: gk, u: gu}"
)


def _aggregates(held: list[Event]) -> Event:
    def of(name: str, pick: Any) -> Any:
        found = obvious.extreme(held, name, kind(name), pick)
        return None if found is None else found[name]

    return {
        "c": len(held),
        **{f"s{name}": obvious.total(held, name, kind(name)) for name in ("n", "u", "f")},
        **{f"a{name}": obvious.mean(held, name) for name in ("n", "u")},
        **{f"l{name}": of(name, min) for name in ("e", "n", "f")},
        **{f"g{name}": of(name, max) for name in ("e", "k", "u")},
    }


def _agree(found: Event, expected: Event) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, float):
            assert found[name] == pytest.approx(value, rel=1e-9), name
        else:
            assert found[name] == value, (name, found, expected)


@pytest.mark.parametrize(("length", "slide", "by"), [(20, 20, ("k", "e")), (20, 5, ("k",)), (7, 7, ())])
def test_aggregated_in_time_windows(spark: SparkSession, length: int, slide: int, by: tuple[str, ...]) -> None:
    events = some(150)
    window = f"window: {{length: {length}s, slide: {slide}s, lateness: 60s}}"
    aggregates = AGGREGATES if "e" not in by else "count: c"
    found = run(spark, service(f"{{aggregate: {{{aggregates}, by: [{', '.join(by)}], {window}}}}}"), a=lines(events))
    expected = obvious.in_time(events, length * 1_000_000, slide * 1_000_000, by)
    by_id = {row.id: row.body for row in found}
    assert len(by_id) == len(found) == len(expected)
    for (*key, start, end), held in expected.items():
        place = "|".join(map(obvious.escaped, key)) if by else "*"
        body = by_id[f"{place}@{timestamps.to_text(end)}"]
        window_ = {"window_start": timestamps.to_text(start), "window_end": timestamps.to_text(end)}
        computed = _aggregates(held) if aggregates is AGGREGATES else {"c": len(held)}
        _agree(
            body,
            {
                "_time": window_["window_end"],
                **dict(zip(by, key, strict=True)),
                **computed,
                **window_,
            },
        )


def test_aggregate_returns_the_whole_event_with_the_extreme(spark: SparkSession) -> None:
    events = some(150)
    for function, pick, name in (("min", min, "e"), ("max", max, "u")):
        pipeline = f"{{aggregate: {{{function}: {name}, count: c, by: [k], window: {{length: 20s, lateness: 60s}}}}}}"
        found = run(spark, service(pipeline), a=lines(events))
        expected = obvious.in_time(events, 20_000_000, 20_000_000, ["k"])
        by_id = {row.id: row.body for row in found}
        for (key, _, end), held in expected.items():
            body = by_id[f"{obvious.escaped(key)}@{timestamps.to_text(end)}"]
            best = obvious.extreme(held, name, kind(name), pick)
            shown = {each: body[each] for each in ("n", "f", "e", "u", "time", "c")}
            nothing = dict.fromkeys(("n", "f", "e", "u", "time"))
            assert shown == {**({n: best[n] for n in nothing} if best else nothing), "c": len(held)}


def test_not_a_number_is_above_all_numbers_and_missing_on_the_wire(spark: SparkSession) -> None:
    given = [{"f": f, "time": moment(1)} for f in (1.0, math.nan, math.inf)]
    pipeline = "{aggregate: {min: {f: least}, max: {f: most}, count: {f: c}, window: {length: 10s}}}"
    (row,) = run(spark, service(pipeline), a=given)
    assert row.has("least", "most", "c") == (1.0, None, 3)


def test_aggregated_without_an_end(spark: SparkSession) -> None:
    events = some(150)
    found = run(spark, service(f"{{incremental: {{{AGGREGATES}, by: [k], emit: updates}}}}"), a=lines(events))
    by_id = {row.id: row for row in found}
    assert len(found) == len(by_id) == len(events)
    for (key,), of_key in obvious.by_key(events, ["k"]).items():
        for count in range(1, len(of_key) + 1):
            held = of_key[:count]
            row = by_id[f"{obvious.escaped(key)}#{count}"]
            assert (row.key, row.revision) == (obvious.escaped(key), count)
            times = [e["_time"] for e in held]
            window = {"window_start": timestamps.to_text(min(times)), "window_end": timestamps.to_text(max(times))}
            _agree(row.body, {"_time": window["window_end"], "k": key, **_aggregates(held), **window})


# Several inputs --------------------------------------------------------------------


def test_merged(spark: SparkSession) -> None:
    one, other = some(30, 1), some(30, 2, "b")
    found = run(spark, service("merge", inputs="[a, b]"), a=lines(one), b=lines(other))
    assert sorted((row.id, str(_attributes(row))) for row in found) == sorted(
        (e["_id"], str(attributes(e))) for e in [*one, *other]
    )


@pytest.mark.parametrize("on", [("k", "e"), ("u",)])
def test_joined(spark: SparkSession, on: tuple[str, ...]) -> None:
    left, right = some(40, 1), some(40, 2, "b")
    pipeline = f"{{join: {{on: [{', '.join(on)}], within: 5s, lateness: 60s}}}}"
    found = run(spark, service(pipeline, inputs="[a, b]"), a=lines(left), b=lines(right))
    expected = {}
    for a, b in obvious.pairs(left, right, on, 5_000_000):
        theirs = {f"b_{name}": value for name, value in attributes(b).items() if name not in on}
        expected[f"{a['_id']}+{b['_id']}"] = {"_time": a["time"], **attributes(a), **theirs}
    assert {row.id: row.body for row in found} == expected
    assert len(found) == len(expected)


def test_ids_of_pairs_differ_whatever_producers_name_their_events(spark: SparkSession) -> None:
    ids = ["a", "a+b", "b", "b+c", "c", "a%2Bb"]
    given = [{"_id": name, "k": "x", "time": moment(0)} for name in ids]
    found = run(spark, service("{join: {on: [k], within: 1s}}", inputs="[a, b]"), a=given, b=given)
    assert len({row.id for row in found}) == len(found) == len(ids) ** 2


def test_looked_up_in_the_latest_events_and_nothing_for_a_missing_key(spark: SparkSession) -> None:
    # In a batch the records of a come before those of b.
    table, events = some(40, 1), some(40, 2, "b")
    found = run(spark, service("{lookup: {from: a, on: [k]}}", inputs="b"), a=lines(table), b=lines(events))
    latest: dict[str, Event] = {}
    for entry in table:
        known = latest.get(entry["k"])
        latest[entry["k"]] = entry if known is None or entry["_time"] >= known["_time"] else known
    for row, event in zip(found, events, strict=True):
        match = latest.get(event["k"]) if event["k"] is not None else None
        theirs = {f"a_{name}": match and match[name] for name in attributes(event) if name != "k"}
        assert (row.id, row.body) == (event["_id"], {"_time": event["time"], **attributes(event), **theirs})


def test_deduplicated(spark: SparkSession) -> None:
    events = some(100, span=3)
    found = run(spark, service("{deduplicate: {by: [k, time]}}"), a=lines(events))
    places = [(row.body["k"], row.body["time"]) for row in found]
    assert len(places) == len(set(places))
    assert set(places) == {(e["k"], e["time"]) for e in events}
    given = [{**json.loads(line), "_id": f"i{n % 7}", "time": moment(1)} for n, line in enumerate(lines(events))]
    assert sorted(row.id for row in run(spark, service("deduplicate"), a=given)) == [f"i{n}" for n in range(7)]


# Enrich ------------------------------------------------------------------------------

ROWS: list[Event] = [
    {"k": "x", "road": 'say "hi", you', "lanes": 2},
    {"k": "%", "road": "two\nlines", "lanes": None},
    {"k": "x", "road": "again", "lanes": 9},
    {"k": "|", "road": None, "lanes": 1},
]


def _csv(path: Path) -> Path:
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["k", "road", "lanes"])
        writer.writeheader()
        writer.writerows(ROWS)
    return path


def _parquet(path: Path) -> Path:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("write", [_csv, _parquet])
def test_enriched(spark: SparkSession, tmp_path: Path, write: Any, required: bool) -> None:
    path = write(tmp_path / f"roads.{write.__name__[1:]}")
    events = some(60)
    columns = "schema: {k: string, road: string?, lanes: int32?}"
    pipeline = f"{{enrich: {{table: '{path}', {columns}, on: [k], required: {json.dumps(required)}}}}}"
    found = run(spark, service(pipeline), a=lines(events))
    expected = []
    for event in events:
        row = obvious.row_of(event, ROWS, ["k"])
        if row or not required:
            road, lanes = (row["road"], row["lanes"]) if row else (None, None)
            expected.append((event["_id"], {**attributes(event), "road": road, "lanes": lanes}))
    assert [(row.id, {n: row.body[n] for n in (*attributes(events[0]), "road", "lanes")}) for row in found] == expected


def test_table_with_a_missing_column_or_wrong_type_is_handled(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "roads.csv"
    path.write_text("k, lanes\nx,many\n%,3\n")
    columns = "schema: {k: string, lanes: int32?}"
    pipeline = f"{{enrich: {{table: '{path}', {columns}, on: [k]}}}}"
    found = run(spark, service(pipeline), a=[{"k": k, "time": moment(0)} for k in ("x", "%")])
    assert [row.body["lanes"] for row in found] == [None, 3]
    other = pipeline.replace("lanes: int32?", "lanes: int32?, road: string?")
    with pytest.raises(ServiceError, match=r"expected columns road in table .*roads.csv'?; it has k, lanes"):
        run(spark, service(other), a=[])


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    """The URL of a PostgreSQL of this test alone, with the table `roads`."""
    from tidegate.errors import EnvironmentProblem
    from tidegate.pipelines.connector import maven

    if postgres.FOLDER is None:
        pytest.skip("needs a PostgreSQL server in /usr/lib/postgresql, and a user that is not root")
    try:
        jars = maven.fetch(
            "org.postgresql:postgresql:42.7.7",
            Path(__file__).parents[2] / ".cache" / "postgresql",
            Path(__file__).parents[1] / "jars.sha256",
        )
    except EnvironmentProblem as problem:
        pytest.skip(f"needs the driver, which Maven fetches: {problem}")
    for jar in jars:
        spark.sql(f"ADD JAR '{jar}'")
    with postgres.server() as (url, execute):
        execute("CREATE TABLE roads (k text, lanes int)")
        execute("INSERT INTO roads VALUES ('x', 2), ('%', NULL)")
        yield url


def test_enriched_from_a_database(spark: SparkSession, database: str) -> None:
    table = f"jdbc: {{url: '{database}', table: roads}}, schema: {{k: string, lanes: int32?}}"
    events = some(30)
    found = run(spark, service(f"{{enrich: {{{table}, on: [k]}}}}"), a=lines(events))
    assert [row.body["lanes"] for row in found] == [2 if e["k"] == "x" else None for e in events]


@dataclass(frozen=True)
class Known:
    """A secret that a test knows."""

    value: str

    def reveal(self) -> str:
        return self.value


def test_remote_definition_is_enriched_by_a_connection_and_by_no_url(spark: SparkSession, database: str) -> None:
    connection = JdbcConnection(database, "org.postgresql.Driver", "tests", Known("hunter2"))
    resources = RunnerResources(connections={"roads": connection})
    columns = "on: [k], schema: {k: string, lanes: int32?}"
    events = some(30)
    named = service(f"{{enrich: {{table: {{connection: roads, table: public.roads}}, {columns}}}}}")
    found = run(spark, named, resources, a=lines(events))
    assert [row.body["lanes"] for row in found] == [2 if e["k"] == "x" else None for e in events]
    with pytest.raises(ServiceError, match="the profile has no jdbc connection 'roads'; add it: connections: "):
        run(spark, named, RunnerResources(), a=[])
    own = service(f"{{enrich: {{jdbc: {{url: '{database}', table: roads}}, {columns}}}}}")
    with pytest.raises(ServiceError, match="names no database of its own: expected a connection of the profile, or st"):
        run(spark, own, resources, a=[])


# Custom --------------------------------------------------------------------------------


def custom(name: str, schema: str = "{k: string?, n: int64?}", rest: str = "") -> str:
    return service(f"{{custom: {{function: 'tests.pipelines.functions:{name}', schema: {schema}{rest}}}}}")


def test_custom_functions_over_batches(spark: SparkSession) -> None:
    given = [{"k": f"k{n}", "n": n, "time": moment(n)} for n in range(6)]
    found = run(spark, custom("doubled", rest=", options: {factor: 3}"), a=given)
    assert [(row.id, row.source, row.body["n"]) for row in found] == [(f"a:0:{n}", f"a/0:{n}", 3 * n) for n in range(6)]
    assert [row.id for row in run(spark, custom("kept"), a=given)] == ["a:0:3", "a:0:4", "a:0:5"]
    found = run(spark, custom("twice"), a=given)
    assert [(row.id, row.child, row.body["n"], row.body["_time"]) for row in found] == [
        (f"a:0:{n}{suffix}", child, n, moment(n)) for n in range(5, -1, -1) for child, suffix in ((0, ""), (1, "/1"))
    ]
    (row,) = run(spark, custom("typed", "{u: uint64, b: uint8, e: 'enum(ZED, ALPHA)', t: timestamp}"), a=given[:1])
    assert row.has("u", "b", "e", "t") == (2**64 - 1, 255, "ALPHA", moment(0))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "has no function 'absent'"),
        ("raises", r"functions:raises' raised RuntimeError: out of luck, at functions.py:\d"),
        ("lacking", "gave a batch without 'n'; it has k, _id, and its schema k, n"),
        ("tabular", "gave a Table: expected pyarrow.RecordBatch"),
        ("columns", "gave a dict: expected pyarrow.RecordBatch"),
        ("misfit", "gave 'n' as string, which does not fit int64"),
        ("nameless", "gave 1 rows for 2 events, without _id"),
        ("invented", r"gave a row with _id '\?', which no event of its batch has"),
    ],
)
def test_custom_functions_that_fail_say_why(spark: SparkSession, name: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        run(spark, custom(name), a=[{"k": "x", "n": n, "time": moment(0)} for n in range(2)])


def test_custom_functions_over_windows(spark: SparkSession) -> None:
    events = some(60)
    text = custom(
        "spread", "{size: int64, first: int64?, last: int64?}", ", by: [k], window: {length: 20s, lateness: 60s}"
    )
    found = run(spark, text, a=lines(events))
    expected = {
        f"{obvious.escaped(key)}@{timestamps.to_text(end)}/0": (len(held), held[0]["n"], held[-1]["n"])
        for (key, _, end), held in obvious.in_time(events, 20_000_000, 20_000_000, ["k"]).items()
    }
    assert {row.id: row.has("size", "first", "last") for row in found} == expected


def test_custom_function_over_windows_of_events_with_window_bounds(spark: SparkSession) -> None:
    events = sorted(some(60), key=lambda event: event["_time"])
    text = service(
        "{aggregate: {count: n, by: [k], window: {length: 10s}}}, {custom: {function: "
        "'tests.pipelines.functions:latest', schema: {window_start: timestamp, window_end: timestamp, n: int64}, "
        "by: [window_end], window: {length: 20s}}}"
    )
    rows = run(spark, text, a=lines(events))
    counted = obvious.in_time(events, 10_000_000, 10_000_000, ["k"])
    ends = {timestamps.to_text(end) for _, _, end in counted}
    assert {row.body["window_end"] for row in rows} == ends
    assert len(rows) == len(ends)


def test_deduplicate_is_explained_without_the_connector(spark: SparkSession) -> None:
    from tidegate.pipelines.explain import explain

    definitions = loads(service("{deduplicate: {by: [k], within: 10m}}"))
    inputs = {"a": definitions.streams["a"].schema}
    explained = explain(spark, definitions.services["out"], inputs, obstacle="no connector")
    assert (explained["mode"], explained["operators"]) == ("micro-batch", ["deduplicate"])
    assert "TransformWithStateInPySpark" in explained["spark"]


# Constraints, masks ------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["quarantine", "drop", "flag", "fail"])
def test_constraints(spark: SparkSession, how: str) -> None:
    given: Lines = [{"k": "x", "n": n, "time": moment(0)} for n in (1, -1)] + ["{nonsense"]
    found = run(spark, service("", f', constraints: {{"n": "> 0"}}, on_violation: {how}'), a=given)
    assert [row.verdict for row in found] == ["pass", how, "drop" if how == "drop" else "quarantine"]
    reason = "n: -1 violates n > 0"
    if how == "fail":
        assert found[1].text == f"{reason} in event a:0:1"
    else:
        assert found[1].body["_violations" if how == "flag" else "_reason"] == reason
        assert found[1].body["n"] == -1
    assert found[2].body["_reason"] == "expected a JSON object, not {nonsense"


SECRET = "S3CRET"


def test_late_and_future_events_are_quarantined_also_if_violations_are_dropped(spark: SparkSession) -> None:
    counts = "{aggregate: {count: c, by: [k], window: {length: 10s}}}"
    events = [{"k": "x", "n": 1, "time": moment(second)} for second in (1, 30, 2, 1e9)]
    found = run(spark, service(counts, ", on_violation: drop"), a=[*events, '{"k": "x"'])
    assert sorted((row.verdict, row.body["_reason"][:10]) for row in found if row.verdict != "pass") == [
        ("drop", "expected a"),
        ("quarantine", "its time, "),
        ("quarantine", "late: its "),
    ]


MASKED = ", mask: {k: hmac, e: drop, f: {round: 1}, u: {round: -1}}"
MASKED += f""", constraints: {{k: "<> '{SECRET}2'", "n": "> 0"}}"""


@pytest.mark.parametrize(
    ("pipeline", "how"),
    [
        ("", "quarantine"),
        ("", "flag"),
        ("{sort: {by: [k], window: {length: 10s}}}", "flag"),
        ("{aggregate: {max: n, by: [k], window: {length: 10s}, emit: updates}}", "fail"),
    ],
)
def test_nothing_of_a_masked_value_leaves(spark: SparkSession, pipeline: str, how: str) -> None:
    good = {"k": SECRET, "n": 1, "f": 2.345, "e": "ZED", "u": 2**64 - 1, "time": moment(1)}
    given: Lines = [
        good,
        {**good, "k": f"{SECRET}2", "u": 14},
        {**good, "n": -1, "k": f"{SECRET}3"},
        json.dumps({**good, "n": SECRET}),
        json.dumps({**good, "e": SECRET}),
        f'{{"k": "{SECRET}", ',
    ]
    text = service(pipeline, f"{MASKED}, on_violation: {how}")
    found = run(spark, text, a=given)
    for row in found:
        assert SECRET not in repr(row)
        assert '"ZED"' not in row.text
    if pipeline == "":
        first = found[0].body
        assert first["k"] == hmac.new(KEY, SECRET.encode(), hashlib.sha256).hexdigest()
        assert (first["f"], first["u"], "e" in first) == (2.3, None, False)
        assert [row.verdict for row in found] == ["pass", how, how, *["quarantine"] * 3]


@pytest.mark.parametrize("given", [{"n": 1}, {"n": -1}, {"n": "x"}])
def test_ids_from_upstream_are_hashed_where_an_attribute_is_masked(spark: SparkSession, given: dict[str, Any]) -> None:
    event = {"_id": f"{SECRET}@2026-01-01T00:00:05Z", "k": SECRET, "time": moment(1), **given}
    first, second = run(spark, service("", MASKED), a=[event, {"k": SECRET, "n": 1, "time": moment(2)}])
    assert SECRET not in repr(first)
    assert first.id == hmac.new(KEY, f"id:{event['_id']}".encode(), hashlib.sha256).hexdigest()
    assert second.id == "a:0:1", "this id only says where the event is"


def test_masked_event_time_is_not_written_as_the_time(spark: SparkSession) -> None:
    (row,) = run(spark, service("", ", mask: {time: drop, k: {truncate: 2}}"), a=[{"k": "wxyz", "time": moment(5)}])
    assert row.has("_time", "k") == (timestamps.to_text(START), "wx")
    assert "time" not in row.body


# Batch by batch --------------------------------------------------------------------------------


def cut(events: list[Event], *places: int) -> list[dict[str, Lines]]:
    """Records of one partition, in batches that end at some places."""
    return [{"0": lines(events[a:b])} for a, b in zip((0, *places), (*places, len(events)), strict=True)]


@pytest.mark.parametrize(("length", "slide", "by"), [(3, 1, ("k",)), (4, 3, ())])
def test_aggregated_in_count_windows_however_the_batches_are_cut(
    spark: SparkSession, tmp_path: Path, length: int, slide: int, by: tuple[str, ...]
) -> None:
    events = some(90)
    window = f"window: {{length: {length} events, slide: {slide} events}}"
    text = service(f"{{aggregate: {{{AGGREGATES}, by: [{', '.join(by)}], {window}}}}}")
    expected = obvious.by_count(events, length, slide, by)
    found = stream(spark, tmp_path, text, cut(events, 40))
    by_id = {row.id: row.body for row in found}
    assert len(by_id) == len(found) == len(expected)
    for (*key, count), held in expected.items():
        body = by_id[f"{obvious.escaped(key[0]) if by else '*'}@{count}"]
        times = [e["_time"] for e in held]
        window_ = {"window_start": timestamps.to_text(min(times)), "window_end": timestamps.to_text(max(times))}
        _agree(
            body, {"_time": window_["window_end"], **dict(zip(by, key, strict=True)), **_aggregates(held), **window_}
        )


def test_sorted_in_count_windows(spark: SparkSession, tmp_path: Path) -> None:
    events = some(30, span=2)
    found = stream(
        spark, tmp_path, service("{sort: {by: [u], window: {length: 4 events, slide: 2 events}}}"), cut(events, 11)
    )
    expected = []
    for (count,), held in obvious.by_count(events, 4, 2).items():
        expected += [(f"{e['_id']}@{count}", attributes(e)) for e in obvious.in_order(held, [("u", False, kind("u"))])]
    assert [(row.id, _attributes(row)) for row in found] == expected
    assert len({row.id for row in found}) == len(found)


def test_aggregated_across_windows_however_the_batches_are_cut(spark: SparkSession, tmp_path: Path) -> None:
    events = sorted(some(90), key=lambda e: e["_time"])
    text = service(f"{{incremental: {{{AGGREGATES}, by: [k], window: {{length: 20s}}}}}}")
    expected: dict[str, Event] = {}
    for n, event in enumerate(events):
        event.update(_id=f"a:0:{n}", _source=n)
    for (key,), held in obvious.by_key(events, ["k"]).items():
        for end in sorted({e["_time"] // 20_000_000 * 20_000_000 + 20_000_000 for e in held}):
            so_far = [e for e in held if e["_time"] < end]
            written = {"window_start": timestamps.to_text(end - 20_000_000), "window_end": timestamps.to_text(end)}
            body = {"_time": written["window_end"], "k": key, **_aggregates(so_far), **written}
            expected[f"{obvious.escaped(key)}@{written['window_end']}"] = body
    for n, places in enumerate([(), (30, 60)]):
        found = {row.id: row.body for row in stream(spark, tmp_path / str(n), text, cut(events, *places))}
        assert found.keys() == expected.keys()
        for name, body in expected.items():
            _agree(found[name], body)


def test_deduplicated_by_attributes_within_a_time(spark: SparkSession, tmp_path: Path) -> None:
    events = [
        {**event, "_id": f"a:0:{n}"} for n, event in enumerate(sorted(some(60, span=8), key=lambda e: e["_time"]))
    ]
    found = stream(spark, tmp_path, service("{deduplicate: {by: [k], within: 1h}}"), cut(events, 20))
    firsts = {e["k"]: e["_id"] for e in reversed(events)}
    assert sorted(row.id for row in found) == sorted(firsts.values())


def test_extreme_across_windows_of_a_text(spark: SparkSession, tmp_path: Path) -> None:
    values = [math.nan, 1.0, math.inf, -math.inf]
    given: Lines = [{"f": f, "time": moment(1)} for f in values]
    text = service("{incremental: {min: {f: least}, max: {f: most}, count: {f: c}, window: {length: 10s}}}")
    found = stream(spark, tmp_path, text, [{"0": given}])
    assert [row.has("least", "most", "c") for row in found] == [(None, None, 4)]
