"""`tidegate validate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

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
