"""`tidegate subscriptions` and `tidegate subscribe --subscription`, against a real gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.gateway.running import World
from tidegate.cli import subscriptions
from tidegate.cli.main import app
from tidegate.client import ClientError, Refused


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world")).running() as found:
        found.append(20)
        yield found


def run(world: World, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--url", world.url])


def said(world: World, *words: str) -> Any:
    found = run(world, *words, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_made_listed_changed_consumed_and_removed(world: World) -> None:
    made = run(world, "subscriptions", "add", "gps", "--filter", "speed > %0", "--param", "15", "--from", "beginning")
    id_ = made.stdout.strip()
    assert made.exit_code == 0, made.output
    assert id_.startswith("sub_")
    found = said(world, "subscriptions", "show", id_)
    assert (found["filter"], found["params"]) == ("speed > %0", [15])
    assert id_ in [each["id"] for each in said(world, "subscriptions", "list")]
    listed = run(world, "subscriptions", "list", "gps").stdout
    assert id_ in listed
    assert "speed > %0" in listed
    consumed = run(world, "subscribe", "--subscription", id_, "--max", "2")
    assert [json.loads(line)["data"]["speed"] for line in consumed.stdout.splitlines()] == [16.0, 17.0]
    assert said(world, "subscriptions", "change", id_, "--param", "17")["params"] == [17]
    consumed = run(world, "subscribe", "--subscription", id_, "--max", "2")
    assert [json.loads(line)["data"]["speed"] for line in consumed.stdout.splitlines()] == [18.0, 19.0]
    changed = said(world, "subscriptions", "change", id_, "--filter", "speed > 1", "--every", "1s")
    assert (changed["filter"], changed["params"], changed["every"]) == ("speed > 1", [], "1s")
    assert "filter" in run(world, "subscriptions", "show", id_).stdout
    assert run(world, "subscriptions", "remove", id_).stdout == f"{id_} is gone\n"
    gone = run(world, "subscriptions", "show", id_)
    assert isinstance(gone.exception, Refused)
    assert id_ in str(gone.exception)


def test_other_words_for_the_same(world: World) -> None:
    id_ = run(world, "subscriptions", "create", "gps", "speed > 15").stdout.strip()
    assert said(world, "subscriptions", "show", id_)["filter"] == "speed > 15"
    assert id_ in run(world, "subscriptions").stdout
    assert id_ in [each["id"] for each in said(world, "subscriptions")]
    before = CliRunner().invoke(app, ["subscriptions", "--url", world.url, "--json", "show", id_])
    assert json.loads(before.stdout)["id"] == id_
    assert run(world, "subscriptions", "delete", id_).stdout == f"{id_} is gone\n"


def test_a_webhook_with_its_secret_and_its_dead_letters(world: World) -> None:
    hook = ("--webhook", "http://127.0.0.1:9/in", "--no-handshake", "--batch", "7")
    made = run(world, "subscriptions", "add", "gps", *hook)
    assert "secret: whsec_" in made.stderr
    id_ = made.stdout.strip()
    assert "http://127.0.0.1:9/in" in run(world, "subscriptions", "list").stdout
    assert said(world, "subscriptions", "dead-letters", id_) == []
    assert run(world, "subscriptions", "dead-letters", id_).stdout == ""
    assert run(world, "subscriptions", "redeliver", id_).stdout == "0 delivered, 0 failed, 0 untried\n"
    assert said(world, "subscriptions", "enable", id_)["state"] == "active"
    assert said(world, "subscriptions", "change", id_, "--pull")["deliver"] == "pull"


def test_the_newest_of_each(world: World) -> None:
    found = run(world, "subscribe", "gps", "--latest", "vid", "--max", "10", "--select", "vid")
    assert len({json.loads(line)["vid"] for line in found.stdout.splitlines()}) == 10
    found = run(world, "subscribe", "gps", "--from", "beginning", "--every", "50ms", "--max", "10")
    assert {json.loads(line)["speed"] for line in found.stdout.splitlines()} == set(range(10, 20))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["subscribe"], "expected a service, or --subscription"),
        (["subscribe", "gps", "--subscription", "s"], "expected just --latest beside it"),
        (["subscriptions", "change", "s"], "expected something to change"),
        (["subscriptions", "add", "gps", "speed > 1", "--filter", "speed > 2"], "expected one filter"),
        (["subscriptions", "add", "gps", "--every", "often"], "expected a length of time"),
    ],
)
def test_what_can_not_be_asked_for(world: World, words: list[str], problem: str) -> None:
    found = run(world, *words)
    assert found.exit_code == 2
    assert problem in " ".join(found.output.replace("│", " ").split())


TLS_COMMANDS = {
    "list": (),
    "show": ("sub_1",),
    "add": ("gps",),
    "change": ("sub_1", "--param", "3"),
    "remove": ("sub_1",),
    "enable": ("sub_1",),
    "renew": ("sub_1",),
    "adopt": ("sub_1",),
    "dead-letters": ("sub_1",),
    "redeliver": ("sub_1",),
}


def test_tls_commands_are_all_commands() -> None:
    visible = {command.name for command in subscriptions.app.registered_commands if not command.hidden}
    assert visible == TLS_COMMANDS.keys()


@pytest.mark.parametrize("command", TLS_COMMANDS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ca", "missing.pem"), "can't read the authorities in 'missing.pem'"),
        (("--cert", "missing.pem"), "can't read 'missing.pem'"),
    ],
)
def test_every_command_uses_the_tls_options(command: str, options: tuple[str, ...], message: str) -> None:
    # The files are read before the first connection, so no gateway is needed.
    words = ["subscriptions", command, *TLS_COMMANDS[command], "--url", "https://127.0.0.1:9", *options]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, ClientError), result.output
    assert message in str(result.exception)
