"""Tables of a registry that are created, migrated or refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tests.registry.conftest import MakeStore
from tests.registry.test_definitions import CITY
from tidegate import RegistryError
from tidegate.registry import migrations, open_registry
from tidegate.registry.migrate import oldest_format
from tidegate.registry.tables import FORMAT, METADATA
from tidegate.services import Definitions, loads, to_dict
from tidegate.subscriptions import SubscriptionRecord

OLD_TABLES = """
CREATE TABLE definitions (
    name VARCHAR(64) NOT NULL, kind VARCHAR(8) NOT NULL, version INTEGER NOT NULL, document TEXT NOT NULL,
    changed_at BIGINT NOT NULL, forced BOOLEAN NOT NULL, backfill BOOLEAN NOT NULL, PRIMARY KEY (name)
);
CREATE TABLE history (
    name VARCHAR(64) NOT NULL, version INTEGER NOT NULL, kind VARCHAR(8) NOT NULL, document TEXT,
    changed_at BIGINT NOT NULL, forced BOOLEAN NOT NULL, backfill BOOLEAN NOT NULL, PRIMARY KEY (name, version)
);
CREATE TABLE revisions (id INTEGER NOT NULL, revision BIGINT NOT NULL, format INTEGER NOT NULL, PRIMARY KEY (id));
"""
"""The tables of format 1, before migrations existed."""


@contextmanager
def connected(where: str) -> Iterator[sa.Connection]:
    if "://" in where:
        engine = sa.create_engine(where.replace("postgresql:", "postgresql+psycopg:"))
    else:
        Path(where).parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(f"sqlite:///{where}")
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def make_old(where: str, tables: str = OLD_TABLES) -> None:
    with connected(where) as connection:
        for statement in tables.strip().strip(";").split(";"):
            connection.exec_driver_sql(statement)


def fill_old(where: str) -> None:
    rows = [
        {"n": definition.name, "k": kind, "d": json.dumps(to_dict(definition)), "f": kind == "service"}
        for kind, definitions in (("stream", CITY.streams), ("service", CITY.services))
        for definition in definitions.values()
    ]
    with connected(where) as connection:
        for table in ("definitions", "history"):
            text = f"INSERT INTO {table} (name, kind, version, document, changed_at, forced, backfill)"
            connection.execute(sa.text(f"{text} VALUES (:n, :k, 3, :d, 5000000, :f, :f)"), rows)
        connection.exec_driver_sql("INSERT INTO revisions (id, revision, format) VALUES (1, 7, 1)")


def test_old_registry_is_migrated_with_its_data(where: str) -> None:
    make_old(where)
    fill_old(where)
    registry = open_registry(where)
    assert to_dict(registry.definitions()) == to_dict(CITY)
    origins = {service.origin for service in registry.definitions().services.values()}
    assert origins == {"remote"}, "format 1 stores no origin, so nothing is trusted"
    assert (registry.revision(), registry.subscriptions_revision()) == (7, 0)
    fast = registry.service("fast")
    assert (fast.version, fast.forced, fast.backfill, fast.changed_at.timestamp()) == (3, True, True, 5)
    assert [past.version for past in registry.history("fast")] == [3]
    changes = registry.apply(loads("services: {fast: {from: gps, pipeline: [{filter: speed > 90}]}}"))
    assert changes.changed == {"fast": 4}
    assert registry.subscribe(SubscriptionRecord("s", "fast"), None).version == 1
    registry.close()
    again = open_registry(where)
    assert (again.revision(), again.subscriptions_revision()) == (8, 1)
    again.close()


@pytest.mark.parametrize("part", [1, 2, 3])
def test_partly_created_registry_is_completed(where: str, part: int) -> None:
    make_old(where, ";".join(OLD_TABLES.split(";")[:part]))
    registry = open_registry(where)
    assert (registry.definitions(), registry.revision()) == (Definitions(), 0)
    assert registry.apply(CITY)
    registry.close()


def test_migrations_create_the_current_tables(where: str) -> None:
    open_registry(where).close()
    with connected(where) as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, METADATA) == []
        assert context.get_current_revision() == f"{FORMAT:04}"


def test_format_is_the_number_of_the_last_migration() -> None:
    steps = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert steps.get_current_head() == f"{FORMAT:04}"


def test_registry_of_a_newer_format_is_refused(where: str) -> None:
    open_registry(where).close()
    with connected(where) as connection:
        connection.exec_driver_sql("UPDATE revisions SET format = 99")
    with pytest.raises(
        RegistryError,
        match=rf"^the registry has format 99, but this version of Tidegate supports formats up to {FORMAT}; ",
    ):
        open_registry(where)


def test_registry_of_the_next_format_is_used_if_its_migration_allows_it(where: str) -> None:
    registry = open_registry(where)
    registry.apply(CITY)
    registry.close()
    with connected(where) as connection:  # as a migration of the next version would leave it
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{FORMAT + 1:04}'")
        connection.exec_driver_sql("ALTER TABLE leases ADD COLUMN comment VARCHAR(8)")
    registry = open_registry(where)
    assert to_dict(registry.definitions()) == to_dict(CITY)
    assert registry.lease("runner", "me", 5.0)
    registry.close()
    with connected(where) as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == f"{FORMAT + 1:04}"
        connection.exec_driver_sql(f"UPDATE revisions SET format = {FORMAT + 1}")
    with pytest.raises(RegistryError, match=rf"^the registry has format {FORMAT + 1}, but .* up to {FORMAT}; "):
        open_registry(where)


def test_each_migration_lets_the_previous_version_in() -> None:
    """Otherwise a registry can't be shared during a rolling upgrade; an exception needs an upgrade note."""
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent)).walk_revisions()
    new = [script for script in scripts if int(script.revision) > 9]
    assert {script.revision for script in new if oldest_format(script.module) >= int(script.revision)} == set()


def test_failed_migration_leaves_no_trace(where: str) -> None:
    make_old(where)
    fill_old(where)
    with connected(where) as connection:
        connection.exec_driver_sql("CREATE TABLE leases (mine INTEGER)")
    with pytest.raises(RegistryError, match=r"registry .*leases.* already exists"):
        open_registry(where)
    with connected(where) as connection:
        assert sorted(sa.inspect(connection).get_table_names()) == ["definitions", "history", "leases", "revisions"]
        assert connection.exec_driver_sql("SELECT revision, format FROM revisions").all() == [(7, 1)]
        connection.exec_driver_sql("DROP TABLE leases")
    registry = open_registry(where)
    assert to_dict(registry.definitions()) == to_dict(CITY)
    registry.close()


OPEN = """
import sys
from tidegate.registry import open_registry
print("ready", flush=True)
sys.stdin.readline()
for where in sys.argv[1:]:
    registry = open_registry(where)
    assert registry.subscriptions_revision() == 0
    registry.close()
print("alembic" in sys.modules)
"""


def test_many_processes_open_a_registry_concurrently(new_store: MakeStore) -> None:
    new, old = [new_store() for _ in range(2)], [new_store() for _ in range(2)]
    for where in old:
        make_old(where)
        fill_old(where)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, *new, *old], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 3
    assert "True\n" in outputs
    for where, expected in [*((store, Definitions()) for store in new), *((store, CITY) for store in old)]:
        registry = open_registry(where)
        assert to_dict(registry.definitions()) == to_dict(expected)
        registry.close()


def test_alembic_is_not_imported_without_pending_migrations(where: str) -> None:
    open_registry(where).close()
    done = subprocess.run(
        [sys.executable, "-c", OPEN, where], input="go\n", capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "ready\nFalse\n"
