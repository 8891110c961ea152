"""`tidegate validate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidegate import DefinitionError
from tidegate.cli.main import app

CITY = Path(__file__).parents[2] / "services" / "city.yaml"


def test_services_are_printed_with_their_output_schema() -> None:
    result = CliRunner().invoke(app, ["validate", str(CITY)], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:6] == [
        "valid  4 streams, 2 services",
        "",
        "traffic-flow  anpr > aggregate > project",
        "  cid: string",
        "  flow: int64",
        "  time: timestamp  (event time)",
    ]


def test_json_has_streams_and_services() -> None:
    result = CliRunner().invoke(app, ["validate", str(CITY), "--json"], catch_exceptions=False)
    document = json.loads(result.stdout)
    assert (document["valid"], document["problems"]) == (True, [])
    assert document["services"]["traffic-flow"] == {
        "from": ["anpr"],
        "schema": {"cid": "string", "flow": "int64", "time": "timestamp"},
        "event_time": "time",
        "constraints": {"flow": "> 0", "time": "> '2010-01-01T00:00:00Z'"},
        "terms": {},
    }
    assert document["streams"]["anpr"]["schema"] == {"cid": "string", "vid": "string", "time": "timestamp"}


def test_syntax_and_type_problems_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("streams:\n  a: {schema: {x: int32}}\n  b: {schema: {x: flot64}}\n")
    (tmp_path / "b.yaml").write_text("services:\n  s: {from: a, pipeline: [{filter: y > 3}]}\n  t: {from: b}\n")
    files = [str(tmp_path / name) for name in ("a.yaml", "b.yaml")]
    with pytest.raises(DefinitionError) as caught:
        CliRunner().invoke(app, ["validate", *files], catch_exceptions=False)
    assert str(caught.value).splitlines() == [
        f"{files[0]}:3: streams.b.schema.x: unknown type 'flot64'; did you mean 'float64'?",
        f"{files[1]}:2: services.s.pipeline[0].filter: unknown field 'y'; expected one of x: in 'y > 3' at 1",
    ]
    result = CliRunner().invoke(app, ["validate", *files, "--json"], catch_exceptions=False)
    assert result.exit_code == 2
    document = json.loads(result.stdout)
    assert [(problem["line"], problem["path"]) for problem in document["problems"]] == [
        (3, "streams.b.schema.x"),
        (2, "services.s.pipeline[0].filter"),
    ]
    assert document["problems"][0]["file"] == files[0]


def sources(tmp_path: Path, source: str) -> Result:
    (tmp_path / "a.yaml").write_text(
        "streams:\n"
        "  a:\n"
        "    schema: {vid: string, n: int64, time: 'timestamp?'}\n"
        f"    source: {source}\n"
        "services: {s: {from: a}}\n"
    )
    arguments = ["validate", "--sources", "--wait", "1s", str(tmp_path / "a.yaml")]
    return CliRunner().invoke(app, arguments)


def test_sources_are_read_if_asked(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("vid,n,time,more\na,1,0,x\nb,x,1,x\nc,3,2,x\n")
    result = sources(tmp_path, f"{{files: {{path: {tmp_path}/x.csv, times: epoch_s}}}}")
    assert result.exit_code == 0, result.exception
    last = result.stdout.splitlines()[-1]
    assert last.startswith("source of a: 3 events read; 1 can't be used, the first: n: expected a whole number")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{files: TMP/none.csv}", "a.yaml:4: streams.a.source: no file or folder 'TMP/none.csv'"),
        (
            "{files: TMP/bad.csv}",
            "a.yaml:4: streams.a.source: none of 2 events can be used: time: expected an RFC",
        ),
        ("{files: TMP/x.txt}", "'x.txt' ends in none of .csv"),
        ("{files: TMP/x.csv.gz}", "the compressed file is damaged or incomplete"),
        ("{mqtt: {topic: t, broker: '127.0.0.1:1'}}", "can't reach the MQTT broker 127.0.0.1:1"),
        ("{mqtt: {topic: t, username: u, password_env: NO_SUCH}}", "the environment has no NO_SUCH"),
        ("{kafka: {topic: t, brokers: '127.0.0.1:1'}}", "Kafka at 127.0.0.1:1: "),
    ],
)
def test_source_that_can_not_be_read_is_a_problem(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "bad.csv").write_text("vid,n,time\na,1,soon\nb,2,later\n")
    for name in ("x.txt", "x.csv.gz"):
        (tmp_path / name).write_text("no")
    result = sources(tmp_path, source.replace("TMP", str(tmp_path)))
    assert isinstance(result.exception, DefinitionError)
    assert message.replace("TMP", str(tmp_path)) in str(result.exception)


def test_folder_without_files_is_valid(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    result = sources(tmp_path, f"{{files: {tmp_path}/in}}")
    assert result.stdout.splitlines()[-1] == "source of a: no events read"
