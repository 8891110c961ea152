"""API keys in a database."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import string
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, get_args

import sqlalchemy as sa

from tidegate.errors import NotRegistered, RegistryError
from tidegate.model import timestamps
from tidegate.registry.registry import Key, Role
from tidegate.registry.store import Store, unchanged
from tidegate.registry.tables import KEYS

_LETTERS = string.ascii_lowercase + string.digits
_PREFIX_LENGTH = 8
_SECRET_BYTES = 32


class SqlKeys(Store):
    """The API keys of a registry."""

    def create_key(
        self,
        name: str,
        role: Role,
        services: Iterable[str] | None = None,
        expires_at: datetime | None = None,
        quotas: Mapping[str, float] | None = None,
    ) -> tuple[Key, str]:
        """Make a key, and give its secret, which is shown this once."""
        if role not in get_args(Role):
            raise RegistryError(f"unknown role {role!r}: expected {', '.join(get_args(Role))}")
        if isinstance(services, str):
            raise RegistryError(f"expected the names of services, got the text {services!r}")
        services = None if services is None else sorted(set(services))
        if role == "publisher" and not services:
            raise RegistryError(f"the key {name!r} is a publisher's and names no stream: name each one with --service")
        prefix = "".join(secrets.choice(_LETTERS) for _ in range(_PREFIX_LENGTH))
        secret = f"tg_{prefix}_{secrets.token_urlsafe(_SECRET_BYTES)}"
        row = {
            "id": f"key_{secrets.token_hex(8)}",
            "name": name,
            "role": role,
            "services": None if services is None else json.dumps(services),
            "prefix": prefix,
            "digest": _digest(secret),
            "created_at": self._clock(),
            "expires_at": None if expires_at is None else timestamps.from_datetime(expires_at),
            "quotas": json.dumps(dict(quotas)) if quotas else None,
        }
        with self._changing("subscriptions") as connection:
            connection.execute(KEYS.insert().values(row))
            return _key(_found(connection, str(row["id"]))), secret

    def find_key(self, secret: str) -> Key | None:
        """Whose secret this is, expired and revoked ones included; None: nobody's."""
        start, _, rest = secret.partition("_")
        prefix, _, _ = rest.partition("_")
        if start != "tg" or len(prefix) != _PREFIX_LENGTH or not prefix.isalnum() or not secret.isascii():
            return None
        digest = _digest(secret)
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(KEYS).where(KEYS.c.prefix == prefix)).all()
        return next((_key(row) for row in rows if hmac.compare_digest(bytes(row.digest), digest)), None)

    def keys(self) -> dict[str, Key]:
        """All keys by id, the oldest first, revoked ones included."""
        with self._engine.connect() as connection:
            query = sa.select(KEYS).order_by(KEYS.c.created_at, KEYS.c.id)
            return {row.id: _key(row) for row in connection.execute(query)}

    def revoke_key(self, key: str) -> Key:
        """Let a key open nothing any more; it stays, so that its use can be explained."""
        with self._changing("subscriptions") as connection:
            found = _found(connection, key)
            if found.revoked_at is not None:
                unchanged(connection)
                return _key(found)
            connection.execute(KEYS.update().where(KEYS.c.id == key).values(revoked_at=self._clock()))
            return _key(_found(connection, key))


def _digest(secret: str) -> bytes:
    # A plain hash is right here: slow, salted ones protect what people choose and others can guess,
    # and this has 256 random bits. It is computed for every request.
    return hashlib.sha256(secret.encode()).digest()


def _found(connection: sa.Connection, key: str) -> sa.Row[Any]:
    row = connection.execute(sa.select(KEYS).where(KEYS.c.id == key)).one_or_none()
    if row is None:
        raise NotRegistered(f"there is no key {key!r}")
    return row


def _key(row: sa.Row[Any]) -> Key:
    return Key(
        row.id,
        row.name,
        row.role,
        None if row.services is None else tuple(json.loads(row.services)),
        row.prefix,
        timestamps.to_datetime(row.created_at),
        None if row.expires_at is None else timestamps.to_datetime(row.expires_at),
        None if row.revoked_at is None else timestamps.to_datetime(row.revoked_at),
        () if row.quotas is None else tuple(sorted(json.loads(row.quotas).items())),
    )
