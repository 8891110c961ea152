"""Migrates the tables of a registry to the format of this version.

A newer format is used unchanged if its migrations allow this version, so that processes of two versions can share a
registry during an upgrade; otherwise it is refused. Each migration states in `OLDEST` the oldest format whose version
may use the tables afterwards; without it, that is the migration's own. The column `revisions.format` has the greatest
of these numbers, and Alembic's table the format itself.

Alembic is imported only if there is something to migrate: the import takes longer than everything else that a command
does with a registry.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import sqlalchemy as sa

from tidegate.errors import RegistryError
from tidegate.registry.tables import FORMAT, REVISIONS

_LOCK_ID = 0x71DE_6A7E
"""The id of the PostgreSQL advisory lock that a migration holds."""
_ALEMBIC = sa.table("alembic_version", sa.column("version_num"))


def migrate(engine: sa.Engine) -> None:
    """Create or migrate the tables if they have an older format.

    One transaction; of several processes that open a registry at once, one migrates and the others wait. Raises
    `RegistryError` if the format is so new that this version may not use it.
    """
    with engine.connect() as connection:
        if _format(connection) >= FORMAT:
            return
    with _exclusive_transaction(engine) as connection:
        if _format(connection) < FORMAT:  # otherwise another process was faster
            _upgrade(connection)


def _format(connection: sa.Connection) -> int:
    """Return the format of the tables; 0: there are none. Raises `RegistryError` if this version may not use them."""
    inspector = sa.inspect(connection)
    if not inspector.has_table(REVISIONS.name):
        return 0
    oldest = connection.execute(sa.select(REVISIONS.c.format)).scalar_one_or_none() or 0
    if oldest > FORMAT:
        raise RegistryError(
            f"the registry has format {oldest}, but this version of Tidegate supports formats up to {FORMAT}; "
            "use a newer version"
        )
    if not inspector.has_table(_ALEMBIC.name):  # format 1, before migrations existed
        return int(oldest)
    return int(connection.execute(sa.select(_ALEMBIC.c.version_num)).scalar_one_or_none() or oldest)


@contextmanager
def _exclusive_transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Open a transaction that excludes migrations by other processes."""
    if engine.dialect.name != "sqlite":
        with engine.begin() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_ID)))
            yield connection
        return
    # Python's driver starts transactions by itself, but not before CREATE TABLE, and without a write lock.
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

    scripts = ScriptDirectory(str(Path(__file__).parent / "migrations"))
    context = MigrationContext.configure(connection)
    # A registry of format 1 has no Alembic revision. The first migration finds its tables and keeps them.
    pending = scripts.iterate_revisions("head", context.get_current_revision() or "base")
    with Operations.context(context):
        for script in reversed(list(pending)):
            script.module.upgrade()
    context.stamp(scripts, "head")
    oldest = max(oldest_format(script.module) for script in scripts.walk_revisions())
    connection.execute(REVISIONS.update().values(format=oldest))


def oldest_format(migration: ModuleType) -> int:
    """Return the oldest format whose version may use the tables after a migration."""
    return int(getattr(migration, "OLDEST", migration.revision))
