"""The registry as a whole in a SQL database, and the encryption of its secrets.

Uses only SQL that SQLite and PostgreSQL share; `sqlite` and `postgres` add what differs.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from tidegate.errors import RegistryError
from tidegate.registry.dead_letters import SqlDeadLetters
from tidegate.registry.definitions import SqlDefinitions
from tidegate.registry.gateways import SqlGateways
from tidegate.registry.keys import SqlKeys
from tidegate.registry.leases import SqlLeases
from tidegate.registry.links import SqlLinks
from tidegate.registry.records import EndReader
from tidegate.registry.secrets import Keyring
from tidegate.registry.subscriptions import SqlSubscriptions
from tidegate.registry.tables import REVISIONS


class SqlRegistry(SqlDefinitions, SqlSubscriptions, SqlDeadLetters, SqlKeys, SqlLeases, SqlGateways, SqlLinks):
    """A `Registry` in a database that SQLAlchemy supports."""

    def __init__(
        self,
        engine: sa.Engine,
        clock: Callable[[], int],
        name: str,
        keyring: Keyring | None = None,
        *,
        check_functions: bool = True,
        read_ends: EndReader | None = None,
    ) -> None:
        """Open the registry; plain secrets are encrypted if `keyring` is given. See `SqlDefinitions` and `Store`.

        Raises `RegistryError` if the secrets are encrypted with a key that `keyring` does not contain.
        """
        super().__init__(engine, clock, name, keyring, check_functions=check_functions, read_ends=read_ends)
        try:
            self._ensure_encrypted()
        except BaseException:
            engine.dispose()
            raise

    @property
    def has_plain_secrets(self) -> bool:
        """True if secrets are stored as plain text, because the registry was never opened with a keyring."""
        with self._engine.connect() as connection:
            return connection.execute(sa.select(REVISIONS.c.secrets_key)).scalar_one() is None

    def reseal(self) -> int:
        """Encrypt all secrets with the first key of the keyring, in one transaction, and return how many there are."""
        if self._keyring is None:
            raise RegistryError("there is no key to encrypt secrets with: set secrets.key in the profile")
        key = self._keyring.first
        with self._change_transaction("subscriptions") as connection:
            count = self._reseal_links(connection, key) + self._reseal_subscriptions(connection, key)
            connection.execute(REVISIONS.update().values(secrets_key=key.id))
        self._erase_overwritten()
        return count

    def _ensure_encrypted(self) -> None:
        with self._engine.connect() as connection:
            is_plain = self._encryption_key(connection) is None
        if is_plain and self._keyring is not None:
            self.reseal()

    def _erase_overwritten(self) -> None:
        """Remove overwritten secrets from the database's files. Databases that do this themselves need nothing."""
