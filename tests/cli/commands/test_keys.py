"""`tidegate keys`, over a data folder and over a gateway."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from tests.gateway.running import World
from tidegate.cli.data_folder.home import Home
from tidegate.cli.main import app

runner = CliRunner()


def keys(data: Path, *args: str) -> str:
    result = runner.invoke(app, ["keys", *args, "--data", str(data)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_key_is_created_listed_and_revoked(tmp_path: Path) -> None:
    secret = keys(tmp_path, "create", "van 7", "--role", "provider", "--service", "gps", "--expires", "90d").strip()
    assert secret.startswith("tg_")
    (listed,) = json.loads(keys(tmp_path, "list", "--json"))
    assert (listed["name"], listed["role"], listed["services"]) == ("van 7", "provider", ["gps"])
    assert listed["state"] == "good"
    assert secret.startswith(f"tg_{listed['prefix']}_")
    assert secret not in keys(tmp_path, "list")
    assert keys(tmp_path, "revoke", listed["id"]) == f"van 7 ({listed['id']}) is revoked\n"
    (listed,) = json.loads(keys(tmp_path, "list", "--json"))
    assert "was revoked at" in listed["state"]


def test_list_prints_whole_ids(tmp_path: Path) -> None:
    keys(tmp_path, "create", "van 7", "--role", "provider", "--service", "gps", "--expires", "1ms")
    (listed,) = json.loads(keys(tmp_path, "list", "--json"))
    shown = keys(tmp_path, "list").splitlines()[1].split("  ")
    assert [listed["id"], "van 7", "provider", "gps"] == [cell for cell in shown if cell][:4]
    assert "the key 'van 7' expired at" in shown[-2]


def test_create_prints_the_secret_as_json(tmp_path: Path) -> None:
    created = json.loads(keys(tmp_path, "create", "me", "--json"))
    assert created["secret"].startswith("tg_")
    assert created["role"] == "consumer"


def test_create_takes_quotas_and_refuses_unknown_ones(tmp_path: Path) -> None:
    created = json.loads(keys(tmp_path, "create", "me", "--quota", "connections=3", "--quota", "events=0.5", "--json"))
    assert created["quotas"] == {"connections": 3, "events": 0.5}
    (listed,) = json.loads(keys(tmp_path, "list", "--json"))
    assert listed["quotas"] == created["quotas"]
    result = runner.invoke(app, ["keys", "create", "me", "--data", str(tmp_path), "--quota", "conections=3"])
    assert str(result.exception) == (
        "--quota conections=3: 'conections' is no quota; "
        "expected one of connections, subscriptions, durable, events, deliveries, requests, filter_bytes"
    )
    result = runner.invoke(app, ["keys", "create", "me", "--data", str(tmp_path), "--quota", "durable"])
    assert str(result.exception) == "--quota durable: expected a whole number above 0, not ''"


def test_rotated_key_has_two_secrets_during_the_overlap(tmp_path: Path) -> None:
    created = json.loads(keys(tmp_path, "create", "van 7", "--json"))
    new = keys(tmp_path, "rotate", created["id"], "--overlap", "1h").strip()
    registry = Home(tmp_path).registry()
    try:
        assert [registry.find_key(secret) is not None for secret in (created["secret"], new)] == [True, True]
        last = json.loads(keys(tmp_path, "rotate", created["id"], "--overlap", "0s", "--expires", "30d", "--json"))
        assert [registry.find_key(secret) is not None for secret in (created["secret"], new)] == [False, False]
        assert registry.find_key(last["secret"]) is not None
        assert last["expires_at"] is not None
    finally:
        registry.close()
    refused = runner.invoke(app, ["keys", "rotate", "key_none", "--data", str(tmp_path)])
    assert str(refused.exception) == "there is no key 'key_none'"
    refused = runner.invoke(app, ["keys", "rotate", created["id"], "--overlap", "100d", "--data", str(tmp_path)])
    assert str(refused.exception) == "expected an overlap of 0 to 90 days, not 8.64e+06 s"


def test_keys_of_a_gateway_are_managed_with_a_url(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.needs_keys = True
    _, secret = world.registry.create_key("root", "admin")

    def run(*args: str) -> str:
        result = runner.invoke(app, ["keys", *args, "--url", world.url, "--key", secret])
        assert result.exit_code == 0, result.output
        return result.stdout

    with world.running():
        quota = ("--quota", "connections=3", "--expires", "90d", "--service", "gps")
        created = json.loads(run("create", "van 7", "--role", "provider", *quota, "--json"))
        assert (created["services"], created["quotas"]) == (["gps"], {"connections": 3})
        assert run("rotate", created["id"], "--overlap", "2m").startswith("tg_")
        assert "never" in run("list")
        assert [key["name"] for key in json.loads(run("list", "--json"))] == ["root", "van 7"]
        assert run("revoke", created["id"]) == f"van 7 ({created['id']}) is revoked\n"
        assert world.registry.keys()[created["id"]].revoked_at is not None


def test_changes_without_a_gateway_are_audited(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "services.yaml"
    file.write_text("streams: {gps: {schema: {vid: string}}}")
    created = json.loads(keys(data, "create", "van 7", "--json"))
    new = keys(data, "rotate", created["id"]).strip()
    keys(data, "revoke", created["id"])
    for _ in range(2):  # the second time nothing changes
        assert runner.invoke(app, ["apply", str(file), "--data", str(data)]).exit_code == 0
    log = Home(data).log()
    try:
        records = [json.loads(record) for record in log.read("_audit", log.begin("_audit")).records]
    finally:
        log.close()
    assert [(record["action"], record["target"], record["address"]) for record in records] == [
        ("key.create", created["id"], "local"),
        ("key.rotate", created["id"], "local"),
        ("key.revoke", created["id"], "local"),
        ("definitions.apply", None, "local"),
    ]
    assert records[0]["caller"].startswith("os:")
    assert records[3]["detail"] == "added gps v1"
    assert not [secret for secret in (created["secret"], new) if secret in json.dumps(records)]


def test_audit_log_that_can_not_be_written_does_not_stop_a_command(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("no folder")
    result = runner.invoke(app, ["keys", "create", "van 7", "--data", str(tmp_path)])
    assert result.exit_code == 0
    assert result.stdout.startswith("tg_")
    assert "can't write the audit log" in result.stderr
