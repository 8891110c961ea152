"""What all parts of a registry in a database share: the engine, the clock, and how a change is made.

A change begins by counting up, which takes that row's lock: changes come one
after the other, in whatever process, and one that fails leaves no trace.
Cursors, attempts, dead letters and leases move without it, a row at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import sqlalchemy as sa

from tidegate.errors import NotRegistered, RegistryError
from tidegate.registry.migrate import migrate
from tidegate.registry.secrets import SEALED, Keyring, SecretKey, no_keyring
from tidegate.registry.tables import REVISIONS

Counter = Literal["revision", "subscriptions"]


def now_micros() -> int:
    """The moment, in microseconds since 1970 UTC."""
    return time.time_ns() // 1_000


class Store:
    """A database with a registry's tables, which are made or brought up to date."""

    def __init__(self, engine: sa.Engine, clock: Callable[[], int], name: str, keyring: Keyring | None = None) -> None:
        """`name` is what errors call the database; `keyring` opens and seals its secrets, None: they are plain."""
        self._engine, self._clock, self._name, self._keyring = engine, clock, name, keyring
        sa.event.listen(engine, "handle_error", self._explain)
        try:
            migrate(engine)
        except BaseException as error:
            engine.dispose()
            if isinstance(error, sa.exc.DatabaseError):
                raise RegistryError(f"expected a registry {name}: {_said(error.orig)}") from error
            raise

    def close(self) -> None:
        """Let go of files and connections."""
        self._engine.dispose()

    def _explain(self, context: sa.ExceptionContext) -> None:
        """Tell of a database that does not answer, is full, locked or away as our own error."""
        if isinstance(context.sqlalchemy_exception, sa.exc.OperationalError) and not context.is_pre_ping:
            said = _said(context.original_exception)
            raise RegistryError(f"can't use the registry {self._name}: {said}") from context.original_exception

    @contextmanager
    def _changing(self, counter: Counter) -> Iterator[sa.Connection]:
        """Make a change that counts. Whoever else makes one waits."""
        with self._engine.connect() as connection, connection.begin():
            self._count(connection, counter)
            yield connection

    def _count(self, connection: sa.Connection, counter: Counter) -> None:
        connection.execute(REVISIONS.update().values({counter: REVISIONS.c[counter] + 1}))

    def _counted(self, counter: Counter) -> int:
        with self._engine.connect() as connection:
            return int(connection.execute(sa.select(REVISIONS.c[counter])).scalar_one())

    # Secrets -------------------------------------------------------------------

    def _sealing_key(self, connection: sa.Connection) -> SecretKey | None:
        """Return the key that this registry's secrets are encrypted with; None: they are plain."""
        id_ = connection.execute(sa.select(REVISIONS.c.secrets_key)).scalar_one()
        if id_ is None:
            return None
        if self._keyring is None:
            raise no_keyring(id_)
        return self._keyring.need(id_)

    def _opened(self, stored: str, *place: str) -> str:
        """Return a secret as it is used."""
        if not stored.startswith(SEALED):
            return stored
        id_ = stored.removeprefix(SEALED).partition(":")[0]
        if self._keyring is None:
            raise no_keyring(id_)
        return self._keyring.need(id_).open(stored, place)

    def _alter(self, statement: sa.Update | sa.Delete, missing: str) -> None:
        """Change one row, which must be there, and count nothing."""
        with self._engine.begin() as connection:
            if connection.execute(statement).rowcount == 0:
                raise NotRegistered(missing)


def unchanged(connection: sa.Connection) -> None:
    """End a change that turned out to be none: it is not counted."""
    transaction = connection.get_transaction()
    if transaction is not None:
        transaction.rollback()


def _said(error: BaseException | None) -> str:
    return " ".join(str(error).split())
