"""A copy of the registry's database does not show what webhooks and links are signed with."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.gateway.receiver import Receiver
from tests.pipelines.running import until
from tests.security import processes
from tidegate.cli.data_folder.home import Home
from tidegate.cli.profile import load_profile
from tidegate.errors import EnvironmentProblem, RegistryError
from tidegate.registry import PostgresRegistry, SqliteRegistry, open_registry
from tidegate.registry.secrets import Keyring, SecretKey
from tidegate.services import loads
from tidegate.subscriptions import SubscriptionRecord, Webhook

SERVICES = """
streams: {gps_taxi: {schema: {vid: string}, key: vid}}
services: {gps: {from: gps_taxi}}
"""
LINK = "what-both-ends-of-it-know-alone"
HOOK = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
KEY, OTHER = "k" * 44, "o" * 44


def keyring(*keys: str) -> Keyring:
    return Keyring(tuple(map(SecretKey, keys)), "city.yaml: secrets.key")


def fill(registry: SqliteRegistry | PostgresRegistry) -> None:
    registry.apply(loads(SERVICES))
    registry.add_link("city", None, LINK)
    registry.subscribe(SubscriptionRecord("sub_1", "gps", deliver=Webhook("https://example.com/in", (HOOK,))), None)


def stored(folder: Path) -> bytes:
    """Return all bytes of a registry's files."""
    return b"".join(path.read_bytes() for path in folder.glob("registry.sqlite*"))


def secrets_of(registry: SqliteRegistry | PostgresRegistry) -> tuple[str, tuple[str, ...]]:
    deliver = registry.subscription("sub_1").subscription.deliver
    assert isinstance(deliver, Webhook)
    return registry.links()["city"].secret, deliver.secrets


def test_database_of_a_gateway_shows_no_secret(tmp_path: Path) -> None:
    data = tmp_path / "data"
    services = tmp_path / "services.yaml"
    services.write_text(SERVICES)
    assert processes.tidegate("apply", services, data=data).returncode == 0
    with (
        processes.gateway(data, "--broker", "here", "--allow-private-webhooks") as running,
        running.client() as http,
        Receiver().running() as receiver,
    ):
        link = http.post("/v1/links", json={"name": "city"}).json()["secret"]
        hook = {"deliver": {"webhook": {"url": receiver.url}}}
        created = http.post("/v1/services/gps/subscriptions", json=hook).json()
        secret = created["deliver"]["webhook"]["secret"]
        rotated = http.post(f"/v1/subscriptions/{created['id']}/secret").json()["secret"]
        found = stored(data)
        for each in (link, secret, rotated):
            assert len(each) > 20
            assert each.encode() not in found
        for path in ("/v1/links", "/v1/links/city", "/v1/subscriptions", f"/v1/subscriptions/{created['id']}"):
            shown = http.get(path).text
            assert not [each for each in (link, secret, rotated) if each in shown], path
    assert (data / "secrets.key").stat().st_mode & 0o777 == 0o600
    registry = Home(data).registry()
    assert registry.links()["city"].secret == link
    registry.close()


def test_secrets_of_an_older_registry_are_encrypted_when_it_is_opened(tmp_path: Path) -> None:
    plain = SqliteRegistry(tmp_path / "registry.sqlite")
    fill(plain)
    plain.unsubscribe(
        plain.subscribe(
            SubscriptionRecord("s", "gps", deliver=Webhook("https://a/", ("whsec_old",))), None
        ).subscription.id
    )
    assert plain.has_plain_secrets
    plain.close()
    assert LINK.encode() in stored(tmp_path)
    sealed = SqliteRegistry(tmp_path / "registry.sqlite", keyring=keyring(KEY))
    assert secrets_of(sealed) == (LINK, (HOOK,))
    assert not sealed.has_plain_secrets
    for each in (LINK, HOOK, "whsec_old"):
        assert each.encode() not in stored(tmp_path), "the file still holds what it was encrypted for"
    sealed.close()


def test_unchanged_record_is_no_change_despite_new_encryption(tmp_path: Path) -> None:
    registry = SqliteRegistry(tmp_path / "registry.sqlite", keyring=keyring(KEY))
    fill(registry)
    before = registry.subscription("sub_1")
    assert registry.change_subscription(before.subscription).version == before.version
    registry.close()


def test_rotation_encrypts_all_with_the_new_key(tmp_path: Path) -> None:
    path = tmp_path / "registry.sqlite"
    old = SqliteRegistry(path, keyring=keyring(KEY))
    fill(old)
    both = SqliteRegistry(path, keyring=keyring(OTHER, KEY))
    assert secrets_of(both) == (LINK, (HOOK,))
    both.add_link("port", None, LINK)  # with the old key: a gateway that has only that one must read it
    assert old.links()["port"].secret == LINK
    assert both.reseal() == 3
    with pytest.raises(RegistryError, match=f"encrypted with the key {SecretKey(OTHER).id}"):
        old.links()
    with pytest.raises(RegistryError, match="nothing was changed"):
        old.add_link("rail", None, LINK)
    old.close()
    both.close()
    new = SqliteRegistry(path, keyring=keyring(OTHER))
    assert secrets_of(new) == (LINK, (HOOK,))
    new.close()


