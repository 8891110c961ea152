"""Checks of definitions as a whole."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidegate import DefinitionError
from tidegate.services import check, load, loads
from tidegate.services.check import examine
from tidegate.services.definitions import Definitions

CITY = Path(__file__).with_name("city.yaml")
STREAM = "streams:\n  gps: {schema: {vid: string, time: timestamp, speed: float64}, event_time: time}\n"


def problems(text: str) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        check(loads(text, "t.yaml"))
    return str(caught.value).splitlines()


def test_example_of_the_design_is_valid() -> None:
    shapes = check(load(CITY))
    assert shapes["traffic-flow"].output.to_dict() == {"cid": "string", "flow": "int64", "time": "timestamp"}
    assert shapes["traffic-flow"].output.event_time == "time"
    assert shapes["gps"].output.to_dict()["vid"] == "string"
    assert check(Definitions()) == {}


def test_services_can_be_written_in_any_order() -> None:
    shapes = check(
        loads(
            STREAM
            + "services:\n"
            + "  b: {from: a, pipeline: [{filter: kmh > 3}]}\n"
            + "  a: {from: gps, pipeline: [{project: {kmh: speed * 3.6, time: time}}]}\n"
        )
    )
    assert list(shapes) == ["b", "a"]
    assert shapes["b"].output == shapes["a"].output


@pytest.mark.parametrize(
    ("service", "problem"),
    [
        ("access: {fields: {vdi: [a]}}", "unknown attribute 'vdi'; did you mean 'vid'?"),
        ("access: {fields: {time: [a]}}", "'time' is the event time, which every event shows"),
    ],
)
def test_unknown_or_event_time_attribute_in_access_fields_is_refused(service: str, problem: str) -> None:
    (message,) = problems(STREAM + f"services:\n  s:\n    {{from: gps, {service}}}\n")
    assert message.startswith("t.yaml:5: services.s.access.fields.")
    assert message.endswith(problem)


def test_existing_attributes_in_access_fields_are_accepted() -> None:
    aggregate = "{aggregate: {count: n, by: [vid], window: {length: 5s}}}"
    for service in (
        "access: {fields: {vid: []}}",
        f"pipeline: [{aggregate}], access: {{fields: {{n: [a]}}}}",
        f"pipeline: [{aggregate}], mask: {{vid: hmac}}, access: {{fields: {{vid: [a]}}}}",
        f"pipeline: [{aggregate}, {{project: {{n: n, time: window_end}}}}], access: {{fields: {{n: [a]}}}}",
    ):
        assert check(loads(STREAM + f"services: {{s: {{from: gps, {service}}}}}"))


def test_problems_of_all_services_are_reported_together() -> None:
    text = """
streams:
  gps: {schema: {vid: string, speed: float64}, constraints: {sped: "> 0"}, terms: {vid: {slow: "Z(1, 2)"}}}
  anpr: {schema: {cid: string, time: timestamp}, event_time: time}
services:
  a: {from: gsp}
  b: {from: gps, pipeline: [{filter: nonsense >}]}
  c:
    from: anpr
    pipeline:
      - {filter: cdi = 'x'}
      - deduplicate:
          by: [vid]
  d: {from: c, pipeline: [{filter: nothing = 3}]}
"""
    assert problems(text) == [
        "t.yaml:3: streams.gps.terms.vid: expected terms of a number; vid is string",
        "t.yaml:3: streams.gps.constraints.sped: unknown field 'sped'; did you mean 'speed'?: in 'sped > 0' at 1",
        "t.yaml:6: services.a.from: unknown stream or service 'gsp'; did you mean 'gps'?",
        "t.yaml:11: services.c.pipeline[0].filter: unknown field 'cdi'; did you mean 'cid'?: in \"cdi = 'x'\" at 1",
        "t.yaml:13: services.c.pipeline[1].deduplicate.by: unknown attribute 'vid'; did you mean 'cid'?",
    ]


def test_each_cycle_is_reported_once() -> None:
    text = STREAM + "services:\n  a: {from: c}\n  b: {from: a}\n  c: {from: b}\n  d: {from: c}\n  e: {from: e}"
    assert problems(text) == [
        "t.yaml:4: services.a.from: it reads itself: a <- c <- b <- a",
        "t.yaml:8: services.e.from: it reads itself: e <- e",
    ]


def test_name_of_a_stream_and_a_service_is_refused() -> None:
    loaded = loads(STREAM + "services: {s: {from: gps}}")
    both = Definitions(loaded.streams, {"gps": loaded.services["s"]})
    with pytest.raises(DefinitionError, match=r"services.gps: the name 'gps' is taken already by streams.gps"):
        check(both)


def test_missing_functions_are_reported_when_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tidegate_custom.py").write_text("def halve(batches): ...")
    (tmp_path / "tidegate_broken.py").write_text("1 / 0")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    text = STREAM + "services: {s: {from: gps, pipeline: [{custom: {function: '%s', schema: {a: bool}}}]}}"
    assert check(loads(text % "tidegate_custom:halve"))["s"].output.to_dict() == {"a": "bool"}
    place = "t.yaml:3: services.s.pipeline[0].custom.function: "
    assert problems(text % "tidegate_custom:halv") == [
        f"{place}'tidegate_custom' has no function 'halv'; did you mean 'halve'?"
    ]
    assert problems(text % "tidegate_broken:f") == [
        f"{place}can't import 'tidegate_broken': ZeroDivisionError: division by zero"
    ]
    assert problems(text % "tidegate_none:f") == [
        f"{place}can't import 'tidegate_none': ModuleNotFoundError: No module named 'tidegate_none'"
    ]
    assert "s" in check(loads(text % "tidegate_none:f"), functions=())


def test_service_that_reads_a_broken_one_is_not_checked() -> None:
    loaded = loads("services: {s: {from: gps, pipeline: [{filter: x > 3}]}}")
    assert examine(loaded, broken={"gps"}) == ({}, [])


@pytest.mark.parametrize(
    ("source", "where", "message"),
    [
        ("{kafka: {topic: t, times: soon}}", "times", "expected one of epoch_s, epoch_ms, epoch_us, epoch_ns, or a"),
        ("{kafka: {topic: t, times: {tim: epoch_s}}}", "times.tim", "no timestamp 'tim'; did you mean 'time'?"),
        ("{kafka: {topic: t, times: {vid: epoch_s}}}", "times.vid", "no timestamp 'vid'; expected one of time"),
        ("{mqtt: {topic: t, format: xml}}", "format", "expected one of json, ndjson, csv, not 'xml'"),
        ("{mqtt: {topic: t, columns: [a, b]}}", "columns", "columns are for the format csv"),
        ("{mqtt: {topic: t, format: csv, columns: [a, a]}}", "columns", "expected a list of names that differ"),
        ("{files: {path: a.csv, zone: Mars/North}}", "zone", "expected the name of a time zone, such as Europe/Berlin"),
        ("{files: {path: a.csv, times: epoch_s, zone: UTC}}", "zone", "a zone is for patterns in times"),
    ],
)
def test_format_of_a_source_is_checked(source: str, where: str, message: str) -> None:
    found = problems(STREAM.replace("event_time: time}", f"event_time: time, source: {source}}}"))
    kind = source[1 : source.index(":")]
    assert any(f"streams.gps.source.{kind}.{where}: " in line and message in line for line in found), found
