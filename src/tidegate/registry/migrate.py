"""Brings a registry's tables to the format that this version knows. A newer one is refused.

Alembic is imported only where there is something to do: it takes longer than
all else that a command does with a registry.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from tidegate.errors import RegistryError
from tidegate.registry.tables import FORMAT, REVISIONS

_LOCK = 0x71DE_6A7E
"""Of PostgreSQL's advisory locks, the one that migrations hold."""


def migrate(engine: sa.Engine) -> None:
    """Make or change the tables where they are not of today's format; all or nothing, and once."""
    with engine.connect() as connection:
        if _format(connection) == FORMAT:
            return
    with _alone(engine) as connection:
        if _format(connection) != FORMAT:  # else another process was first
            _upgrade(connection)


def _format(connection: sa.Connection) -> int:
    """The format of the tables; 0: there are none."""
    if not sa.inspect(connection).has_table(REVISIONS.name):
        return 0
    found = connection.execute(sa.select(REVISIONS.c.format)).scalar_one_or_none() or 0
    if found > FORMAT:
        raise RegistryError(f"the registry has format {found}, and this version of Tidegate knows {FORMAT}")
    return int(found)


@contextmanager
def _alone(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction beside which no other process migrates."""
    if engine.dialect.name != "sqlite":
        with engine.begin() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            yield connection
        return
    # Python's driver begins a transaction by itself, but not before a CREATE TABLE, and not with the lock.
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.exec_driver_sql("ROLLBACK")
            raise
        connection.exec_driver_sql("COMMIT")


def _upgrade(connection: sa.Connection) -> None:
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    steps = ScriptDirectory(str(Path(__file__).parent / "migrations"))
    context = MigrationContext.configure(connection)
    # A registry of format 1 has no note of a step: the first one finds its tables there and leaves them.
    missing = steps.iterate_revisions("head", context.get_current_revision() or "base")
    with Operations.context(context):
        for step in reversed(list(missing)):
            step.module.upgrade()
    context.stamp(steps, "head")
    connection.execute(REVISIONS.update().values(format=FORMAT))