@pytest.mark.parametrize("given", [keyring(OTHER), None])
def test_wrong_key_is_reported_at_start_and_loses_nothing(tmp_path: Path, given: Keyring | None) -> None:
    path = tmp_path / "registry.sqlite"
    right = SqliteRegistry(path, keyring=keyring(KEY))
    fill(right)
    right.close()
    with pytest.raises(RegistryError, match=rf"encrypted with the key {SecretKey(KEY).id}.*secrets"):
        SqliteRegistry(path, keyring=given)
    again = SqliteRegistry(path, keyring=keyring(KEY))
    assert secrets_of(again) == (LINK, (HOOK,))
    again.close()


def test_ciphertext_of_another_row_does_not_open(tmp_path: Path) -> None:
    path = tmp_path / "registry.sqlite"
    registry = SqliteRegistry(path, keyring=keyring(KEY))
    registry.add_link("city", None, LINK)
    registry.add_link("mine", None, "a-secret-that-the-attacker-knows")
    registry.close()
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE links SET secret = (SELECT secret FROM links WHERE name = 'mine') WHERE name = 'city'"
        )
    connection.close()
    registry = SqliteRegistry(path, keyring=keyring(KEY))
    with pytest.raises(RegistryError, match="moved from another row"):
        registry.links()
    registry.close()


def test_secret_that_looks_encrypted_is_refused(tmp_path: Path) -> None:
    registry = SqliteRegistry(tmp_path / "registry.sqlite")
    with pytest.raises(RegistryError, match="does not begin with 'sealed:1:'"):
        registry.add_link("city", None, "sealed:1:0123456789abcdef:AAAA")
    with pytest.raises(RegistryError, match="no key to encrypt secrets with"):
        registry.reseal()
    registry.close()


def test_profile_names_the_key_and_commands_rotate_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    registry = Home(data).registry()  # with the folder's own key
    fill(registry)
    registry.close()
    (tmp_path / "new.key").write_text(KEY + "\n")
    profile = processes.write_profile(tmp_path, secrets={"key": "file:new.key"})
    rotated = processes.tidegate("secrets", "rotate", "--profile", profile, data=data)
    assert rotated.returncode == 0, rotated.stderr
    assert rotated.stdout.startswith("2 secrets encrypted with the current key")
    (data / "secrets.key").unlink()
    registry = open_registry(data / "registry.sqlite", keyring=keyring(KEY))
    assert secrets_of(registry) == (LINK, (HOOK,))
    registry.close()
    monkeypatch.setenv("CITY_SECRETS", OTHER)
    profile = processes.write_profile(tmp_path, secrets={"key": "env:CITY_SECRETS", "previous": ["file:new.key"]})
    assert processes.tidegate("secrets", "rotate", "--profile", profile, data=data).returncode == 0
    profile = processes.write_profile(tmp_path, secrets={"key": "file:new.key"})
    refused = processes.tidegate("keys", "list", "--profile", profile, data=data)
    assert refused.returncode == 2
    assert "secrets.previous" in refused.stderr
    assert KEY not in refused.stderr


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ("my-own-secret-key-in-the-profile", "expected {key: 'file:PATH' or 'env:NAME'"),
        ({"key": "my-own-secret-key-in-the-profile"}, "expected a reference to a secret"),
        ({"key": "env:K", "previous": "env:L"}, "secrets.previous: expected a list"),
        ({"previous": []}, "expected {key:"),
    ],
)
def test_bad_secrets_in_a_profile_are_reported_without_their_values(tmp_path: Path, secrets: object, said: str) -> None:
    profile = processes.write_profile(tmp_path, secrets=secrets)
    with pytest.raises(EnvironmentProblem) as refused:
        load_profile(str(profile))
    assert said in str(refused.value)
    assert "my-own-secret" not in str(refused.value)


def test_short_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short.key").write_text("short")
    profile = processes.write_profile(tmp_path, secrets={"key": "file:short.key"})
    with pytest.raises(EnvironmentProblem, match=r"at least 32 characters.*openssl rand -base64 32"):
        Home(tmp_path / "data", load_profile(str(profile))).registry()


def test_copied_database_without_its_key_opens_nowhere_else(tmp_path: Path) -> None:
    registry = Home(tmp_path / "data").registry()
    fill(registry)
    registry.close()
    shutil.copytree(tmp_path / "data", tmp_path / "copy", ignore=shutil.ignore_patterns("secrets.key"))
    refused = processes.tidegate("keys", "list", data=tmp_path / "copy")
    assert refused.returncode == 2
    assert "the registry's secrets are encrypted with the key" in refused.stderr
    shown = processes.tidegate("keys", "list", "--json", data=tmp_path / "data")
    assert json.loads(shown.stdout) == []


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
def test_shared_database_without_a_key_warns_and_works(tmp_path: Path, postgres: str) -> None:
    from tests.registry import stores

    place = stores.new_schema(postgres)
    registry = open_registry(place)
    registry.add_link("city", None, LINK)
    registry.close()
    profile = processes.write_profile(tmp_path, registry=place, access={"required": False})
    with processes.gateway(tmp_path / "data", "--profile", profile) as running:
        until(lambda: "secrets of webhooks and links are not encrypted" in running.output.read_text(), "the warning")
    (tmp_path / "db.key").write_text(KEY)
    profile = processes.write_profile(
        tmp_path, registry=place, access={"required": False}, secrets={"key": "file:db.key"}
    )
    with processes.gateway(tmp_path / "data", "--profile", profile) as running:
        assert "not encrypted" not in running.output.read_text()
    registry = open_registry(place, keyring=keyring(KEY))
    assert registry.links()["city"].secret == LINK
    registry.close()
    with pytest.raises(RegistryError, match="profile names none"):
        open_registry(place)
