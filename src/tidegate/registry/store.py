"""The base of all tables of a registry: database engine, clock, transactions and decryption of secrets.

A change starts by incrementing a revision counter, which locks the row of the counters. Changes of all processes are
therefore serialized, and a change that fails leaves no trace. Cursors, attempts, dead letters, key uses, link states
and leases are written without that lock, row by row, and increment no counter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import sqlalchemy as sa

from tidegate.errors import LeaseLost, NotRegistered, RegistryError, RegistryUnreachable
from tidegate.registry.migrate import migrate
from tidegate.registry.records import Fence
from tidegate.registry.secrets import SEALED, Keyring, SecretKey, no_keyring
from tidegate.registry.tables import LEASES, REVISIONS, Text

Counter = Literal["revision", "subscriptions"]
"""A column of the table `revisions`: the counter of definitions, or of subscriptions, keys and links."""


def now_micros() -> int:
    """Return the current time in microseconds since 1970 UTC."""
    return time.time_ns() // 1_000


class Store:
    """A database with the tables of a registry. Opening one creates or migrates the tables."""

    def __init__(self, engine: sa.Engine, clock: Callable[[], int], name: str, keyring: Keyring | None = None) -> None:
        """Open the database and migrate it; on failure the engine is disposed.

        `clock` returns microseconds since 1970 UTC. `name` describes the database in error messages. `keyring`
        encrypts and decrypts secrets; None: they are stored as plain text.
        """
        self._engine, self._clock, self._name, self._keyring = engine, clock, name, keyring
        sa.event.listen(engine, "handle_error", self._translate_error)
        try:
            migrate(engine)
        except BaseException as error:
            engine.dispose()
            if isinstance(error, sa.exc.DatabaseError):
                raise RegistryError(f"expected a registry {name}: {_message(error.orig)}") from error
            raise

    def close(self) -> None:
        """Close all database connections."""
        self._engine.dispose()

    def _translate_error(self, context: sa.ExceptionContext) -> None:
        """Raise `RegistryUnreachable` if the database is away, full or locked. SQLAlchemy calls it on each error."""
        is_of_the_moment = isinstance(context.sqlalchemy_exception, sa.exc.OperationalError) or context.is_disconnect
        if is_of_the_moment and not context.is_pre_ping:
            message = _message(context.original_exception)
            raise RegistryUnreachable(f"can't use the registry {self._name}: {message}") from context.original_exception

    @contextmanager
    def _change_transaction(self, counter: Counter) -> Iterator[sa.Connection]:
        """Open a transaction that increments a counter. Other changes wait until it ends."""
        with self._engine.connect() as connection, connection.begin():
            increment(connection, counter)
            yield connection

    def _read_counter(self, counter: Counter) -> int:
        with self._engine.connect() as connection:
            return int(connection.execute(sa.select(REVISIONS.c[counter])).scalar_one())

    def _update_row(self, statement: sa.Update | sa.Delete, missing: str) -> None:
        """Run a statement without incrementing a counter; raise `NotRegistered(missing)` if it matches no row."""
        with self._engine.begin() as connection:
            if connection.execute(statement).rowcount == 0:
                raise NotRegistered(missing)

    def _now_sql(self) -> tuple[str, dict[str, Any]]:
        """Return the current time as an SQL expression, and the parameters of that expression."""
        return ":now", {"now": self._clock()}

    def _is_fenced(
        self, subscription: sa.ColumnElement[str], fence: Fence
    ) -> tuple[sa.ColumnElement[bool], dict[str, Any]]:
        """Return the condition that the holder of a fence has the lease of a subscription, and its parameters."""
        now, parameters = self._now_sql()
        name = sa.literal(fence.prefix, Text).concat(subscription)
        held = sa.select(LEASES.c.name).where(
            LEASES.c.name == name, LEASES.c.holder == fence.holder, sa.text(f"leases.until > {now}")
        )
        return held.exists(), parameters

    def _need_lease(self, connection: sa.Connection, subscription: str, fence: Fence) -> None:
        """Raise `LeaseLost` if the holder of a fence does not have the lease of a subscription."""
        is_held, parameters = self._is_fenced(sa.literal(subscription, Text), fence)
        if not connection.execute(sa.select(is_held), parameters).scalar_one():
            raise LeaseLost(f"{fence.prefix}{subscription} is not leased to {fence.holder} any more")

    # Secrets -------------------------------------------------------------------

    def _encryption_key(self, connection: sa.Connection) -> SecretKey | None:
        """Return the key that this registry encrypts its secrets with; None: they are plain text.

        Raises `RegistryError` if the keyring does not contain it.
        """
        key_id = connection.execute(sa.select(REVISIONS.c.secrets_key)).scalar_one()
        if key_id is None:
            return None
        if self._keyring is None:
            raise no_keyring(key_id)
        return self._keyring.need(key_id)

    def _decrypt(self, stored: str, *location: str) -> str:
        """Return the plain text of a stored secret. `location` is its table, row and column."""
        if not stored.startswith(SEALED):
            return stored
        key_id = stored.removeprefix(SEALED).partition(":")[0]
        if self._keyring is None:
            raise no_keyring(key_id)
        return self._keyring.need(key_id).open(stored, location)


def increment(connection: sa.Connection, counter: Counter) -> None:
    """Increment a revision counter, which locks the row of all counters until the transaction ends."""
    connection.execute(REVISIONS.update().values({counter: REVISIONS.c[counter] + 1}))


def roll_back(connection: sa.Connection) -> None:
    """Roll back a change that turned out to change nothing, so that no counter grows."""
    transaction = connection.get_transaction()
    if transaction is not None:
        transaction.rollback()


def _message(error: BaseException | None) -> str:
    return " ".join(str(error).split())
