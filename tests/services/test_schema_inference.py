"""Schema inference: the schema after each operator, and refused operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate import Array, DefinitionError, Schema
from tidegate.services import loads, output_schema, schema_after, shape
from tidegate.services.definitions import Service
from tidegate.services.operators import (
    Aggregate,
    Aggregation,
    Branch,
    CountWindow,
    Join,
    Operator,
    PatternOperator,
    PatternStep,
    Previous,
    SessionWindow,
    Sort,
    SortKey,
    TimeWindow,
)

GPS = Schema(
    {
        "vid": "string",
        "time": "timestamp",
        "speed": "float64",
        "level": "int32?",
        "kind": "enum(CAR, BUS)",
        "pos": {"x": "float64"},
        "wheels": "uint8[4]",
    },
    constraints={"speed": ">= 0", "pos.x": "< 180"},
    terms={"speed": {"slow": "Z(20, 40)"}},
    event_time="time",
)
PLAIN = Schema({"vid": "string", "speed": "float64"})


def service(text: str, inputs: str = "gps") -> Service:
    return loads(f"services: {{s: {{from: {inputs}, {text}}}}}").services["s"]


def after(operator: str, *schemas: Schema, **streams: Schema) -> Schema:
    pipeline = service(f"pipeline: [{operator}]").pipeline
    return schema_after(pipeline[0], *(schemas or (GPS,)), right="gps-b", streams=streams)


def output(text: str) -> Schema:
    return output_schema(service(text), {"gps": GPS})


def problems(operator: str, *schemas: Schema, **streams: Schema) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        after(operator, *schemas, **streams)
    return str(caught.value).splitlines()


def test_filter_keeps_the_schema() -> None:
    assert after("filter: speed IS slow AND pos.x > 3") == GPS
    assert after("{filter: {where: speed > %0, params: [60]}}") == GPS


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sped > 60", "filter: unknown field 'sped'; did you mean 'speed'?: in 'sped > 60' at 1"),
        ("speed >", "filter: expected a value or a field: in 'speed >' at 8"),
        ("speed > %0", "filter: expected a value for %0, but 0 were given: in 'speed > %0' at 9"),
        ("speed < -5", "can never match: speed < -5 contradicts the constraint speed >= 0"),
        (
            "vid ~ = 'car'",
            "a pipeline does not compare by meaning (~): subscribe with it to what",
        ),
    ],
)
def test_invalid_filter_is_refused(text: str, problem: str) -> None:
    (message,) = problems(f'filter: "{text}"')
    assert problem in message


def test_projection_has_the_selected_attributes() -> None:
    schema = after("project: {car: vid, kmh: speed * 3.6, level: {default: 0}, x: pos.x, time: time, w: 'wheels[0]'}")
    assert schema.to_dict() == {
        "car": "string",
        "kmh": "float64",
        "level": "int32",
        "x": "float64",
        "time": "timestamp",
        "w": "uint8?",
    }
    assert (schema.event_time, dict(schema.constraints), dict(schema.terms)) == ("time", {}, {})


def test_projection_with_keep_adds_attributes() -> None:
    schema = after("project: {select: {speed: speed * 3.6, v: speed}, keep: true}")
    assert list(schema.to_dict()) == ["vid", "time", "speed", "level", "kind", "pos", "wheels", "v"]
    assert schema.event_time == "time"
    assert dict(schema.constraints) == {"pos.x": "< 180"}
    assert dict(schema.terms) == {"v": {"slow": "Z(20, 40)"}}


@pytest.mark.parametrize(
    ("select", "time"),
    [
        ("{t: time}", "t"),
        ("{t: time, time: time}", "time"),
        ("{a: time, b: time}", "a"),
        ("{vid: vid}", None),
        ("{time: vid}", None),
        ("{time: {value: vid, type: timestamp}}", "time"),
        ("{t: {value: time, type: string}}", None),
    ],
)
def test_projection_renames_or_drops_the_event_time(select: str, time: str | None) -> None:
    assert after(f"project: {select}").event_time == time


def test_every_bad_expression_is_reported() -> None:
    messages = problems(
        "project: {a: sped, b: vid + 1, _c: vid, d: {value: vid, type: in32}, e: {value: vid, default: 3}}"
    )
    assert messages == [
        "project.a: unknown attribute 'sped'; did you mean 'speed'?: in 'sped' at 1",
        "project.b: '+' expected a number and a number, not string, int64: in 'vid + 1' at 1",
        "project._c: names that start with _ are reserved",
        "project.d.type: unknown type 'in32'; did you mean 'int32'?",
        "project.e: default: expected a string, not 3: in 'vid' at 1",
    ]


def test_aggregate_has_keys_aggregations_and_window_bounds() -> None:
    schema = after(
        "aggregate: {count: n, sum: [level, speed], avg: {level: mean}, min: {kind: least}, max: {time: last}, "
        "by: [vid, level], window: {length: 60s}}"
    )
    assert schema.to_dict() == {
        "vid": "string",
        "level": "int32?",
        "n": "int64",
        "sum_level": "int64?",
        "sum_speed": "float64?",
        "mean": "float64?",
        "least": "enum(CAR, BUS)?",
        "last": "timestamp?",
        "window_start": "timestamp",
        "window_end": "timestamp",
    }
    assert schema.event_time == "window_end"


def test_unnamed_extreme_keeps_the_whole_event() -> None:
    schema = after("aggregate: {max: speed, count: n, by: vid, window: {length: 10 events}}")
    assert schema.to_dict() == {**GPS.to_dict(), "n": "int64", "window_start": "timestamp", "window_end": "timestamp"}
    unsure = after("aggregate: {max: level, by: vid, window: {length: 10 events}}")
    assert (unsure.to_dict()["vid"], unsure.to_dict()["speed"]) == ("string", "float64?")


def test_incremental_aggregate_without_a_window_has_window_bounds() -> None:
    schema = after("incremental: {count: n}")
    assert schema.to_dict() == {"n": "int64", "window_start": "timestamp", "window_end": "timestamp"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("aggregate: {sum: vid, window: {length: 1s}}", "aggregate.sum: sum expected a number; vid is string"),
        ("aggregate: {avg: pos, window: {length: 1s}}", "a single value; pos is {x: float64}"),
        ("aggregate: {avg: pos.x, window: {length: 1s}}", "'pos.x'; project a part of one first: {x: pos.x}"),
        ("aggregate: {count: vid, by: vid, window: {length: 1s}}", "names that differ: there are two 'vid'"),
        ("aggregate: {count: window_end, window: {length: 1s}}", "names that differ: there are two 'window_end'"),
        ("aggregate: {count: _n, window: {length: 1s}}", "names that start with _ are reserved, unlike '_n'"),
        ("aggregate: {count: n, by: [vid, vdi], window: {length: 1s}}", "aggregate.by[1]: unknown attribute 'vdi'"),
        ("aggregate: {count: n, by: [vid, vid], window: {length: 1s}}", "aggregate.by: expected 'vid' once"),
        ("aggregate: {count: n, by: wheels, window: {length: 1s}}", "a single value; wheels is uint8[4]"),
        (
            "aggregate: {max: speed, min: level, window: {length: 1s}}",
            "min of level and max of speed can't both return a whole event: name one, {min: {level: min_level}}",
        ),
        ("aggregate: {count: n, window: {length: 9 events}, emit: updates}", "emit: a window by count closes"),
        ("incremental: {count: n, emit: final}", "incremental.emit: without a window there is no end to wait for"),
        ("sort: {by: [pos], window: {length: 1s}}", "sort.by: expected an attribute with a single value"),
        ("sort: {by: speed, window: {length: 1s}, limit: 3, per: vdi}", "sort.per: unknown attribute 'vdi'; did you"),
        ("aggregate: {stddev: vid, window: {length: 1s}}", "aggregate.stddev: stddev expected a number; vid is string"),
        ("aggregate: {percentile: {kind: 0.5}, window: {length: 1s}}", "percentile expected a number; kind is enum"),
        ("aggregate: {distinct: pos, window: {length: 1s}}", "a single value; pos is {x: float64}"),
        ("aggregate: {count: n, having: m > 3, window: {length: 1s}}", "aggregate.having: unknown field 'm'"),
        (
            "aggregate: {count: n, having: n > 'x', window: {length: 1s}}",
            "aggregate.having: 'x' is wrong: n (int64) expected",
        ),
        ("aggregate: {count: n, having: vid ~ = 'x', by: vid, window: {length: 1s}}", "does not compare by meaning"),
        ("incremental: {count: n, window: {length: 9 events}, emit: updates}", "emit: a window by count closes"),
        ("previous: {by: vdi, of: {a: speed}}", "previous.by: unknown attribute 'vdi'; did you mean 'vid'?"),
        ("previous: {by: vid, of: {a: sped}}", "previous.of.a: unknown attribute 'sped'; did you mean 'speed'?"),
        (
            "previous: {by: vid, of: {level: speed}}",
            "previous.of.level: expected names that differ: there are two 'level'",
        ),
        ("previous: {by: vid, of: {}}", "previous.of: expected at least one attribute"),
        ("pattern: {by: vid, steps: []}", "pattern.steps: expected 1 to 32 steps, not 0"),
        (
            "pattern: {steps: [{absent: any, for: 1m}]}",
            "pattern.steps[0]: the first step can't be absent: begin with an",
        ),
        (
            "pattern: {steps: [{a: any}, {absent: any}]}",
            "pattern.steps[1]: an absent step at the end needs a length of",
        ),
        (
            "pattern: {steps: [{a: any}, {absent: any}, {absent: any, for: 1m}]}",
            "pattern.steps[1]: an absent step before another needs a length of time",
        ),
        ("pattern: {steps: [{a: any}, {a: any}]}", "pattern.steps[1]: expected names that differ: there are two 'a'"),
        (
            "pattern: {by: vid, steps: [{vid: any}]}",
            "pattern.steps[0]: expected names that differ: there are two 'vid'",
        ),
        ("pattern: {steps: [{match_end: any}]}", "expected names that differ: there are two 'match_end'"),
        ("pattern: {steps: [{_a: any}]}", "names that start with _ are reserved, unlike '_a'"),
        ("pattern: {steps: [{a: sped > 1}]}", "pattern.steps[0].a: unknown field 'sped'; did you mean 'speed'?"),
        ("pattern: {steps: [{a: any}], span: {vid: 3}}", "pattern.span.vid: span expected a number; vid is string"),
        ("pattern: {steps: [{a: any}], span: {odo: 3}}", "pattern.span.odo: unknown attribute 'odo'"),
        ("deduplicate: {by: nothing}", "deduplicate.by: unknown attribute 'nothing'; expected one of vid, time"),
        ("enrich: {table: /none.csv, on: vid}", "enrich.table: can't read '/none.csv': No such file"),
        ("enrich: {jdbc: {url: u, table: t}, on: vid}", "enrich.jdbc: expected a schema for a table in a database"),
    ],
)
def test_invalid_operator_is_refused(text: str, problem: str) -> None:
    assert any(problem in message for message in problems(text)), problems(text)


@pytest.mark.parametrize(
    "text",
    [
        "sort: {by: speed, window: {length: 1s}}",
        "aggregate: {count: n, window: {length: 1s}}",
        "aggregate: {count: n, window: {length: 3 events}}",
        "incremental: {count: n}",
        "deduplicate",
        "aggregate: {count: n, window: {session: 5m}}",
        "pattern: {steps: [{a: any}]}",
        "custom: {function: 'a:f', schema: {a: bool}, window: {length: 1s}}",
    ],
)
def test_operator_without_its_event_time_is_refused_with_a_remedy(text: str) -> None:
    (message,) = problems(text, PLAIN)
    assert "expected an event time" in message
    assert "name a timestamp attribute as the stream's event_time, keep it in every project before" in message


def test_filter_and_sort_by_count_need_no_event_time() -> None:
    assert after("sort: {by: speed, window: {length: 9 events}}", PLAIN) == PLAIN
    assert after("filter: speed > 3", PLAIN) == PLAIN


def test_merge_of_equal_schemas_keeps_common_constraints() -> None:
    other = Schema({**GPS.to_dict(), "speed": "float64?"}, event_time="time", constraints={"pos.x": "< 180"})
    schema = after("merge", GPS, other)
    assert schema.to_dict() == {**GPS.to_dict(), "speed": "float64?"}
    assert (dict(schema.constraints), dict(schema.terms), schema.event_time) == ({"pos.x": "< 180"}, {}, "time")


def test_merge_of_different_schemas_reports_each_difference() -> None:
    messages = problems(
        "merge", Schema({"a": "int8", "b": "bool"}), Schema({"a": "int16", "t": "timestamp"}, event_time="t")
    )
    assert messages == [
        "merge: expected the same schema of all inputs: input 0 has an attribute 'b', input 1 has not",
        "merge: expected the same schema of all inputs: input 1 has an attribute 't', input 0 has not",
        "merge: expected the same schema of all inputs: 'a' is int8 in input 0 and int16 in input 1",
        "merge: expected the same event_time of all inputs: it is none in input 0 and t in input 1",
    ]


def test_join_renames_attributes_of_both_inputs() -> None:
    right = Schema({"vid": "string", "time": "timestamp", "road": "string?"}, event_time="time")
    schema = after("join: {on: vid, within: 30s}", GPS, right)
    assert schema.to_dict() == {**GPS.to_dict(), "gps_b_time": "timestamp", "road": "string?"}
    assert (schema.event_time, schema.constraints) == ("time", GPS.constraints)
    crossed = after("join: {within: 30s}", GPS, right)
    assert "gps_b_vid" in crossed.to_dict()


def test_invalid_join_is_refused() -> None:
    right = Schema({"vid": "int32", "gps_b_speed": "bool", "speed": "bool"})
    assert [message[:70] for message in problems("join: {on: [vid, level], within: 30s}", GPS, right)] == [
        "join: expected an event time of gps-b, to tell how far apart two event",
        "join.on[1]: unknown attribute 'level'; expected one of vid, gps_b_spee",
        "join.on: expected attributes of the same type: vid is string in left a",
        "join: expected names that differ: there are two 'gps_b_speed'; name or",
    ]


ROAD = Schema(
    {"vid": "string", "time": "timestamp", "road": "string", "lanes": "int32?"},
    event_time="time",
    constraints={"road": "<> ''", "vid": "<> ''"},
)


def test_join_of_three_inputs_names_attributes_after_the_first_input_that_has_them() -> None:
    schema = after("join: {on: vid, within: 30s, with: [roads, more]}", GPS, roads=ROAD, more=ROAD)
    assert list(schema.to_dict())[len(GPS.root.fields) :] == [
        *("roads_time", "road", "lanes"),
        *("more_time", "more_road", "more_lanes"),
    ]
    assert dict(schema.constraints) == {**GPS.constraints, "road": "<> ''"}


def test_left_join_makes_attributes_of_other_inputs_optional() -> None:
    schema = after("join: {on: vid, within: 30s, how: left, with: roads}", GPS, roads=ROAD)
    types = schema.to_dict()
    assert (types["vid"], types["speed"], types["road"], types["roads_time"]) == (
        *("string", "float64"),
        *("string?", "timestamp?"),
    )
    assert dict(schema.constraints) == dict(GPS.constraints)


def test_full_join_makes_all_attributes_optional_but_keys_and_event_time() -> None:
    schema = after("join: {on: vid, within: 30s, how: full, with: roads}", GPS, roads=ROAD)
    assert [field.name for field in schema.root if field.required] == ["vid", "time"]
    assert (schema.event_time, dict(schema.constraints)) == ("time", {})
    same = after("join: {on: vid, within: 30s, how: full, with: roads}", ROAD, roads=ROAD)
    assert dict(same.constraints) == {"vid": "<> ''"}


def test_join_in_a_window_by_count_needs_no_event_time() -> None:
    schema = after("join: {window: {length: 9 events}, with: b}", PLAIN, b=PLAIN)
    assert list(schema.to_dict()) == ["vid", "speed", "b_vid", "b_speed"]


@pytest.mark.parametrize(
    ("operator", "problem"),
    [
        ("join: {on: vid, within: 1s}", "join: expected at least two inputs: name more in from, or under with"),
        ("join: {on: level, within: 1s, how: full, with: b}", "a full join needs attributes of exactly the same type"),
        ("join: {within: 1s, with: {from: b, filter: sped > 1}}", "join.with[0].filter: unknown field 'sped'"),
        ("merge: {with: [{from: b, filter: sped > 1}]}", "merge.with[0].filter: unknown field 'sped'"),
        ("merge: {with: [b, b]}", "merge: expected 'b' once: merged with itself each event comes twice"),
        (
            "merge: {with: [b, {from: b, filter: level > 1}]}",
            "merge: expected 'b' once: merged with itself each event comes twice; join its filters with OR",
        ),
        ("lookup: {from: b, on: vdi}", "lookup.on: unknown attribute 'vdi'; did you mean 'vid'?"),
        ("lookup: {from: b, on: kind}", "lookup.on: unknown attribute 'kind'"),
        ("lookup: {from: b, on: speed}", "expected attributes of the same type: speed is float64 here and string in b"),
        ("lookup: {from: b, on: []}", "lookup.on: expected at least one attribute that both streams have"),
        ("lookup: {from: b, on: vid, filter: sped > 1}", "lookup.filter: unknown field 'sped'"),
    ],
)
def test_invalid_input_of_an_operator_is_refused(operator: str, problem: str) -> None:
    other = Schema({"vid": "string", "speed": "string", "level": "int64", "time": "timestamp"}, event_time="time")
    assert any(problem in message for message in problems(operator, b=other)), problems(operator, b=other)


def test_merge_with_branches_has_the_schema_of_all() -> None:
    other = Schema({**GPS.to_dict(), "speed": "float64?"}, event_time="time")
    schema = after("merge: {with: [{from: b, filter: speed > 0}]}", GPS, b=other)
    assert schema.to_dict() == other.to_dict()


def test_lookup_adds_optional_attributes_unless_required() -> None:
    schema = after("lookup: {from: roads, on: vid}", roads=ROAD)
    added = {"roads_time": "timestamp?", "road": "string?", "lanes": "int32?"}
    assert schema.to_dict() == {**GPS.to_dict(), **added}
    assert (schema.event_time, dict(schema.constraints)) == ("time", dict(GPS.constraints))
    needed = after("lookup: {from: roads, on: vid, required: true}", roads=ROAD)
    assert needed.to_dict()["road"] == "string"
    assert dict(needed.constraints) == {**GPS.constraints, "road": "<> ''"}


def test_previous_adds_optional_attributes() -> None:
    schema = after("previous: {by: vid, of: {last_speed: speed, last_pos: pos}}")
    assert schema.to_dict() == {**GPS.to_dict(), "last_speed": "float64?", "last_pos": "{x: float64}?"}
    assert (schema.event_time, schema.constraints) == ("time", GPS.constraints)


def test_pattern_has_keys_bounds_and_the_events_of_each_step() -> None:
    schema = after(
        "pattern: {by: vid, steps: [{seen: any}, {fast: speed > 9, times: 1..}, {absent: speed > 5}, "
        "{slow: speed < 1, for: 5m}], span: {level: 3}}",
        Schema(GPS.root, constraints={"vid": "<> ''", "speed": ">= 0"}, event_time="time"),
    )
    assert list(schema.to_dict()) == ["vid", "match_start", "match_end", "seen", "fast", "slow"]
    types = {field.name: field.type for field in schema.root}
    assert (types["seen"], types["fast"], types["slow"]) == (GPS.root, Array(GPS.root), Array(GPS.root))
    assert all(field.required for field in schema.root)
    assert (schema.event_time, dict(schema.constraints)) == ("match_end", {"vid": "<> ''"})


def test_aggregate_functions_have_their_types() -> None:
    schema = after(
        "aggregate: {first: pos, last: kind, distinct: vid, approx_distinct: level, stddev: level, "
        "percentile: {speed: 0.95}, collect: [vid, wheels], having: distinct_vid > 3, window: {session: 5m}}"
    )
    assert schema.to_dict() == {
        "first_pos": "{x: float64}?",
        "last_kind": "enum(CAR, BUS)?",
        "distinct_vid": "int64",
        "approx_distinct_level": "int64",
        "stddev_level": "float64?",
        "p95_speed": "float64?",
        "collect_vid": "string[]",
        "collect_wheels": "uint8[][4]",
        "window_start": "timestamp",
        "window_end": "timestamp",
    }


def built_problem(operator: Operator) -> str:
    with pytest.raises(DefinitionError) as caught:
        schema_after(operator, GPS, streams={"b": GPS})
    return str(caught.value)


COUNT = Aggregation("count", None, "n")


@pytest.mark.parametrize(
    ("operator", "problem"),
    [
        (Aggregate((COUNT,), TimeWindow(60, 90)), "expected a slide above 0 and at most its length"),
        (Aggregate((COUNT,), TimeWindow(86_400, 0.001)), "expected a slide of at least 864ms: an event is in 100,000"),
        (Aggregate((COUNT,), TimeWindow(60, 60, 0, 60)), "expected an offset of at least 0 and less than the slide"),
        (Aggregate((COUNT,), SessionWindow(0)), "expected a gap above 0, and no negative lateness"),
        (Aggregate((COUNT,), CountWindow(3, 4)), "expected a slide from 1 to its length, 3 events"),
        (Aggregate((Aggregation("percentile", "speed", "p"),), CountWindow(3, 3)), "percentile needs a share above 0"),
        (Aggregate((Aggregation("percentile", "speed", "p", 2),), CountWindow(3, 3)), "a share above 0 and below 1"),
        (Aggregate((Aggregation("sum", "speed", "p", 0.5),), CountWindow(3, 3)), "sum has no share"),
        (Aggregate((Aggregation("sum", "speed", None),), CountWindow(3, 3)), "sum needs a name"),
        (Aggregate((Aggregation("sum", None, "n"),), CountWindow(3, 3)), "sum needs an attribute"),
        (Join(inputs=(Branch("b"),)), "expected either within or a window by count"),
        (Join(within_s=1, window=CountWindow(3, 3), inputs=(Branch("b"),)), "expected either within or a window"),
        (Join(within_s=-1, inputs=(Branch("b"),)), "expected no negative length of time"),
        (Sort((SortKey("speed"),), CountWindow(3, 3), 0), "sort.limit: expected a number of events, 1 or more, not 0"),
        (Sort((), CountWindow(3, 3)), "expected at least one attribute to sort by"),
        (Previous((), {"a": "speed"}, 0), "previous.back: expected a number of events from 1 to 10000, not 0"),
        (
            PatternOperator((), (PatternStep("a", None, 2, 1),)),
            "expected a number of events from 1 to 10000, or a range",
        ),
        (PatternOperator((), (PatternStep("a", None, 2, 2, 5.0),)), "expected times or for, not both"),
        (PatternOperator((), (PatternStep("a", None, for_s=0.0),)), "expected a length of time above 0"),
        (
            PatternOperator((), (PatternStep("absent", None),)),
            "expected the name 'absent' for absent steps, and only for them",
        ),
        (PatternOperator((), (PatternStep("for", None),)), "expected another name for a step than 'for'"),
        (PatternOperator((), (PatternStep("a", None),), 0.0), "expected a within above 0, and no negative lateness"),
        (
            PatternOperator((), (PatternStep("a", None),), None, ("speed", -1.0)),
            "expected a difference, 0 or more, not -1.0",
        ),
    ],
)
def test_operator_built_in_python_is_checked(operator: Operator, problem: str) -> None:
    assert problem in built_problem(operator)


def test_columns_of_a_csv_table_are_text(tmp_path: Path) -> None:
    table = tmp_path / "cars.csv"
    table.write_text("\ufeffvid, owner\nB1,x\n")
    schema = after(f"enrich: {{table: {table}, on: vid}}")
    assert schema.to_dict() == {**GPS.to_dict(), "owner": "string?"}
    assert (
        "in the table string; give the table a schema"
        in problems(f"enrich: {{table: {table}, on: [level, vid]}}", Schema({"level": "int8", "vid": "int8"}))[-1]
    )


def test_schema_of_a_table_overrides_its_file() -> None:
    text = "enrich: {table: none.csv, on: vid, schema: {vid: string, seats: int32, owner: string?}, required: %s}"
    assert after(text % "true").to_dict() == {**GPS.to_dict(), "seats": "int32", "owner": "string?"}
    assert after(text % "false").to_dict() == {**GPS.to_dict(), "seats": "int32?", "owner": "string?"}


def test_columns_of_a_parquet_table_have_its_types(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"vid": ["B1"], "seats": pa.array([4], pa.int32())}), tmp_path / "cars.parquet")
    schema = after(f"enrich: {{table: {tmp_path}/cars.parquet, on: vid}}")
    assert schema.to_dict() == {**GPS.to_dict(), "seats": "int32?"}
    (tmp_path / "bad.parquet").write_text("no")
    (message,) = problems(f"enrich: {{table: {tmp_path}/bad.parquet, on: vid}}")
    assert "expected a Parquet file, and 'bad.parquet' is not one" in message


def test_custom_operator_has_its_declared_schema() -> None:
    schema = after("custom: {function: 'a:f', schema: {time: timestamp, n: int32}}")
    assert (schema.to_dict(), schema.event_time) == ({"time": "timestamp", "n": "int32"}, "time")
    assert after("custom: {function: 'a:f', schema: {n: int32}}").event_time is None
    assert after("custom: {function: 'a:f', schema: {u: timestamp}, event_time: u}").event_time == "u"


# Whole services --------------------------------------------------------------


def test_shape_of_a_service_has_the_schema_after_each_operator() -> None:
    fast = service("pipeline: [{filter: speed > 3}, {project: {vid: vid, speed: speed}}], constraints: {vid: <> ''}")
    inferred = shape(fast, {"gps": GPS})
    assert [list(step.to_dict()) for step in inferred.steps] == [list(GPS.to_dict()), ["vid", "speed"]]
    assert inferred.unmasked == inferred.output
    assert dict(inferred.output.constraints) == {"speed": ">= 0", "vid": "<> ''"}


def test_masks_change_the_output_schema() -> None:
    schema = output(
        "mask: {vid: hmac, kind: drop, speed: {round: 1}, level: hmac}, constraints: {vid: LIKE 'B%', kind: <> 'CAR'}"
    )
    expected: dict[str, Any] = {**GPS.to_dict(), "level": "string?"}
    del expected["kind"]
    assert schema.to_dict() == expected
    assert dict(schema.constraints) == {"pos.x": "< 180"}
    assert output("mask: {time: drop}").event_time is None


def test_flagged_constraint_is_not_in_the_output_schema() -> None:
    assert dict(output("constraints: {level: '> 0'}, on_violation: flag").constraints) == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mask: {vdi: hmac}", "services.s.mask.vdi: unknown attribute 'vdi'; did you mean 'vid'?"),
        ("mask: {speed: {truncate: 3}}", "services.s.mask.speed: truncate expected text; speed is float64"),
        ("mask: {vid: {round: 3}}", "services.s.mask.vid: round expected a number; vid is string"),
        ("mask: {pos: hmac}", "services.s.mask.pos: hmac expected a single value; pos is {x: float64}"),
        ("constraints: {sped: '> 0'}", "services.s.constraints.sped: unknown field 'sped'; did you mean 'speed'?"),
        ("constraints: {speed: '>'}", "services.s.constraints.speed: expected a value or a field: in 'speed >' at 8"),
        ("constraints: {speed: '> level'}", "expected a constraint on speed alone, but it reads level"),
        ("terms: {speed: {fast: Q(1)}}", "services.s.terms.speed.fast: "),
        ("terms: {speed: {fast: 'S(9, 1)'}}", "services.s.terms.speed.fast: expected a <= b in S(a, b), not 'S(9, 1)'"),
        ("terms: {vid: {fast: 'S(1, 9)'}}", "services.s.terms.vid: expected terms of a number; vid is string"),
        ("terms: {sped: {fast: 'S(1, 9)'}}", "services.s.terms.sped: unknown attribute 'sped'"),
        (
            "pipeline: [deduplicate, merge]",
            "pipeline[1].merge: expected other inputs, as what comes before it is one stream",
        ),
        (
            "pipeline: [{join: {within: 1s}}]",
            "pipeline[0].join: expected at least two inputs: name more in from, or under",
        ),
    ],
)
def test_invalid_masks_constraints_terms_and_inputs_are_refused(text: str, problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        output(text)
    assert problem in str(caught.value)


def test_several_inputs_need_merge_or_join_first() -> None:
    both = {"a": GPS, "b": GPS}
    with pytest.raises(DefinitionError, match="expected merge or join first, as there are 2 inputs"):
        output_schema(service("pipeline: [deduplicate]", "[a, b]"), both)
    with pytest.raises(DefinitionError, match="expected 'a' once: merged with itself each event comes twice"):
        output_schema(service("pipeline: [merge]", "[a, a]"), both)
    assert "a_vid" in output_schema(service("pipeline: [{join: {within: 1s}}]", "[a, a]"), both).to_dict()


def test_merge_takes_a_stream_again_only_after_its_events_have_other_ids() -> None:
    inputs = {"a": GPS, "b": GPS}
    for steps in ("{filter: speed > 3}, {merge: {with: [a]}}", "{merge: {with: [b]}}, deduplicate, {merge: {with: b}}"):
        with pytest.raises(DefinitionError, match="once: merged with itself each event comes twice"):
            output_schema(service(f"pipeline: [{steps}]", "a"), inputs)
    first = "{sort: {by: speed, limit: 1, window: {length: 9s}}}"
    output_schema(service(f"pipeline: [{first}, {{merge: {{with: [a]}}}}]", "a"), inputs)


def test_merge_and_join_work_anywhere_in_a_pipeline() -> None:
    pipeline = (
        "[{filter: speed > 3}, {merge: {with: [b]}}, {project: {vid: vid, time: time}}, {join: {within: 1s, with: b}}]"
    )
    inferred = shape(service(f"pipeline: {pipeline}", "a"), {"a": GPS, "b": GPS})
    assert list(inferred.output.to_dict())[:4] == ["vid", "time", "b_vid", "b_time"]


def test_unknown_input_of_an_operator_is_reported_at_the_operator() -> None:
    lookup = service("pipeline: [{filter: speed > 3}, {lookup: {from: gsp, on: vid}}]")
    place = r"services.s.pipeline\[1\].lookup.from: unknown stream or service 'gsp'; did you mean 'gps'"
    with pytest.raises(DefinitionError, match=place):
        output_schema(lookup, {"gps": GPS})


def test_unknown_input_is_reported() -> None:
    with pytest.raises(DefinitionError, match=r"services.s.from: unknown stream or service 'gsp'; did you mean"):
        output_schema(service("pipeline: []", "gsp"), {"gps": GPS})
