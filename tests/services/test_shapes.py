"""The schema after each operator, and what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate import DefinitionError, Schema
from tidegate.services import loads, output_schema, schema_after, shape
from tidegate.services.definitions import Service

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


def after(operator: str, *schemas: Schema) -> Schema:
    return schema_after(service(f"pipeline: [{operator}]").pipeline[0], *(schemas or (GPS,)), right="gps-b")


def output(text: str) -> Schema:
    return output_schema(service(text), {"gps": GPS})


def problems(operator: str, *schemas: Schema) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        after(operator, *schemas)
    return str(caught.value).splitlines()


def test_a_filter_changes_nothing() -> None:
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
def test_a_filter_that_does_not_fit(text: str, problem: str) -> None:
    (found,) = problems(f'filter: "{text}"')
    assert problem in found


def test_a_projection() -> None:
    found = after("project: {car: vid, kmh: speed * 3.6, level: {default: 0}, x: pos.x, time: time, w: 'wheels[0]'}")
    assert found.to_dict() == {
        "car": "string",
        "kmh": "float64",
        "level": "int32",
        "x": "float64",
        "time": "timestamp",
        "w": "uint8?",
    }
    assert (found.event_time, dict(found.constraints), dict(found.terms)) == ("time", {}, {})


def test_a_projection_that_keeps() -> None:
    found = after("project: {select: {speed: speed * 3.6, v: speed}, keep: true}")
    assert list(found.to_dict()) == ["vid", "time", "speed", "level", "kind", "pos", "wheels", "v"]
    assert found.event_time == "time"
    assert dict(found.constraints) == {"pos.x": "< 180"}
    assert dict(found.terms) == {"v": {"slow": "Z(20, 40)"}}


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
def test_the_event_time_is_followed(select: str, time: str | None) -> None:
    assert after(f"project: {select}").event_time == time


def test_every_bad_expression_is_named() -> None:
    found = problems(
        "project: {a: sped, b: vid + 1, _c: vid, d: {value: vid, type: in32}, e: {value: vid, default: 3}}"
    )
    assert found == [
        "project.a: unknown attribute 'sped'; did you mean 'speed'?: in 'sped' at 1",
        "project.b: '+' expected a number and a number, not string, int64: in 'vid + 1' at 1",
        "project._c: names that start with _ are reserved",
        "project.d.type: unknown type 'in32'; did you mean 'int32'?",
        "project.e: default: expected a string, not 3: in 'vid' at 1",
    ]


def test_an_aggregate() -> None:
    found = after(
        "aggregate: {count: n, sum: [level, speed], avg: {level: mean}, min: {kind: least}, max: {time: last}, "
        "by: [vid, level], window: {length: 60s}}"
    )
    assert found.to_dict() == {
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
    assert found.event_time == "window_end"


def test_the_whole_event_that_holds_the_extreme() -> None:
    found = after("aggregate: {max: speed, count: n, by: vid, window: {length: 10 events}}")
    assert found.to_dict() == {**GPS.to_dict(), "n": "int64", "window_start": "timestamp", "window_end": "timestamp"}
    unsure = after("aggregate: {max: level, by: vid, window: {length: 10 events}}")
    assert (unsure.to_dict()["vid"], unsure.to_dict()["speed"]) == ("string", "float64?")


def test_an_incremental_aggregate_without_a_window_has_the_times_of_the_first_and_last_event() -> None:
    found = after("incremental: {count: n}")
    assert found.to_dict() == {"n": "int64", "window_start": "timestamp", "window_end": "timestamp"}


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
            "min of level and max of speed can't both give a whole event: name one, {min: {level: min_level}}",
        ),
        ("aggregate: {count: n, window: {length: 9 events}, emit: updates}", "emit: a window by count closes"),
        ("incremental: {count: n, emit: final}", "incremental.emit: without a window there is no end to wait for"),
        ("sort: {by: [pos], window: {length: 1s}}", "sort.by: expected an attribute with a single value"),
        ("deduplicate: {by: nothing}", "deduplicate.by: unknown attribute 'nothing'; expected one of vid, time"),
        ("enrich: {table: /none.csv, on: vid}", "enrich.table: can't read '/none.csv': No such file"),
        ("enrich: {jdbc: {url: u, table: t}, on: vid}", "enrich.jdbc: expected a schema for a table in a database"),
    ],
)
def test_what_does_not_fit(text: str, problem: str) -> None:
    assert any(problem in each for each in problems(text)), problems(text)


@pytest.mark.parametrize(
    "text",
    [
        "sort: {by: speed, window: {length: 1s}}",
        "aggregate: {count: n, window: {length: 1s}}",
        "aggregate: {count: n, window: {length: 3 events}}",
        "incremental: {count: n}",
        "deduplicate",
        "custom: {function: 'a:f', schema: {a: bool}, window: {length: 1s}}",
    ],
)
def test_what_needs_an_event_time_says_how_to_give_one(text: str) -> None:
    (found,) = problems(text, PLAIN)
    assert "expected an event time" in found
    assert "name a timestamp attribute as the stream's event_time, keep it in every project before" in found


def test_what_needs_no_event_time() -> None:
    assert after("sort: {by: speed, window: {length: 9 events}}", PLAIN) == PLAIN
    assert after("filter: speed > 3", PLAIN) == PLAIN


def test_a_merge_of_the_same_schemas() -> None:
    other = Schema({**GPS.to_dict(), "speed": "float64?"}, event_time="time", constraints={"pos.x": "< 180"})
    found = after("merge", GPS, other)
    assert found.to_dict() == {**GPS.to_dict(), "speed": "float64?"}
    assert (dict(found.constraints), dict(found.terms), found.event_time) == ({"pos.x": "< 180"}, {}, "time")


def test_a_merge_of_different_schemas_says_what_differs() -> None:
    found = problems(
        "merge", Schema({"a": "int8", "b": "bool"}), Schema({"a": "int16", "t": "timestamp"}, event_time="t")
    )
    assert found == [
        "merge: expected the same schema of all inputs: input 0 has an attribute 'b', input 1 has not",
        "merge: expected the same schema of all inputs: input 1 has an attribute 't', input 0 has not",
        "merge: expected the same schema of all inputs: 'a' is int8 in input 0 and int16 in input 1",
        "merge: expected the same event_time of all inputs: it is none in input 0 and t in input 1",
    ]


def test_a_join_renames_what_both_have() -> None:
    right = Schema({"vid": "string", "time": "timestamp", "road": "string?"}, event_time="time")
    found = after("join: {on: vid, within: 30s}", GPS, right)
    assert found.to_dict() == {**GPS.to_dict(), "gps_b_time": "timestamp", "road": "string?"}
    assert (found.event_time, found.constraints) == ("time", GPS.constraints)
    crossed = after("join: {within: 30s}", GPS, right)
    assert "gps_b_vid" in crossed.to_dict()


def test_a_join_that_does_not_fit() -> None:
    right = Schema({"vid": "int32", "gps_b_speed": "bool", "speed": "bool"})
    assert [each[:70] for each in problems("join: {on: [vid, level], within: 30s}", GPS, right)] == [
        "join: expected an event time of gps-b, to tell how far apart two event",
        "join.on[1]: unknown attribute 'level'; expected one of vid, gps_b_spee",
        "join.on: expected attributes of the same type: vid is string in left a",
        "join: expected names that differ: there are two 'gps_b_speed'; name or",
    ]


def test_a_table_in_a_csv_file_has_text(tmp_path: Path) -> None:
    table = tmp_path / "cars.csv"
    table.write_text("\ufeffvid, owner\nB1,x\n")
    found = after(f"enrich: {{table: {table}, on: vid}}")
    assert found.to_dict() == {**GPS.to_dict(), "owner": "string?"}
    assert (
        "in the table string; give the table a schema"
        in problems(f"enrich: {{table: {table}, on: [level, vid]}}", Schema({"level": "int8", "vid": "int8"}))[-1]
    )


def test_a_tables_schema_stands_over_its_file() -> None:
    text = "enrich: {table: none.csv, on: vid, schema: {vid: string, seats: int32, owner: string?}, required: %s}"
    assert after(text % "true").to_dict() == {**GPS.to_dict(), "seats": "int32", "owner": "string?"}
    assert after(text % "false").to_dict() == {**GPS.to_dict(), "seats": "int32?", "owner": "string?"}


def test_a_table_in_a_parquet_file(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"vid": ["B1"], "seats": pa.array([4], pa.int32())}), tmp_path / "cars.parquet")
    found = after(f"enrich: {{table: {tmp_path}/cars.parquet, on: vid}}")
    assert found.to_dict() == {**GPS.to_dict(), "seats": "int32?"}
    (tmp_path / "bad.parquet").write_text("no")
    (found_problem,) = problems(f"enrich: {{table: {tmp_path}/bad.parquet, on: vid}}")
    assert "expected a Parquet file, and 'bad.parquet' is not one" in found_problem


def test_a_custom_operator_gives_what_it_says() -> None:
    found = after("custom: {function: 'a:f', schema: {time: timestamp, n: int32}}")
    assert (found.to_dict(), found.event_time) == ({"time": "timestamp", "n": "int32"}, "time")
    assert after("custom: {function: 'a:f', schema: {n: int32}}").event_time is None
    assert after("custom: {function: 'a:f', schema: {u: timestamp}, event_time: u}").event_time == "u"


# Whole services --------------------------------------------------------------


def test_the_shape_of_a_service_has_every_step() -> None:
    made = service("pipeline: [{filter: speed > 3}, {project: {vid: vid, speed: speed}}], constraints: {vid: <> ''}")
    found = shape(made, {"gps": GPS})
    assert [list(step.to_dict()) for step in found.steps] == [list(GPS.to_dict()), ["vid", "speed"]]
    assert found.unmasked == found.output
    assert dict(found.output.constraints) == {"speed": ">= 0", "vid": "<> ''"}


def test_masks_change_what_subscribers_see() -> None:
    found = output(
        "mask: {vid: hmac, kind: drop, speed: {round: 1}, level: hmac}, constraints: {vid: LIKE 'B%', kind: <> 'CAR'}"
    )
    changed: dict[str, Any] = {**GPS.to_dict(), "level": "string?"}
    del changed["kind"]
    assert found.to_dict() == changed
    assert dict(found.constraints) == {"pos.x": "< 180"}
    assert output("mask: {time: drop}").event_time is None


def test_what_is_only_flagged_is_not_promised() -> None:
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
        ("pipeline: [deduplicate, merge]", "pipeline[1]: expected merge as the first operator"),
        ("pipeline: [{join: {within: 1s}}]", "pipeline[0]: a join has two inputs, left and right; from names 1"),
    ],
)
def test_promises_that_do_not_fit(text: str, problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        output(text)
    assert problem in str(caught.value)


def test_several_inputs_begin_with_merge_or_join() -> None:
    both = {"a": GPS, "b": GPS}
    with pytest.raises(DefinitionError, match="expected merge or join first, as there are 2 inputs"):
        output_schema(service("pipeline: [deduplicate]", "[a, b]"), both)
    with pytest.raises(DefinitionError, match="expected 'a' once: merged with itself each event comes twice"):
        output_schema(service("pipeline: [merge]", "[a, a]"), both)
    assert "a_vid" in output_schema(service("pipeline: [{join: {within: 1s}}]", "[a, a]"), both).to_dict()


def test_an_unknown_input_is_named() -> None:
    with pytest.raises(DefinitionError, match=r"services.s.from: unknown stream or service 'gsp'; did you mean"):
        output_schema(service("pipeline: []", "gsp"), {"gps": GPS})
