"""`tidegate subscribe`, and what else asks a gateway, against a real one."""

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
from tidegate.cli.home import Home
from tidegate.cli.main import app
from tidegate.cli.subscribe import line
from tidegate.client import Event, Refused, Unreachable
from tidegate.errors import EnvironmentProblem
from tidegate.logs import Cursor

__all__ = ["stub"]

runner = CliRunner()
FILE = "streams: {raw: {schema: {n: int64}}}\nservices: {all: {from: raw}}\n"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world")).running() as found:
        found.append(3)
        yield found


def subscribe(world: World, *more: str, env: dict[str, str] | None = None) -> Any:
    command = ["subscribe", "gps", "--from", "beginning", *more]
    return runner.invoke(app, command, env={"TIDEGATE_URL": world.url} if env is None else env)


def test_one_object_a_line(world: World) -> None:
    told = subscribe(world, "speed > %0", "--param", "0", "--select", "vid,speed", "--max", "2")
    assert told.exit_code == 0
    assert [json.loads(each) for each in told.stdout.splitlines()] == [
        {"_id": f"gps_taxi:0:{n}", "_time": "2026-01-01T00:00:00.000000Z", "vid": f"B{n}", "speed": float(n)}
        for n in (1, 2)
    ]


def test_envelopes(world: World) -> None:
    told = subscribe(world, "--format", "cloudevents", "--max", "1", "--json")
    assert json.loads(told.stdout)["data"]["vid"] == "B0"


def test_a_gap_is_a_warning(world: World) -> None:
    elsewhere = Cursor("another", {"gps_taxi.0": 0}).text
    told = subscribe(world, "--cursor", elsewhere, "--max", "1")
    assert "warning: events were missed: the cursor is not valid in this stream" in told.stderr
    assert json.loads(told.stdout)["_id"] == "gps_taxi:0:0"


def test_a_mistake_is_shown(world: World) -> None:
    told = subscribe(world, "sped > 3")
    assert isinstance(told.exception, Refused)
    assert "  ^^^^ unknown field 'sped'; did you mean 'speed'?" in str(told.exception)


def test_nobody_there() -> None:
    told = runner.invoke(app, ["subscribe", "gps", "--url", "http://127.0.0.1:9"])
    assert isinstance(told.exception, Unreachable)
    assert "can't reach a gateway at http://127.0.0.1:9" in str(told.exception)


def test_a_line_does_nothing_to_the_terminal() -> None:
    event = Event("a\x1b[2J", "c", {"x\n": "\x9b1m", "y": [1, None]}, None)
    assert line(event).plain == 'a\\x1b[2J  x\\n="\\x9b1m" y=[1, null]'


def test_lines_to_read_on_a_terminal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.cli.subscribe._is_terminal", lambda: True)
    told = subscribe(world, "--max", "2", "--select", "vid,speed")
    assert told.stdout.splitlines() == [
        f'2026-01-01 00:00:00.000  gps_taxi:0:{n}  vid="B{n}" speed={n}.0' for n in range(2)
    ]


def test_the_reader_of_a_pipe_goes_away(world: World) -> None:
    """There are three events, and no fourth ever comes."""
    program = f"{sys.executable} -m tidegate subscribe gps --from beginning --url {world.url}"
    script = f"{program} | head -3; echo ${{PIPESTATUS[0]}}"
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    *lines, status = told.stdout.splitlines()
    assert [json.loads(each)["_id"] for each in lines] == [f"gps_taxi:0:{n}" for n in range(3)]
    assert (status, told.stderr) == ("141", "")


def test_ctrl_c_prints_where_to_go_on(world: World) -> None:
    command = [sys.executable, "-m", "tidegate", "subscribe", "gps", "--from", "beginning", "--url", world.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.startswith("go on with --cursor ")
    cursor = errors.split()[-1]
    world.append(1)
    told = subscribe(world, "--cursor", cursor, "--max", "1")
    assert json.loads(told.stdout)["_id"] == "gps_taxi:0:3"


def test_services_of_a_gateway(world: World) -> None:
    told = runner.invoke(app, ["services", "--url", world.url, "--json"])
    assert json.loads(told.stdout) == [
        {"service": "fast", "version": 1, "from": ["gps"], "status": None, "origin": None},
        {"service": "gps", "version": 1, "from": ["gps_taxi"], "status": None, "origin": None},
    ]
    assert "never ran" in runner.invoke(app, ["services", "--url", world.url]).stdout


def made(folder: Path) -> Path:
    """A folder with a registry, and a file of events."""
    (folder / "s.yaml").write_text(FILE)
    assert runner.invoke(app, ["apply", str(folder / "s.yaml"), "--data", str(folder)]).exit_code == 0
    (folder / "events").write_text('{"n": 1}\n\n{"n":\t2}\r\n')
    return folder


def test_published_over_http(stub: Stub, tmp_path: Path) -> None:
    file = str(made(tmp_path) / "events")
    told = runner.invoke(app, ["publish", "raw", file, "--url", stub.url])
    assert told.stdout == "2 events in raw\n"
    assert stub.seen[0][2] == [{"n": 1}, {"n": 2}]
    errors = [{"index": 1, "pointer": "n", "detail": "is no number"}]
    stub.answers = [taken(1, duplicates=1, refused=1, errors=errors)]
    told = runner.invoke(app, ["publish", "raw", file, "--partial"], env={"TIDEGATE_URL": stub.url})
    assert told.stdout == "1 events in raw, 1 were there already, 1 refused\n"
    assert told.stderr == "event 1: n: is no number\n"
    told = runner.invoke(app, ["publish", "raw", file, "--url", stub.url, "--json"])
    assert {name: json.loads(told.stdout)[name] for name in ("accepted", "refused")} == {"accepted": 2, "refused": 0}


def test_published_to_the_gateway_that_runs_in_the_folder(stub: Stub, tmp_path: Path) -> None:
    home = Home(made(tmp_path))
    command = ["publish", "raw", str(tmp_path / "events"), "--data", str(tmp_path)]
    elsewhere = {"TIDEGATE_URL": "http://127.0.0.1:9"}  # the folder was named, this was not
    with home.locked() as lock:
        assert runner.invoke(app, command, env=elsewhere).stdout == "2 events in raw\n"
        lock.announce(None)
        told = runner.invoke(app, command, env=elsewhere)
        assert isinstance(told.exception, EnvironmentProblem)
        assert "one writer" in str(told.exception)
        assert "--url URL" in str(told.exception)
        lock.announce(stub.url)
        assert stub.seen == []
        assert runner.invoke(app, command, env=elsewhere).stdout == "2 events in raw\n"
        assert len(stub.seen) == 1
    assert home.running() is None
    assert runner.invoke(app, command, env=elsewhere).stdout == "2 events in raw\n"
    assert len(stub.seen) == 1
