"""`tidegate subscriptions` and `tidegate subscribe --subscription`, against a real gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.gateway.running import World
from tidegate.cli.commands import subscriptions
from tidegate.cli.main import app
from tidegate.client import ClientError, Refused


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world")).running() as running_world:
        running_world.append(20)
        yield running_world


def run(world: World, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--url", world.url])


def run_json(world: World, *words: str) -> Any:
    result = run(world, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_subscription_is_added_listed_changed_consumed_and_removed(world: World) -> None:
    added = run(world, "subscriptions", "add", "gps", "--filter", "speed > %0", "--param", "15", "--from", "beginning")
    id_ = added.stdout.strip()
    assert added.exit_code == 0, added.output
    assert id_.startswith("sub_")
    shown = run_json(world, "subscriptions", "show", id_)
    assert (shown["filter"], shown["params"]) == ("speed > %0", [15])
    assert id_ in [subscription["id"] for subscription in run_json(world, "subscriptions", "list")]
    listed = run(world, "subscriptions", "list", "gps").stdout
    assert id_ in listed
    assert "speed > %0" in listed
    consumed = run(world, "subscribe", "--subscription", id_, "--max", "2")
    assert [json.loads(line)["data"]["speed"] for line in consumed.stdout.splitlines()] == [16.0, 17.0]
    assert run_json(world, "subscriptions", "change", id_, "--param", "17")["params"] == [17]
    consumed = run(world, "subscribe", "--subscription", id_, "--max", "2")
    assert [json.loads(line)["data"]["speed"] for line in consumed.stdout.splitlines()] == [18.0, 19.0]
    changed = run_json(world, "subscriptions", "change", id_, "--filter", "speed > 1", "--every", "1s")
    assert (changed["filter"], changed["params"], changed["every"]) == ("speed > 1", [], "1s")
    assert "filter" in run(world, "subscriptions", "show", id_).stdout
    assert run(world, "subscriptions", "remove", id_).stdout == f"{id_} is removed\n"
    removed = run(world, "subscriptions", "show", id_)
    assert isinstance(removed.exception, Refused)
    assert id_ in str(removed.exception)


def test_aliases_and_options_before_the_command_are_accepted(world: World) -> None:
    id_ = run(world, "subscriptions", "create", "gps", "speed > 15").stdout.strip()
    assert run_json(world, "subscriptions", "show", id_)["filter"] == "speed > 15"
    assert id_ in run(world, "subscriptions").stdout
    assert id_ in [subscription["id"] for subscription in run_json(world, "subscriptions")]
    before = CliRunner().invoke(app, ["subscriptions", "--url", world.url, "--json", "show", id_])
    assert json.loads(before.stdout)["id"] == id_
    assert run(world, "subscriptions", "delete", id_).stdout == f"{id_} is removed\n"


def test_webhook_is_added_with_a_secret_and_lists_its_dead_letters(world: World) -> None:
    hook = ("--webhook", "http://127.0.0.1:9/in", "--no-handshake", "--batch", "7")
    added = run(world, "subscriptions", "add", "gps", *hook)
    assert "secret: whsec_" in added.stderr
    id_ = added.stdout.strip()
    assert "http://127.0.0.1:9/in" in run(world, "subscriptions", "list").stdout
    assert run_json(world, "subscriptions", "dead-letters", id_) == []
    assert run(world, "subscriptions", "dead-letters", id_).stdout == ""
    assert run(world, "subscriptions", "redeliver", id_).stdout == "0 delivered, 0 failed, 0 untried\n"
    assert run_json(world, "subscriptions", "enable", id_)["state"] == "active"
    assert run_json(world, "subscriptions", "change", id_, "--pull")["deliver"] == "pull"


def test_push_target_is_added_and_changed_as_json(world: World) -> None:
    target = {"webhook": {"url": "http://127.0.0.1:9/in", "handshake": False}}
    added = run(world, "subscriptions", "add", "gps", "--deliver", json.dumps(target))
    assert "secret: whsec_" in added.stderr
    id_ = added.stdout.strip()
    assert run_json(world, "subscriptions", "show", id_)["deliver"]["webhook"]["url"] == "http://127.0.0.1:9/in"
    changed = run_json(world, "subscriptions", "change", id_, "--deliver", '{"webhook": {"batch": 7}}')
    assert changed["deliver"]["webhook"]["batch"] == 7


def test_latest_and_every_deliver_the_newest_event_of_each_key(world: World) -> None:
    result = run(world, "subscribe", "gps", "--latest", "vid", "--max", "10", "--select", "vid")
    assert len({json.loads(line)["vid"] for line in result.stdout.splitlines()}) == 10
    result = run(world, "subscribe", "gps", "--from", "beginning", "--every", "50ms", "--max", "10")
    assert {json.loads(line)["speed"] for line in result.stdout.splitlines()} == set(range(10, 20))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["subscribe"], "expected a service, or --subscription"),
        (["subscribe", "gps", "--subscription", "s"], "expected only --latest with it"),
        (["subscribe", "--subscription", "s", "--format", "cloudevents"], "expected only --latest with it"),
        (["subscriptions", "change", "s"], "expected something to change"),
        (["subscriptions", "add", "gps", "speed > 1", "--filter", "speed > 2"], "expected one filter"),
        (["subscriptions", "add", "gps", "--every", "often"], "expected a length of time"),
        (["subscriptions", "add", "gps", "--deliver", "mqtt"], "--deliver: expected JSON such as"),
        (["subscriptions", "add", "gps", "--deliver", "[]"], "--deliver: expected JSON such as"),
        (["subscriptions", "change", "s", "--pull", "--deliver", "{}"], "expected one of --deliver, --webhook and"),
    ],
)
def test_invalid_options_are_refused_with_a_reason(world: World, words: list[str], problem: str) -> None:
    result = run(world, *words)
    assert result.exit_code == 2
    assert problem in " ".join(result.output.replace("│", " ").split())


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
