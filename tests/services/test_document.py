"""Reading definitions from a service file, and writing them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given, settings

from tests.conftest import LARGE_EXAMPLES
from tests.services.strategies import definitions
from tidegate import DefinitionError, Schema
from tidegate.services import from_dict, load, loads, to_dict
from tidegate.services.definitions import (
    Definitions,
    Demo,
    Files,
    Http,
    Kafka,
    Mask,
    Mqtt,
    Qos,
    Retention,
    Service,
    Stream,
)
from tidegate.services.operators import (
    Aggregate,
    Aggregation,
    Branch,
    Computed,
    CountWindow,
    Custom,
    Deduplicate,
    Enrich,
    FilterOperator,
    Incremental,
    Join,
    Lookup,
    Merge,
    Operator,
    PatternOperator,
    PatternStep,
    Previous,
    Project,
    SessionWindow,
    Sort,
    SortKey,
    Table,
    TimeWindow,
)
from tidegate.services.operators.registry import DECLARATIONS

S, T = "services: {s: {from: a, ", "streams: {a: {schema: {p: bool}, "
P = f"{S}pipeline: ["
"""The text before the rest of a service, a stream and a pipeline."""

COUNT = Aggregation("count", None, "n")
CITY = Path(__file__).with_name("city.yaml")


def problems(text: str) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        loads(text, "t.yaml")
    return str(caught.value).splitlines()


def operator(text: str) -> Any:
    (only,) = loads(f"services: {{s: {{from: a, pipeline: [{text}]}}}}").services["s"].pipeline
    return only


def stream(text: str) -> Stream:
    return loads(f"streams: {{s: {{schema: {{vid: string, time: timestamp}}, {text}}}}}").streams["s"]


# Laws ------------------------------------------------------------------------


@settings(max_examples=LARGE_EXAMPLES)
@given(definitions())
def test_written_definitions_read_back_equal(original: Definitions) -> None:
    document = to_dict(original)
    assert from_dict(document) == original
    assert from_dict(json.loads(json.dumps(document))) == original


@settings(max_examples=LARGE_EXAMPLES)
@given(definitions())
def test_definitions_written_as_json_read_back_as_yaml_with_lines(original: Definitions) -> None:
    # JSON is YAML.
    loaded = loads(json.dumps(to_dict(original)))
    assert loaded == original
    names = [*((("streams", name)) for name in loaded.streams), *(("services", name) for name in loaded.services)]
    assert all(loaded.places[name].line == 1 for name in names)


# The form --------------------------------------------------------------------


def test_example_of_the_design_is_read() -> None:
    city = load(CITY)
    assert list(city.streams) == ["anpr", "gps_taxi_a", "gps_taxi_b", "gps_private"]
    assert city.streams["gps_taxi_b"].schema == city.streams["gps_taxi_a"].schema
    assert city.streams["gps_taxi_b"].schema.event_time == "time"
    assert city.streams["gps_private"].source == Mqtt("fleet/+/gps")
    gps = city.services["gps"]
    assert gps.inputs == ("gps_taxi_a", "gps_taxi_b", "gps_private")
    assert (gps.pipeline, gps.mask, gps.themes) == ((Merge(),), {"vid": Mask("hmac")}, ("land transport", "traffic"))
    assert (gps.qos.latency_p99_s, gps.retention) == (0.05, Retention(86400.0))
    flow = city.services["traffic-flow"]
    count = Aggregation("count", None, "flow")
    assert flow.pipeline[0] == Aggregate((count,), TimeWindow(60, 10), ("cid",), "final")
    assert from_dict(to_dict(city)) == city
    assert str(city.places["services", "gps", "mask", "vid"]) == f"{CITY}:21"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("key: vid", Http()),
        ("source: http", Http()),
        ("source: {http: {}}", Http()),
        ("source: {demo: anpr}", Demo("anpr")),
        ("source: {demo: {kind: gps, rate: 50, seed: 1}}", Demo("gps", 50.0, 1)),
        ("source: {files: 'data/*.csv'}", Files("data/*.csv")),
        ("source: {files: {path: a, format: ndjson, speed: 10}}", Files("a", "ndjson", 10.0)),
        ("source: {kafka: raw}", Kafka("raw")),
        ("source: {kafka: {topic: raw, brokers: 'k:9092'}}", Kafka("raw", "k:9092")),
        ("source: {mqtt: {topic: t, broker: b, username: u, password_env: P}}", Mqtt("t", "b", "u", "P")),
    ],
)
def test_source_is_read(text: str, source: Any) -> None:
    assert stream(text).source == source


@pytest.mark.parametrize(
    ("text", "retention"),
    [
        ("retention: 7d", Retention(7 * 86400.0)),
        ("retention: forever", Retention(None)),
        ("retention: {size: 1GB}", Retention(86400.0, 10**9)),
        ("retention: {age: forever, size: 10MB}", Retention(None, 10**7)),
    ],
)
def test_retention_is_read(text: str, retention: Retention) -> None:
    assert stream(text).retention == retention


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("filter: speed > 60", FilterOperator("speed > 60")),
        ("filter: {where: speed > %0, params: [60, true]}", FilterOperator("speed > %0", ("60", "true"))),
        (
            "project: {cid: cid, kmh: speed * 3.6, level: {default: 0, type: int32}, one: 1}",
            Project(
                {
                    "cid": Computed("cid"),
                    "kmh": Computed("speed * 3.6"),
                    "level": Computed("level", 0, "int32"),
                    "one": Computed("1"),
                }
            ),
        ),
        ("project: {select: {a: b}, keep: true}", Project({"a": Computed("b")}, keep=True)),
        ("project: {select: a}", Project({"select": Computed("a")})),
        (
            "sort: {by: [time, -speed], window: {length: 10s}}",
            Sort((SortKey("time"), SortKey("speed", True)), TimeWindow(10, 10)),
        ),
        (
            "aggregate: {count: n, avg: {speed: mean}, sum: [a, b], max: speed, window: {length: 1000 events}}",
            Aggregate(
                (
                    Aggregation("count", None, "n"),
                    Aggregation("avg", "speed", "mean"),
                    Aggregation("sum", "a", "sum_a"),
                    Aggregation("sum", "b", "sum_b"),
                    Aggregation("max", "speed", None),
                ),
                CountWindow(1000, 1000),
            ),
        ),
        (
            "aggregate: {avg: speed, min: [a, {b: least}], emit: updates, "
            "window: {length: 60s, slide: 10s, lateness: 5s}}",
            Aggregate(
                (
                    Aggregation("avg", "speed", "avg_speed"),
                    Aggregation("min", "a", "min_a"),
                    Aggregation("min", "b", "least"),
                ),
                TimeWindow(60, 10, 5),
                emit="updates",
            ),
        ),
        ("incremental: {count: n, by: cid}", Incremental((COUNT,), None, ("cid",), "updates")),
        ("incremental: {count: n, window: {length: 1h}}", Incremental((COUNT,), TimeWindow(3600, 3600))),
        ("merge", Merge()),
        ("merge: {}", Merge()),
        ("merge: {with: gps_b}", Merge((Branch("gps_b"),))),
        (
            "merge: {with: [gps_b, {from: gps_c, filter: speed > 0}]}",
            Merge((Branch("gps_b"), Branch("gps_c", FilterOperator("speed > 0")))),
        ),
        ("join: {on: cid, within: 30s, lateness: 5s}", Join(("cid",), 30, 5)),
        ("join: {within: 0}", Join((), 0)),
        ("join: {on: [], within: 1s, how: left}", Join((), 1, how="left")),
        (
            "join: {on: cid, window: {length: 100 events, slide: 10 events}, how: full, "
            "with: [b, {from: c, filter: x > 1}]}",
            Join(
                ("cid",),
                how="full",
                window=CountWindow(100, 10),
                inputs=(Branch("b"), Branch("c", FilterOperator("x > 1"))),
            ),
        ),
        ("lookup: {from: weather, on: cid}", Lookup("weather", ("cid",))),
        (
            "lookup: {from: weather, on: [cid, day], required: true, filter: 'rain > 0'}",
            Lookup("weather", ("cid", "day"), True, FilterOperator("rain > 0")),
        ),
        ("previous: {by: vid, of: {last_speed: speed}}", Previous(("vid",), {"last_speed": "speed"})),
        ("previous: {of: {a: b}, back: 3}", Previous((), {"a": "b"}, 3)),
        (
            "pattern: {by: [vid], steps: [{seen: any}, {braking: accel < -3, times: 3}, {fast: speed > 9, times: 2..}, "
            "{slow: speed < 9, times: 2..5}, {absent: speed > 0, for: 10m}, {stopped: speed < 1, for: 5m}, "
            "{absent: any, for: 1m}], within: 10m, span: {odometer: 1000}, lateness: 1s}",
            PatternOperator(
                ("vid",),
                (
                    PatternStep("seen", None),
                    PatternStep("braking", "accel < -3", 3, 3),
                    PatternStep("fast", "speed > 9", 2, None),
                    PatternStep("slow", "speed < 9", 2, 5),
                    PatternStep("absent", "speed > 0", for_s=600, absent=True),
                    PatternStep("stopped", "speed < 1", for_s=300),
                    PatternStep("absent", None, for_s=60, absent=True),
                ),
                600,
                ("odometer", 1000),
                1,
            ),
        ),
        (
            "aggregate: {count: n, first: a, percentile: {speed: 0.95}, collect: {vid: all}, having: n > 3, "
            "window: {session: 5m, lateness: 10s}}",
            Aggregate(
                (
                    COUNT,
                    Aggregation("first", "a", "first_a"),
                    Aggregation("percentile", "speed", "p95_speed", 0.95),
                    Aggregation("collect", "vid", "all"),
                ),
                SessionWindow(300, 10),
                having="n > 3",
            ),
        ),
        (
            "aggregate: {percentile: {speed: {median: 0.5, p9: 0.9}}, "
            "window: {length: 1d, offset: 6h, zone: Asia/Tokyo}}",
            Aggregate(
                (Aggregation("percentile", "speed", "median", 0.5), Aggregation("percentile", "speed", "p9", 0.9)),
                TimeWindow(86400, 86400, 0, 21600, "Asia/Tokyo"),
            ),
        ),
        ("incremental: {count: n, window: {length: 9 events}}", Incremental((COUNT,), CountWindow(9, 9))),
        (
            "sort: {by: -speed, window: {length: 10s}, limit: 5, per: cid}",
            Sort((SortKey("speed", True),), TimeWindow(10, 10), 5, ("cid",)),
        ),
        ("deduplicate", Deduplicate()),
        ("deduplicate: {by: [vid], within: 10m}", Deduplicate(("vid",), 600)),
        ("enrich: {table: cameras.csv, on: cid}", Enrich(Table("cameras.csv"), ("cid",))),
        (
            "enrich: {jdbc: {url: u, table: t}, on: [a, b], schema: {a: string}, required: true}",
            Enrich(Table(None, "jdbc", Schema({"a": "string"}), "u", "t"), ("a", "b"), True),
        ),
        (
            "custom: {function: 'a.b:f', schema: {t: timestamp}, event_time: t, options: {k: [1]}, by: vid, "
            "window: {length: 2 events}}",
            Custom("a.b:f", Schema({"t": "timestamp"}, event_time="t"), {"k": [1]}, ("vid",), CountWindow(2, 2)),
        ),
    ],
)
def test_operator_is_read(text: str, expected: Any) -> None:
    assert operator(text) == expected


def test_settings_of_event_time_are_read() -> None:
    read = loads("services: {s: {from: a, on_late: drop, idle: never, max_ahead: 1m}}").services["s"]
    assert (read.on_late, read.idle_s, read.max_ahead_s) == ("drop", None, 60)
    default = loads("services: {s: {from: a}}").services["s"]
    assert (default.on_late, default.idle_s, default.max_ahead_s) == ("quarantine", 10, 300)
    assert to_dict(default) == {"from": "a"}


def test_inputs_have_each_stream_once_also_those_of_operators() -> None:
    pipeline = "[merge: {with: [c, {from: a, filter: x > 1}]}, join: {within: 1s, with: [d]}, lookup: {from: e, on: x}]"
    read = loads(f"services: {{s: {{from: [a, b, a], pipeline: {pipeline}}}}}").services["s"]
    assert read.main == ("a", "b", "a")
    assert read.inputs == ("a", "b", "c", "d", "e")


def test_every_operator_is_declared_once() -> None:
    assert [declaration.type for declaration in DECLARATIONS] == list(get_args(Operator))
    assert len({declaration.name for declaration in DECLARATIONS}) == len(DECLARATIONS)


def test_yaml_1_1_booleans_times_and_dates_are_text() -> None:
    loaded = loads("services: {yes: {from: no, constraints: {on: '> 2010-01-01'}, themes: [off, 12:30, 2010-01-01]}}")
    assert loaded.services["yes"] == Service(
        "yes", ("no",), (), {"on": "> 2010-01-01"}, themes=("off", "12:30", "2010-01-01")
    )


def test_merge_keys_add_entries_and_extension_keys_are_ignored() -> None:
    loaded = loads(
        """
        x-common: &common {event_time: time, key: vid, partitions: 3}
        x-more: &more {partitions: 5, themes: [a]}
        streams:
          a: {<<: *common, schema: {vid: string, time: timestamp}}
          b: {<<: [*common, *more], schema: {vid: string, time: timestamp}, key: time}
        """
    )
    assert (loaded.streams["a"].key, loaded.streams["a"].partitions) == ("vid", 3)
    assert (loaded.streams["b"].key, loaded.streams["b"].partitions, loaded.streams["b"].themes) == ("time", 3, ("a",))


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "streams: {s: {schema: {cid: string}, source: {files: 'data/*.csv'}}}\n"
        "services: {t: {from: s, pipeline: [{enrich: {table: c.csv, on: cid}}, "
        "{enrich: {table: 's3://b/c.csv', on: cid}}]}}"
    )
    loaded = load([file])
    assert loaded.streams["s"].source == Files(str(tmp_path / "data/*.csv"))
    assert [step.table.path for step in loaded.services["t"].pipeline if isinstance(step, Enrich)] == [
        str(tmp_path / "c.csv"),
        "s3://b/c.csv",
    ]


def test_empty_file_defines_nothing() -> None:
    assert loads("# nothing") == Definitions() == from_dict({})


# Problems --------------------------------------------------------------------


def test_all_problems_are_reported_together_with_their_lines() -> None:
    text = """
