"""API keys in a registry."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.registry.conftest import MakeRegistry
from tests.registry.test_migrations import connected
from tidegate import NotRegistered, RegistryError
from tidegate.registry import Registry

SOON = datetime(2026, 1, 1, tzinfo=UTC)


def test_key_is_found_by_its_secret(registry: Registry, make: MakeRegistry) -> None:
    key, secret = registry.create_key("ann's laptop", "consumer", ["gps", "cars", "gps"], SOON)
    assert re.fullmatch(rf"tg_{key.prefix}_[-\w]{{43}}", secret, re.ASCII)
    assert re.fullmatch("[a-z0-9]{8}", key.prefix)
    assert (key.name, key.role, key.services) == ("ann's laptop", "consumer", ("cars", "gps"))
    assert (key.created_at.timestamp(), key.expires_at, key.revoked_at) == (1, SOON, None)
    assert make().find_key(secret) == key
    assert registry.keys() == {key.id: key}


def test_key_can_be_for_all_services_or_for_none(registry: Registry) -> None:
    assert registry.create_key("a", "admin")[0].services is None
    assert registry.create_key("b", "provider", ())[0].services == ()


def test_keys_of_the_same_name_have_different_ids_and_secrets(registry: Registry) -> None:
    created = [registry.create_key("same", "admin") for _ in range(5)]
    assert len({secret for _, secret in created}) == len({key.id for key, _ in created}) == 5
    assert [registry.find_key(secret) for _, secret in created] == [key for key, _ in created]
    assert list(registry.keys().values()) == [key for key, _ in created]


def test_wrong_secret_finds_no_key(registry: Registry) -> None:
    key, secret = registry.create_key("a", "admin")
    other = "y" if secret[-1] == "x" else "x"
    assert registry.find_key(secret[:-1] + other) is None
    for text in ("", "tg", "tg_", f"tg_{key.prefix}", f"tg_{key.prefix}_", key.id, f"x{secret}", f"{secret}\0", "tg_ä"):
        assert registry.find_key(text) is None
    for text in (f"tg_{key.prefix}_\udc80\0", "tg_\0\0\0\0\0\0\0\0_x"):
        assert registry.find_key(text) is None


def test_keys_with_the_same_prefix_are_distinguished(registry: Registry, where: str) -> None:
    created = [registry.create_key(name, "admin") for name in "ab"]
    prefix = created[0][0].prefix
    with connected(where) as connection:
        connection.exec_driver_sql(f"UPDATE keys SET prefix = '{prefix}'")
    assert registry.find_key(created[0][1]) == created[0][0]


def test_secret_is_not_stored_in_the_database(registry: Registry, where: str) -> None:
    _, secret = registry.create_key("a", "admin")
    with connected(where) as connection:
        row: Any = connection.exec_driver_sql("SELECT * FROM keys").one()
    _, prefix, hidden = secret.split("_", 2)  # what is hidden may have such a stroke itself
    assert prefix in repr(row)
    assert hidden not in repr(row)
    assert secret.encode() not in [bytes(value) for value in row if isinstance(value, bytes | memoryview)]


def test_revoked_key_reports_its_problem(registry: Registry) -> None:
    key, secret = registry.create_key("ann's", "consumer")
    assert key.problem(SOON) is None
    revoked = registry.revoke_key(key.id)
    assert revoked == registry.find_key(secret) == replace(key, revoked_at=datetime.fromtimestamp(2, UTC))
    assert revoked.problem(SOON) == 'the key "ann\'s" was revoked at 1970-01-01T00:00:02+00:00'


def test_expired_key_reports_its_problem(registry: Registry) -> None:
    key, secret = registry.create_key("a", "consumer", expires_at=SOON)
    found = registry.find_key(secret)
    assert found == key
    assert key.problem(SOON - timedelta(microseconds=1)) is None
    assert key.problem(SOON) == "the key 'a' expired at 2026-01-01T00:00:00+00:00"


def test_creating_and_revoking_a_key_increment_the_revision(registry: Registry) -> None:
    key, _ = registry.create_key("a", "consumer")
    assert registry.subscriptions_revision() == 1
    revoked = registry.revoke_key(key.id)
    assert registry.subscriptions_revision() == 2
    assert registry.revoke_key(key.id) == revoked
    assert (registry.subscriptions_revision(), registry.revision()) == (2, 0)


def test_bad_arguments_of_a_key_are_refused(registry: Registry) -> None:
    key, _ = registry.create_key("a", "consumer")
    role: Any = "king"
    with pytest.raises(RegistryError, match=r"^unknown role 'king': expected consumer, publisher, provider, admin$"):
        registry.create_key("a", role)
    with pytest.raises(RegistryError, match=r"^expected the names of services, got the text 'gps'$"):
        registry.create_key("a", "admin", "gps")
    with pytest.raises(NotRegistered) as caught:
        registry.revoke_key(key.id[:-1])
    assert str(caught.value) == f"there is no key {key.id[:-1]!r}"
    assert registry.subscriptions_revision() == 1


def test_key_stores_its_own_quotas(registry: Registry) -> None:
    key, secret = registry.create_key("mine", "consumer", quotas={"events": 0.5, "connections": 3})
    assert dict(key.quotas) == {"connections": 3, "events": 0.5}
    assert registry.find_key(secret) == registry.keys()[key.id] == key
    assert not registry.create_key("other", "consumer")[0].quotas
