"""Copies all rows of a registry to another, of SQLite or PostgreSQL."""

from __future__ import annotations

import sqlalchemy as sa

from tidegate.errors import RegistryError
from tidegate.registry.sql import SqlRegistry
from tidegate.registry.tables import DEAD_LETTERS, DEFINITIONS, GATEWAYS, KEYS, LEASES, METADATA, SUBSCRIPTIONS

_OF_PROCESSES = (LEASES, GATEWAYS)
"""Tables about running processes, which a copy has not."""
_ROWS = 1_000


def copy_registry(source: SqlRegistry, target: SqlRegistry) -> None:
    """Copy all rows in one snapshot, secrets unchanged. Raises `RegistryError` if the target has definitions."""
    tables = [table for table in METADATA.sorted_tables if table not in _OF_PROCESSES]
    with _snapshot(source._engine) as reading, target._engine.begin() as writing:
        for table in (DEFINITIONS, SUBSCRIPTIONS, KEYS):
            if writing.execute(sa.select(sa.func.count()).select_from(table)).scalar_one():
                raise RegistryError("expected an empty registry: this one has definitions, subscriptions or keys")
        for table in reversed(tables):
            writing.execute(table.delete())
        for table in tables:
            for rows in reading.execute(sa.select(table)).mappings().partitions(_ROWS):
                writing.execute(table.insert(), [dict(row) for row in rows])
        if writing.dialect.name == "postgresql":  # the next dead letter must not get an id that is taken
            last = sa.select(sa.func.coalesce(sa.func.max(DEAD_LETTERS.c.id), 0) + 1).scalar_subquery()
            name = sa.func.pg_get_serial_sequence("dead_letters", "id")
            writing.execute(sa.select(sa.func.setval(name, last, False)))


def _snapshot(engine: sa.Engine) -> sa.Connection:
    """Open a connection that reads all tables in one snapshot."""
    if engine.dialect.name == "postgresql":
        return engine.connect().execution_options(isolation_level="REPEATABLE READ")
    connection = engine.connect()
    connection.exec_driver_sql("BEGIN")  # Python's driver begins transactions for changes only
    return connection
