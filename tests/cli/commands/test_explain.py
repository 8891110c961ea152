"""`tidegate explain`, and the error messages of commands."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from tests.semantics.spaces import CITY, make
from tidegate.cli.main import app, run

runner = CliRunner()

SCHEMA = """
schema:
  vid: string
  speed: float64
  kind: enum(CAR, BUS)
  time: timestamp
constraints: {speed: ">= 0"}
terms: {speed: {slow: "TRAPEZOID(0, 0, 20, 35)"}}
"""


@pytest.fixture
def schema(tmp_path: Path) -> str:
    path = tmp_path / "schema.yaml"
    path.write_text(SCHEMA)
    return str(path)


@pytest.fixture
def event(tmp_path: Path) -> str:
    path = tmp_path / "event.json"
    path.write_text(json.dumps({"vid": "B17", "speed": 61.5, "kind": "CAR"}))
    return str(path)


def tidegate(*args: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command in its own process."""
    command = [str(Path(sys.executable).with_name("tidegate")), *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def run_in_process(*args: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code and its standard error."""
    with patch.object(sys, "argv", ["tidegate", *args]), redirect_stderr(io.StringIO()) as errors:
        try:
            run()
        except SystemExit as end:
            return int(end.code or 0), errors.getvalue()
    raise AssertionError("the command did not end")


def test_parse_tree_normal_form_and_value_sets_are_shown() -> None:
    result = runner.invoke(app, ["explain", "NOT (speed <= 60 OR vid LIKE 'B%') and lane in (2,1)"])
    assert result.exit_code == 0
    for line in (
        "filter  lane IN (1, 2) AND speed > 60 AND vid NOT LIKE 'B%'",
        "AND\n  ├─ NOT\n  │  └─ OR",
        "1 alternative",
        "speed in",
        "vid in (-inf, 'B') u ['C', +inf)",
    ):
        assert line in result.stdout


def test_value_sets_have_the_types_of_the_schema(schema: str) -> None:
    result = runner.invoke(app, ["explain", "kind > 'CAR' AND time < '2026-01-01' AND speed < 5", "--schema", schema])
    assert "kind in {BUS}" in result.stdout
    assert "time in (-inf, 2025-12-31T23:59:59.999999Z]" in result.stdout


def test_fuzzy_cuts_are_shown(schema: str) -> None:
    result = runner.invoke(app, ["explain", "speed IS slow", "--schema", schema])
    assert "fuzzy  speed IS TRAPEZOID(0.0, 0.0, 20.0, 35.0), degree at least 0.8" in result.stdout
    assert "must reach 0.8: outer [-3.5e-08, 23], inner" in result.stdout


def test_deciding_predicate_is_shown_with_an_event(schema: str, event: str) -> None:
    result = runner.invoke(
        app, ["explain", "speed > 60 AND vid = 'B18' AND kind = 'CAR'", "--schema", schema, "--event", event]
    )
    assert "does not match (false, degree 0)" in result.stdout
    lines = [line for line in result.stdout.splitlines() if "decided" in line]
    assert len(lines) == 1
    assert "vid = 'B18'" in lines[0]
    assert "vid = 'B17'" in lines[0]


def test_event_that_violates_the_schema_is_a_warning(schema: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"vid": 5, "speed": -3, "kind": "CAR", "time": "2026-01-01"}))
    result = runner.invoke(app, ["explain", "speed < 5", "--schema", schema, "--event", str(path)])
    assert "warning the event does not fit the schema: vid: expected a string, not 5" in result.stdout
    assert "warning the event does not fit the schema: speed: -3 violates speed >= 0" in result.stdout


def test_semantic_filter_is_shown_with_its_mappings(tmp_path: Path) -> None:
    make(tmp_path / "space", CITY)
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"device": "laptop", "state": "power", "level": 3}))
    command = ["explain", "device~ = 'computer'~ AND level < 5", "--event", str(event)]
    result = runner.invoke(app, [*command, "--semantics", str(tmp_path / "space")])
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert any(line.startswith("event matches (true, degree ") for line in lines)
    mapping = lines[next(n for n, line in enumerate(lines) if line.startswith("mapping 1 degree ")) :]
    assert mapping[1].startswith("device~ = 'computer'~ means device = 'laptop' ")
    assert mapping[2].startswith("by name 1")
    assert mapping[3].startswith("by value ")
    assert {"Computer", "Laptop"} == set(mapping[3].partition(": ")[2].split(", "))
    document = json.loads(runner.invoke(app, [*command, "--semantics", str(tmp_path / "space"), "--json"]).stdout)
    assert document["event"]["mappings"][0]["pairs"][0]["attribute"] == "device"


def test_invalid_space_is_named(tmp_path: Path) -> None:
    result = runner.invoke(app, ["explain", "a~ = 'b'~", "--semantics", str(tmp_path)])
    assert "is no semantic space: it has no space.json" in str(result.exception)


def test_json_has_canonical_form_and_predicates(event: str) -> None:
    result = runner.invoke(app, ["explain", "speed > %0 OR gone = 1", "--param", "60", "--event", event, "--json"])
    document = json.loads(result.stdout)
    assert document["canonical"] == "gone = 1 OR speed > 60"
    assert document["event"]["matches"] is True
    assert [predicate["truth"] for predicate in document["event"]["predicates"]] == ["true", "unknown"]
    assert [predicate["decided"] for predicate in document["event"]["predicates"]] == [True, False]


def test_event_is_read_from_standard_input() -> None:
    result = runner.invoke(app, ["explain", "speed > 60", "--event", "-", "--json"], input='{"speed": 61}')
    assert json.loads(result.stdout)["event"]["degree"] == 1.0


def test_events_are_json_with_any_file_name(tmp_path: Path) -> None:
    text = '{"speed": 1e2,\t"v": "\\ud83d\\ude00"}'
    (tmp_path / "event").write_text(text)
    for event in ("-", str(tmp_path / "event")):
        result = runner.invoke(app, ["explain", "speed > 50 AND v = '😀'", "--event", event, "--json"], input=text)
        assert json.loads(result.stdout)["event"]["matches"] is True


def test_filter_is_printed_without_markup() -> None:
    assert "v = ':car:'" in runner.invoke(app, ["explain", "v = ':car:'"]).stdout


def test_bare_word_without_a_schema_is_a_warning() -> None:
    result = runner.invoke(app, ["explain", "StockCode = AAPL"])
    assert "AAPL in StockCode = AAPL is a field; for the text write 'AAPL'" in result.stdout


def test_filters_that_match_every_event_or_none_are_reported() -> None:
    assert "matches every event" in runner.invoke(app, ["explain", "x IS NULL OR x IS NOT NULL"]).stdout
    assert "every event" in runner.invoke(app, ["explain", ""]).stdout
    nothing = runner.invoke(app, ["explain", "x BETWEEN 5 AND 3"]).stdout
    assert "matches nothing" in nothing
    assert "warning no event can match" in nothing


def test_factored_filter_is_a_warning() -> None:
    text = " AND ".join(f"(a{n} = 1 OR b{n} = 2)" for n in range(8))
    assert "too many alternatives" in runner.invoke(app, ["explain", text]).stdout


def test_like_star_treats_asterisks_as_wildcards() -> None:
    result = runner.invoke(app, ["explain", "vid LIKE 'B*'", "--like-star"])
    assert "filter  vid LIKE 'B%'" in result.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["explain", "speed >"],
            "error: expected a value or a field\n  speed >\n         ^ expected a value or a field",
        ),
        (["explain", "speed > 3", "--schema", "nowhere.yaml"], "error: nowhere.yaml: can't read it: No such file"),
        (["bench", "nothing"], "error: there is no benchmark 'nothing'; expected one of filters, matching"),
        (
            ["bench", "filters", "--full"],
            "error: --space, --thesaurus and --full are options of 'thematic' only, not of 'filters'",
        ),
    ],
)
def test_errors_are_messages_not_tracebacks(args: list[str], message: str) -> None:
    done = tidegate(*args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.yaml", "[1, 2]", "expected a map of attributes, not list"),
        ("s.yaml", "{a: [", "expected JSON or YAML"),
        ("s.json", "{", "expected JSON or YAML"),
        ("s.yaml", "{schema: {a: int32}, constrants: {}}", "unknown key; did you mean 'constraints'?"),
        ("s.yaml", "{schema: {a: int32}, constraints: [a]}", "constraints: expected names with text"),
        ("s.yaml", "{schema: {a: int32}, terms: {a: x}}", "terms.a: expected names with text"),
        ("s.yaml", "{a: flot64}", "a: unknown type 'flot64'; did you mean 'float64'?"),
        ("s.json", '{"type": "object", "properties": {"a": {}}}', "a: expected a JSON Schema with a type"),
    ],
)
def test_invalid_schema_file_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    code, errors = run_in_process("explain", "a > 3", "--schema", str(path))
    assert code == 2
    assert str(path) in errors
    assert message in errors


def test_schema_file_can_be_a_json_schema(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}))
    assert run_in_process("explain", "a > 3", "--schema", str(path))[0] == 0
    assert run_in_process("explain", "a = 'x'", "--schema", str(path))[0] == 2


def test_event_file_without_an_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    path.write_text("[1]")
    code, errors = run_in_process("explain", "a > 3", "--event", str(path))
    assert (code, "expected an event (an object), not list" in errors) == (2, True)


@pytest.mark.parametrize("content", ["{", '{"a": ' + "1" * 5_000 + "}", "[" * 100_000])
def test_event_file_without_json_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "e.json"
    path.write_text(content)
    code, errors = run_in_process("explain", "a > 3", "--event", str(path))
    assert (code, "expected an event in JSON" in errors) == (2, True)


def test_version_is_printed() -> None:
    assert tidegate("--version").stdout.startswith("tidegate 0.")