streams:
  gps:
    schema: {speed: flot64, pos: {x: 7}}
    event_tme: time
services:
  fast:
    from: gps
    pipeline:
      - aggregate: {count: n,
          window: {length: sixty}}
      - filtr: x
      - {join: {on: x}}
      - 7
    on_violation: quarantene
    qos: {availability: 2, latency_p99: 50}
"""
    assert problems(text) == [
        "t.yaml:5: streams.gps.event_tme: unknown key 'event_tme'; did you mean 'event_time'?",
        "t.yaml:4: streams.gps.schema.speed: unknown type 'flot64'; did you mean 'float64'?",
        "t.yaml:4: streams.gps.schema.pos.x: 7 is not a type; "
        "expected a name such as 'float64', 'enum(CAR, BUS)' or 'int32[4]?', a dict, Enum, Array or Optional",
        "t.yaml:16: services.fast.qos.latency_p99: expected a length of time such as 50ms, 10s, 2m, 24h or 7d, not 50",
        "t.yaml:16: services.fast.qos.availability: expected a share from 0 to 1, such as 0.999, not 2",
        "t.yaml:11: services.fast.pipeline[0].aggregate.window.length: "
        "expected a length of time or a number of events, such as 60s or 1000 events, not 'sixty'",
        "t.yaml:12: services.fast.pipeline[1]: unknown operator 'filtr'; did you mean 'filter'?",
        "t.yaml:13: services.fast.pipeline[2].join.within: "
        "expected a length of time such as 50ms, 10s, 2m, 24h or 7d, not nothing",
        "t.yaml:14: services.fast.pipeline[3]: expected one operator, such as filter: 'speed > 60' or merge, not 7",
        "t.yaml:15: services.fast.on_violation: expected one of quarantine, drop, flag, fail, not 'quarantene'; "
        "did you mean 'quarantine'?",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "t.yaml:1: expected YAML: expected the node content, but found '<stream end>'"),
        ("- 1", "t.yaml:1: expected definitions, such as {streams: {NAME: {schema: ...}}"),
        ("streams: {}\nstreams: {}", "t.yaml:2: streams: the key 'streams' occurs twice, first in line 1"),
        ("streams: !!python/object:a.B {}\nservices: !x y", "t.yaml:2: services: expected a plain value"),
        ("streams: &a [*a]", "t.yaml:1: expected YAML: it nests more than 100 deep"),
        ("streams:\n  <<: 7", "t.yaml:1: streams: expected << to name a map, such as <<: *defaults"),
        ("streams: {[a]: b}", "t.yaml:1: streams: expected keys that are text, not maps or lists"),
        ("streams: {_status: {schema: {a: bool}}}", "streams._status: names that start with _ are reserved"),
        ("streams: {a b: {schema: {a: bool}}}", "expected a name of letters, digits, _ . and -, at most 64"),
        ("streams: {a.quarantine: {schema: {a: bool}}}", "names that end in .quarantine are reserved"),
        ("streams: {a: {}}", "streams.a.schema: expected a map of attributes, such as {speed: float64}, not nothing"),
        ("streams: {a: {schema: {_x: bool}}}", "streams.a.schema: _x: names that start with _ are reserved"),
        ("streams: {a: {schema: {t: bool}, event_time: t}}", "not 't'; the schema has none"),
        ("streams: {a: {schema: {time: timestamp}, event_time: tim}}", "not 'tim'; did you mean 'time'?"),
        (
            "streams: {a: {schema: {vid: string}, key: vdi}}",
            "attributes vid, not 'vdi'; did you mean 'vid'?",
        ),
        ("streams: {a: {schema: {p: 'int8[]'}, key: p}}", "an attribute with a single value, as p is int8[], not 'p'"),
        (T + "partitions: 0", "a number of partitions from 1 to 1024, not 0"),
        (T + "constraints: {p: 3}", "constraints.p: expected the rest of a filter"),
        (T + "source: {htp: {}}", "unknown key 'htp'; did you mean 'http'?"),
        (
            T + "source: {demo: taxi}",
            "source.demo: expected one of anpr, gps, not 'taxi'",
        ),
        (T + "source: {demo: {rate: 0}}", "events a second, above 0, not 0"),
        (T + "retention: {size: big}", "a size such as 10MB or 1GB, not 'big'"),
        (S + "pipeline: merge", "expected a list of operators, such as [merge], not 'merge'"),
        (P + "sort", "the settings of sort, such as sort: {by: [time]"),
        (
            P + "{sort: {by: t, window: {length: 5s, slide: 9s}}}",
            "at most the window's",
        ),
        (
            P + "{aggregate: {window: {length: 5s}}}",
            "at least one of count, sum, avg",
        ),
        (
            P + "{aggregate: {count: n, window: {length: 5 events, slide: 9 events}}}",
            "slide: expected 1 to 5 events, as its length is 5 events, not '9 events'",
        ),
        (
            P + "{aggregate: {count: n, window: {length: 5 events, lateness: 5s}}}",
            "a window by count has no lateness",
        ),
        (
            P + "{incremental: {count: n, window: {session: 5m}}}",
            "window: expected a window by time or by count, such as {length: 60s}",
        ),
        (P + "{aggregate: {count: n, window: {length: 5 events, zone: UTC}}}", "a window by count has no zone"),
        (P + "{aggregate: {count: n, window: {length: 5s, offset: 5s}}}", "expected less than the window's slide, 5s"),
        (
            P + "{aggregate: {count: n, window: {length: 1d, zone: Europe/Berln}}}",
            "zone: expected a time zone, such as Europe/Berlin, not 'Europe/Berln'; did you mean 'Europe/Berlin'?",
        ),
        (P + "{aggregate: {count: n, window: {session: 5m, length: 1h}}}", "window.length: a session has no length"),
        (P + "{aggregate: {count: n, window: {session: 0s}}}", "window.session: expected a length of time such as"),
        (
            P + "{aggregate: {percentile: speed, window: {length: 5s}}}",
            "attributes with a share, such as {speed: 0.95}",
        ),
        (
            P + "{aggregate: {percentile: {a: 1}, window: {length: 5s}}}",
            "a share above 0 and below 1, such as 0.95, not 1",
        ),
        (
            P + "{aggregate: {percentile: {a: 0}, window: {length: 5s}}}",
            "a share above 0 and below 1, such as 0.95, not 0",
        ),
        (
            P + "{aggregate: {percentile: {a: {b: x}}, window: {length: 5s}}}",
            "percentile.a.b: expected a share above 0",
        ),
        (
            P + "{aggregate: {count: n, having: 3, window: {length: 5s}}}",
            "having: expected the text of a filter, such as",
        ),
        (P + "{sort: {by: t, window: {session: 5m}}}", "window: expected a window by time or by count"),
        (P + "{sort: {by: t, window: {length: 5s}, limit: 0}}", "limit: expected a number of events, 1 or more, not 0"),
        (
            P + "{sort: {by: t, window: {length: 5s}, per: a}}",
            "per groups the events that limit counts: expected a limit",
        ),
        (P + "{merge: {with: []}}", "merge.with: expected streams or services, such as [gps_b] or [{from: gps_c"),
        (P + "{merge: {with: [3]}}", "merge.with[0]: expected the name of a stream or service, or {from: name"),
        (
            P + "{merge: {with: [{filter: a}]}}",
            "merge.with[0].from: expected the name of a stream or service, not nothing",
        ),
        (P + "{merge: gps}", "merge: expected the other inputs, such as {with: [gps_b]}, not 'gps'"),
        (P + "{join: {on: a, window: {length: 5s}}}", "join.window: expected a window by count, such as {length: 100"),
        (
            P + "{join: {within: 5s, window: {length: 5 events}}}",
            "join.within: expected within or a window by count, not both",
        ),
        (
            P + "{join: {lateness: 5s, window: {length: 5 events}}}",
            "join.lateness: expected lateness or a window by count, not both",
        ),
        (P + "{join: {within: 5s, how: outer}}", "join.how: expected one of inner, left, full, not 'outer'"),
        (P + "lookup", "the settings of lookup, such as lookup: {from: weather, on: cid}"),
        (P + "{lookup: {on: a}}", "lookup.from: expected the name of a stream or service, not nothing"),
        (P + "{lookup: {from: a}}", "lookup.on: expected an attribute, or a list of attributes, not nothing"),
        (P + "{previous: {by: a}}", "previous.of: expected new attributes with those of the earlier event, such as"),
        (P + "{previous: {of: {a: 3}}}", "previous.of.a: expected the name of an attribute, not 3"),
        (P + "{previous: {of: {a: b}, back: 0}}", "previous.back: expected a number of events from 1 to 10000, not 0"),
        (
            P + "{pattern: {by: a}}",
            "pattern.steps: expected a list of steps, such as [{stopped: 'speed < 1', for: 5m}]",
        ),
        (P + "{pattern: {steps: [a]}}", "steps[0]: expected a step, such as {stopped: 'speed < 1', for: 5m}, not 'a'"),
        (P + "{pattern: {steps: [{for: 5m}]}}", "steps[0]: expected one name with a condition, such as {braking:"),
        (P + "{pattern: {steps: [{a: x, b: y}]}}", "steps[0]: expected one name with a condition, such as {braking:"),
        (P + "{pattern: {steps: [{a: 3}]}}", "steps[0].a: expected the text of a filter, or any, not 3"),
        (
            P + "{pattern: {steps: [{a: x, times: 0}]}}",
            "times: expected a number of events from 1 to 10000, or a range",
        ),
        (P + "{pattern: {steps: [{a: x, times: 5..2}]}}", "or a range such as 2.. or 2..5, not '5..2'"),
        (P + "{pattern: {steps: [{a: x, times: 2, for: 5s}]}}", "times: expected times or for, not both"),
        (P + "{pattern: {steps: [{a: x}, {absent: x, times: 2}]}}", "an absent step has no times: expected for, or"),
        (P + "{pattern: {steps: [{a: x}], span: {a: 1, b: 2}}}", "span: expected one attribute with its largest"),
        (
            P + "{pattern: {steps: [{a: x}], span: 3}}",
            "span: expected an attribute with its largest difference, such as",
        ),
        (P + "{pattern: {steps: [{a: x}], span: {a: -1}}}", "span.a: expected a difference, 0 or more, not -1"),
        (S + "on_late: ignore", "services.s.on_late: expected one of quarantine, drop, update, not 'ignore'"),
        (
            S + "idle: 0s",
            "services.s.idle: expected a length of time such as 50ms, 10s, 2m, 24h or 7d, or never, not '0s'",
        ),
        (S + "max_ahead: soon", "services.s.max_ahead: expected a length of time such as 50ms"),
        (P + "{enrich: {table: x, on: a}}", "a file that ends in .csv or .parquet"),
        (
            P + "{custom: {function: 'f g', schema: {a: bool}}}",
            "a function: a name that the profile registers, or module:function",
        ),
        (S + "access: publik", "services.s.access: expected one of public, keys, not 'publik'; did you mean 'public'?"),
        (S + "access: []", "services.s.access: expected at least one caller, not []"),
        (S + "access: 3", "services.s.access: expected public, keys, or a list of callers: names of keys, subjects of"),
        (S + "access: [3]", "services.s.access[0]: expected public, keys, or a list of callers"),
        (S + "access: {too: keys}", "services.s.access.too: unknown key 'too'; did you mean 'to'?"),
        (
            S + "access: {to: [a], owners: [b]}",
            "access.owners: expected `to` or `owners`, which is another word for it",
        ),
        (S + "access: {fields: [vid]}", "access.fields: expected callers by attribute, such as {vid: [police]}, not"),
        (S + "access: {fields: {vid: 3}}", "access.fields.vid: expected a list of callers: names of keys"),
        (
            S + "qos: {latency_p99: fsat}",
            "latency_p99: expected a length of time such as 50ms, or one of instant, fast, moderate, slow, not 'fsat'; "
            "did you mean 'fast'?",
        ),
        (S + "qos: {rate: huge}", "rate: expected events a second, or one of dense, steady, sparse, not 'huge'"),
        (S + "qos: {completeness: most}", "expected a share such as 0.99, or one of full, good, partial, not 'most'"),
        (S + "properties: {price: [3]}", "properties.price: expected a number, a text, true or false, not [3]"),
        (S + "properties: {price: .inf}", "properties.price: expected a number, a text, true or false, not inf"),
        (S + "properties: {_id: 3}", "properties._id: expected a name that does not begin with _, not '_id'"),
        (S + "properties: cheap", "expected properties by name, such as {price: 3.5, region: north}, not 'cheap'"),
        (S + "categories: [3]", "categories[0]: expected a category, or a list of categories, not 3"),
        (S + "mask: {vid: hide}", "expected one of drop, hmac, truncate, round, not 'hide'"),
        (S + "mask: {vid: {truncate: x}}", "the letters that are left, 0 or more, not 'x'"),
        ("services: {s: {from: []}}", "services.s.from: expected at least one stream or service, not []"),
        ("services: {s: {pipeline: []}}", "services.s.from: expected the name of a stream or service"),
        ("services: {s: 3}", "services.s: expected a service, such as {from: gps, pipeline: [merge]}, not 3"),
    ],
)
def test_problem_shows_the_value_and_what_was_expected(text: str, problem: str) -> None:
    text += "]" * text.startswith(P) + "}}" * text.startswith((S, T))
    assert any(problem in line for line in problems(text)), problems(text)


def test_words_of_quality_are_read_as_numbers() -> None:
    loaded = loads("services: {s: {from: a, qos: {latency_p99: Fast, availability: high, freshness: live}}}")
    assert loaded.services["s"].qos == Qos(0.05, 0.999, None, 1.0, None)
    assert to_dict(loaded)["services"]["s"]["qos"] == {"latency_p99": "50ms", "availability": 0.999, "freshness": "1s"}


def test_properties_and_categories_are_read() -> None:
    text = "services: {s: {from: a, properties: {price: 3.5, region: north, indoor: false}, categories: [air]}}"
    loaded = loads(text).services["s"]
    assert (loaded.properties, loaded.categories) == ({"price": 3.5, "region": "north", "indoor": False}, ("air",))


def test_document_with_exponential_aliases_is_refused() -> None:
    lines = ["x-0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert problems("\n".join(lines)) == ["t.yaml:1: expected YAML: it has more than 100000 values, aliases counted"]


def test_name_defined_in_two_files_is_reported_with_both_places(tmp_path: Path) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text("\nstreams: {gps: {schema: {a: bool}}}")
    other.write_text("services:\n  gps: {from: x}")
    with pytest.raises(DefinitionError) as caught:
        load([one, other])
    assert str(caught.value) == (f"{other}:2: services.gps: the name 'gps' is taken already by streams.gps at {one}:2")


def test_missing_and_undecodable_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_bytes(b"\xff")
    with pytest.raises(DefinitionError) as caught:
        load([tmp_path / "none.yaml", tmp_path / "bad.yaml"])
    assert str(caught.value).splitlines() == [
        f"{tmp_path}/none.yaml: can't read it: No such file or directory",
        f"{tmp_path}/bad.yaml: can't read it: it is not UTF-8 text",
    ]


def test_problem_in_a_dict_has_no_line() -> None:
    with pytest.raises(DefinitionError) as caught:
        from_dict({"streams": {"a": {"schema": {}, True: 1}}})
    assert str(caught.value) == "streams.a: expected keys that are text, not True"
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


def test_yaml_written_by_pyyaml_reads_back_equal() -> None:
    document = to_dict(load(CITY))
    assert loads(yaml.safe_dump(document, sort_keys=False)) == load(CITY)


def test_access_owners_is_a_synonym_of_access_to() -> None:
    text = "streams: {{a: {{schema: {{n: int64}}}}}}\nservices: {{s: {{from: a, access: {{{}: [police]}}}}}}\n"
    assert loads(text.format("owners")) == loads(text.format("to"))
