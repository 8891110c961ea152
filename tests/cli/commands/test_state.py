"""`tidegate state` and `tidegate plan --diff`, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from tidegate.cli.data_folder.home import Home
from tidegate.cli.main import app
from tidegate.services import loads

runner = CliRunner()
SERVICES = """
streams: {a: {schema: {vid: string, n: int64, time: timestamp}, event_time: time}}
services: {flow: {from: a, pipeline: [{aggregate: {count: c, by: [vid], window: {length: %s}}}]}}
"""


def apply(data: Path, length: str) -> Path:
    file = data.parent / "services.yaml"
    file.write_text(SERVICES % length)
    registry = Home(data).registry()
    try:
        registry.apply(loads(SERVICES % "10s"))
    finally:
        registry.close()
    return file


def tidegate(*args: object) -> str:
    result = runner.invoke(app, [*map(str, args)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_diff_says_that_a_state_is_lost_and_needs_force(tmp_path: Path) -> None:
    file = apply(tmp_path / "data", "20s")
    shown = tidegate("plan", file, "--diff", "--data", tmp_path / "data")
    reason = "the window of aggregate was 10s every 10s and is 20s every 20s"
    assert shown.splitlines() == [
        f"changed    flow  version 2; its state starts anew: {reason}",
        "unchanged  a  version 1",
        "this loses the state of services, such as open windows (force applies it all the same):",
        f"services.flow: {reason}",
    ]
    assert Home(tmp_path / "data").registry().service("flow").version == 1


def test_diff_as_json_says_that_a_state_is_kept(tmp_path: Path) -> None:
    file = apply(tmp_path / "data", "10s, lateness: 5s")
    shown = json.loads(tidegate("plan", file, "--diff", "--json", "--data", tmp_path / "data"))
    assert (shown["changed"], shown["needs_force"]) == ({"flow": 2}, None)
    assert shown["states"] == {"flow": {"effect": "keeps", "reasons": []}}


def test_state_of_a_service_that_never_ran_is_not_saved(tmp_path: Path) -> None:
    apply(tmp_path / "data", "10s")
    for service, message in (
        ("flow", "service 'flow' has not run here: it has no state to save"),
        ("flo", "no service 'flo'; did you mean 'flow'?"),
    ):
        result = runner.invoke(app, ["state", "save", service, "x", "--data", str(tmp_path / "data")])
        assert str(result.exception) == message
    assert json.loads(tidegate("state", "list", "--json", "--data", tmp_path / "data")) == []


def test_state_is_not_restored_while_the_engine_runs(tmp_path: Path) -> None:
    home = Home(tmp_path / "data")
    with home.locked():
        result = runner.invoke(app, ["state", "restore", "flow", "x", "--data", str(tmp_path / "data")])
    assert result.exception is not None
    assert "flow" not in str(result.exception)
    assert str(tmp_path / "data") in str(result.exception)
