"""The registry in PostgreSQL: connections, clock, locks and URLs. `conftest` runs all other tests with it, too."""

from __future__ import annotations

import sys
import traceback
from datetime import UTC, timedelta
from pathlib import Path

import psycopg
import pytest

from tests.postgres_server import PASSWORD, PASSWORD_IN_URL
from tests.registry.stores import new_schema
from tests.registry.test_definitions import CITY
from tidegate import MissingDependency, RegistryError
from tidegate.registry import PostgresRegistry, SqliteRegistry, open_registry


class TestServer:
    pytestmark = pytest.mark.postgres

    def test_definitions_survive_closing(self, postgres: str) -> None:
        where = new_schema(postgres)
        first = open_registry(where)
        assert isinstance(first, PostgresRegistry)
        first.apply(CITY)
        first.close()
        second = PostgresRegistry(where.replace("postgresql:", "postgres:"))
        assert second.definitions() == CITY
        second.close()

    def test_registry_reconnects_after_the_server_closed_its_connections(self, postgres: str) -> None:
        registry = PostgresRegistry(new_schema(postgres))
        registry.apply(CITY)
        with psycopg.connect(postgres, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert registry.definitions() == CITY
        registry.close()

    def test_leases_use_the_clock_of_the_server(self, postgres: str) -> None:
        registry = PostgresRegistry(new_schema(postgres))
        with psycopg.connect(postgres) as other:
            row = other.execute("SELECT now()").fetchone()
        assert row is not None
        assert registry.lease("work", "me", 3600)
        assert not registry.lease("work", "other", 3600)
        left = registry.leases()["work"].until - row[0].astimezone(UTC)
        assert timedelta(minutes=59) < left < timedelta(minutes=61)
        registry.close()

    def test_stricter_default_isolation_of_the_database_has_no_effect(self, postgres: str) -> None:
        where = new_schema(postgres)
        registry = PostgresRegistry(f"{where}%20-cdefault_transaction_isolation%3Dserializable")
        registry.apply(CITY)
        assert registry.definitions() == CITY
        registry.close()

    def test_change_that_waits_for_a_lock_times_out(self, postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
        where = new_schema(postgres)
        PostgresRegistry(where).close()
        monkeypatch.setattr("tidegate.registry.postgres.LOCK_TIMEOUT_S", 0.02)
        registry = PostgresRegistry(where)
        with psycopg.connect(where) as other:
            other.execute("UPDATE revisions SET revision = 7")
            with pytest.raises(RegistryError, match=r"can't use the registry .*: canceling .* due to lock timeout"):
                registry.apply(CITY)
        assert registry.apply(CITY)
        assert registry.revision() == 8
        registry.close()

    def test_wrong_password_is_not_shown(self, postgres: str) -> None:
        url = postgres.replace(PASSWORD_IN_URL, "wrong-secret")
        with pytest.raises(RegistryError) as caught:
            PostgresRegistry(url)
        address = postgres.rpartition("@")[2].partition("/")[0]
        assert f"can't use the registry 'postgres' of PostgreSQL at {address}: " in str(caught.value)
        assert "password authentication failed" in str(caught.value)
        shown = "".join(traceback.format_exception(caught.value))
        assert "wrong-secret" not in shown
        assert PASSWORD not in shown

    def test_role_without_the_right_to_create_tables_is_refused(self, postgres: str) -> None:
        where = new_schema(postgres)
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute("CREATE ROLE poor LOGIN PASSWORD 'poor'")
        with pytest.raises(RegistryError, match=r"expected a registry 'postgres' of PostgreSQL at .*: "):
            PostgresRegistry(where.replace(f"tidegate:{PASSWORD_IN_URL}@", "poor:poor@"))


def test_unreachable_server_is_reported_without_the_password() -> None:
    url = "postgresql://me:hush-hush@127.0.0.1:1/city"
    with pytest.raises(RegistryError) as caught:
        open_registry(url)
    assert str(caught.value).startswith("can't use the registry 'city' of PostgreSQL at 127.0.0.1:1: ")
    assert "hush-hush" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("url", ["postgresql://me:hush/hush@host:x/city", "postgresql:/hush"])
def test_invalid_url_is_not_shown(url: str) -> None:
    with pytest.raises(RegistryError, match=r"^expected postgresql://user:password@host:port/database") as caught:
        PostgresRegistry(url)
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_missing_driver_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependency, match=r"^psycopg is not installed: pip install 'tidegate\[postgres\]'$"):
        open_registry("postgresql://host/city")


def test_path_opens_a_sqlite_file(tmp_path: Path) -> None:
    for where in (tmp_path / "a.db", str(tmp_path / "a.db")):
        registry = open_registry(where)
        assert isinstance(registry, SqliteRegistry)
        registry.close()


def test_other_databases_are_refused() -> None:
    with pytest.raises(RegistryError) as caught:
        open_registry("mysql://me:hush@host/city")
    assert str(caught.value) == "a registry can't be at mysql://: expected postgresql:// or the path of a file"
