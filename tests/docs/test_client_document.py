"""The client examples of docs/client.md and the README run unchanged."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import tidegate.client
from tests.client.test_publishing import Stub, stub
from tests.gateway.running import World
from tidegate.cli.main import app

__all__ = ["stub"]

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "client.md").read_text()
README = (ROOT / "README.md").read_text()
URL = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world")).running() as found:
        found.append(100)
        yield found


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_subscription_examples_print_the_documented_output(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # an example writes a file
    names: dict[str, Any] = {}
    before, _ = TEXT.split("## Publishing")
    for block in blocks(before, "python"):
        exec(block.replace(URL, world.url), names)
    names["client"].close()
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "2026-01-01T00:00:00.000000Z gps_taxi:0:61 B1 61.0"
    assert told[-1] == "['B1', 'B2', 'B3']"
    assert (names["first"].id, names["second"].id) == ("gps_taxi:0:0", "gps_taxi:0:1")
    assert "['gps_taxi:0:96', 'gps_taxi:0:97', 'gps_taxi:0:98', 'gps_taxi:0:99']" in told


def test_publishing_example_sends_all_events_once(stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks(TEXT.split("## Publishing")[1], "python")[0].replace(URL, stub.url), {})
    assert capsys.readouterr().out == "1200 0 c200\n"


def test_client_example_of_the_readme_runs(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    code = next(block for block in blocks(README, "python") if "Client" in block)
    # What the README waits for from now on is here already.
    code = code.replace('"speeding", "over > 30"', '"gps", "speed > 30", since="beginning"').replace(
        '"over"', '"speed"'
    )
    exec(code.replace("Client()", f"Client({world.url!r})").rstrip() + "\n        break\n", {})
    assert capsys.readouterr().out == "B1 31.0\n"


def test_every_error_of_the_table_exists() -> None:
    names = re.findall(r"^\| `(\w+)` \|", TEXT.split("## Errors")[1], re.MULTILINE)
    tree = [getattr(tidegate.client, name) for name in names]
    assert len(tree) == 7
    assert all(issubclass(each, tidegate.client.ClientError) for each in tree)


@pytest.mark.parametrize("text", [TEXT, README], ids=["client.md", "README"])
def test_every_option_of_a_command_exists(text: str) -> None:
    group: Any = typer.main.get_command(app)
    for each in re.findall(r"tidegate (?:subscribe|services|publish) .*", "".join(blocks(text, "sh"))):
        words = shlex.split(each, comments=True)
        command = group.commands[words[1]]
        known = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, each
