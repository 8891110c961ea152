"""`tidegate subscribe`, `services` and `publish` with a URL, against a real gateway."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.client.test_publishing import Stub, stub, taken
from tests.gateway.running import World
from tidegate.cli.commands.subscribe import line
from tidegate.cli.data_folder.home import Home
from tidegate.cli.main import app
from tidegate.client import Event, Refused, Unreachable
from tidegate.errors import EnvironmentProblem
from tidegate.logs import Cursor

__all__ = ["stub"]

runner = CliRunner()
FILE = "streams: {raw: {schema: {n: int64}}}\nservices: {all: {from: raw}}\n"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world")).running() as running_world:
        running_world.append(3)
        yield running_world


def subscribe(world: World, *more: str, env: dict[str, str] | None = None) -> Any:
    command = ["subscribe", "gps", "--from", "beginning", *more]
    return runner.invoke(app, command, env={"TIDEGATE_URL": world.url} if env is None else env)


def test_pipe_gets_one_json_object_per_line(world: World) -> None:
    result = subscribe(world, "speed > %0", "--param", "0", "--select", "vid,speed", "--max", "2")
    assert result.exit_code == 0
    assert [json.loads(text) for text in result.stdout.splitlines()] == [
        {"_id": f"gps_taxi:0:{n}", "_time": "2026-01-01T00:00:00.000000Z", "vid": f"B{n}", "speed": float(n)}
        for n in (1, 2)
    ]


def test_cloudevents_format_has_an_envelope(world: World) -> None:
    result = subscribe(world, "--format", "cloudevents", "--max", "1", "--json")
    assert json.loads(result.stdout)["data"]["vid"] == "B0"


def test_gap_is_a_warning(world: World) -> None:
    elsewhere = Cursor("another", {"gps_taxi.0": 0}).text
    result = subscribe(world, "--cursor", elsewhere, "--max", "1")
    assert "warning: events were missed: the cursor is not valid in this stream" in result.stderr
    assert json.loads(result.stdout)["_id"] == "gps_taxi:0:0"


def test_filter_with_an_unknown_field_is_refused_with_a_hint(world: World) -> None:
    result = subscribe(world, "sped > 3")
    assert isinstance(result.exception, Refused)
    assert "  ^^^^ unknown field 'sped'; did you mean 'speed'?" in str(result.exception)


def test_unreachable_gateway_is_named() -> None:
    result = runner.invoke(app, ["subscribe", "gps", "--url", "http://127.0.0.1:9"])
    assert isinstance(result.exception, Unreachable)
    assert "can't reach a gateway at http://127.0.0.1:9" in str(result.exception)


def test_control_characters_of_an_event_are_escaped() -> None:
    event = Event("a\x1b[2J", "c", {"x\n": "\x9b1m", "y": [1, None]}, None)
    assert line(event).plain == 'a\\x1b[2J  x\\n="\\x9b1m" y=[1, null]'


def test_terminal_gets_readable_lines(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.cli.commands.subscribe._is_terminal", lambda: True)
    result = subscribe(world, "--max", "2", "--select", "vid,speed")
    assert result.stdout.splitlines() == [
        f'2026-01-01 00:00:00.000  gps_taxi:0:{n}  vid="B{n}" speed={n}.0' for n in range(2)
    ]


def test_command_ends_when_the_reader_of_its_pipe_ends(world: World) -> None:
    """There are only three events: the command must end without waiting for a fourth."""
    program = f"{sys.executable} -m tidegate subscribe gps --from beginning --url {world.url}"
    script = f"{program} | head -3; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    *lines, status = result.stdout.splitlines()
    assert [json.loads(text)["_id"] for text in lines] == [f"gps_taxi:0:{n}" for n in range(3)]
    assert (status, result.stderr) == ("141", "")


def test_ctrl_c_prints_the_cursor_to_continue_from(world: World) -> None:
    command = [sys.executable, "-m", "tidegate", "subscribe", "gps", "--from", "beginning", "--url", world.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.startswith("continue with --cursor ")
    cursor = errors.split()[-1]
    world.append(1)
    result = subscribe(world, "--cursor", cursor, "--max", "1")
    assert json.loads(result.stdout)["_id"] == "gps_taxi:0:3"


def test_services_of_a_gateway_are_listed(world: World) -> None:
    result = runner.invoke(app, ["services", "--url", world.url, "--json"])
    assert json.loads(result.stdout) == [
        {"service": "fast", "version": 1, "from": ["gps"], "status": None, "origin": None},
        {"service": "gps", "version": 1, "from": ["gps_taxi"], "status": None, "origin": None},
    ]
    assert "never ran" in runner.invoke(app, ["services", "--url", world.url]).stdout


def data_folder(folder: Path) -> Path:
    """Create a registry and a file of events in a folder."""
    (folder / "s.yaml").write_text(FILE)
    assert runner.invoke(app, ["apply", str(folder / "s.yaml"), "--data", str(folder)]).exit_code == 0
    (folder / "events").write_text('{"n": 1}\n\n{"n":\t2}\r\n')
    return folder


def test_publish_with_a_url_sends_events_over_http(stub: Stub, tmp_path: Path) -> None:
    file = str(data_folder(tmp_path) / "events")
    result = runner.invoke(app, ["publish", "raw", file, "--url", stub.url])
    assert result.stdout == "2 events in raw\n"
    assert stub.seen[0][2] == [{"n": 1}, {"n": 2}]
    errors = [{"index": 1, "pointer": "n", "detail": "is no number"}]
    stub.answers = [taken(1, duplicates=1, refused=1, errors=errors)]
    result = runner.invoke(app, ["publish", "raw", file, "--partial"], env={"TIDEGATE_URL": stub.url})
    assert result.stdout == "1 events in raw, 1 were there already, 1 refused\n"
    assert result.stderr == "event 1: n: is no number\n"
    result = runner.invoke(app, ["publish", "raw", file, "--url", stub.url, "--json"])
    assert {name: json.loads(result.stdout)[name] for name in ("accepted", "refused")} == {"accepted": 2, "refused": 0}


def test_publish_uses_the_gateway_that_runs_in_the_folder(stub: Stub, tmp_path: Path) -> None:
    home = Home(data_folder(tmp_path))
    command = ["publish", "raw", str(tmp_path / "events"), "--data", str(tmp_path)]
    elsewhere = {"TIDEGATE_URL": "http://127.0.0.1:9"}  # --data takes precedence over it
    with home.locked() as lock:
        assert runner.invoke(app, command, env=elsewhere).stdout == "2 events in raw\n"
        lock.announce(None)
        result = runner.invoke(app, command, env=elsewhere)
        assert isinstance(result.exception, EnvironmentProblem)
        assert "only writer" in str(result.exception)
        assert "--url URL" in str(result.exception)
        lock.announce(stub.url)
        assert stub.seen == []
        assert runner.invoke(app, command, env=elsewhere).stdout == "2 events in raw\n"
        assert len(stub.seen) == 1
    assert home.running() is None
    assert runner.invoke(app, command, env=elsewhere).stdout == "2 events in raw\n"
    assert len(stub.seen) == 1
