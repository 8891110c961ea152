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
MAX_NAME = 200
"""Characters of a key's name."""
MAX_OVERLAP_S = 90 * 86_400.0
"""How long the secret before a rotation may hold: whoever needs longer does not rotate."""


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
        if not name.strip() or len(name) > MAX_NAME:
            raise RegistryError(f"expected a name of 1 to {MAX_NAME} characters, not {name!r:.80}")
        prefix, secret = _new_secret()
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
        prefix = prefix_of(secret)
        if prefix is None:
            return None
        digest = _digest(secret)
        with self._engine.connect() as connection:
            is_one = (KEYS.c.prefix == prefix) | (KEYS.c.previous_prefix == prefix)
            rows = connection.execute(sa.select(KEYS).where(is_one)).all()
        now = self._clock()
        return next((_key(row) for row in rows if _opens(row, digest, now)), None)

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

    def rotate_key(self, key: str, overlap_s: float, expires_at: datetime | None = None) -> tuple[Key, str]:
        """Give a key a new secret; the one before holds for `overlap_s` seconds more."""
        if not 0 <= overlap_s <= MAX_OVERLAP_S:
            raise RegistryError(f"expected an overlap of 0 to {MAX_OVERLAP_S // 86_400:.0f} days, not {overlap_s:g} s")
        prefix, secret = _new_secret()
        with self._changing("subscriptions") as connection:
            found = _found(connection, key)
            if found.revoked_at is not None:
                raise RegistryError(f"the key {found.name!r} ({key}) is revoked and can't be rotated; create another")
            values: dict[str, Any] = {
                "prefix": prefix,
                "digest": _digest(secret),
                "previous_prefix": found.prefix,
                "previous_digest": found.digest,
                "previous_until": self._clock() + round(overlap_s * 1e6),
            }
            if expires_at is not None:
                values["expires_at"] = timestamps.from_datetime(expires_at)
            connection.execute(KEYS.update().where(KEYS.c.id == key).values(values))
            return _key(_found(connection, key)), secret

    def note_key_use(self, uses: Mapping[str, tuple[datetime, str]]) -> None:
        """Note when and from which address keys were used; an older use never replaces a newer one."""
        columns = KEYS.c
        with self._engine.begin() as connection:
            for id_ in sorted(uses):  # in one order, so that no two gateways wait for each other
                moment, address = timestamps.from_datetime(uses[id_][0]), uses[id_][1]
                is_newer = columns.last_used_at.is_(None) | (columns.last_used_at < moment)
                values = {"last_used_at": moment, "last_used_from": address}
                connection.execute(KEYS.update().where(columns.id == id_, is_newer).values(values))


def _new_secret() -> tuple[str, str]:
    """Return a random secret, after the part of it that may be shown."""
    prefix = "".join(secrets.choice(_LETTERS) for _ in range(_PREFIX_LENGTH))
    return prefix, f"tg_{prefix}_{secrets.token_urlsafe(_SECRET_BYTES)}"


def _opens(row: sa.Row[Any], digest: bytes, now: int) -> bool:
    """Return whether a secret's digest is a key's present one, or the one before while it still holds."""
    if hmac.compare_digest(bytes(row.digest), digest):
        return True
    is_in_overlap = row.previous_until is not None and now < row.previous_until
    return is_in_overlap and hmac.compare_digest(bytes(row.previous_digest), digest)


def prefix_of(secret: str) -> str | None:
    """Return the part of a secret that may be shown; None: it is no secret of ours.

    >>> prefix_of("tg_abcd1234_rest")
    'abcd1234'
    """
    start, _, rest = secret.partition("_")
    prefix = rest.partition("_")[0]
    is_ours = start == "tg" and len(prefix) == _PREFIX_LENGTH and prefix.isalnum() and secret.isascii()
    return prefix if is_ours else None


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
        row.previous_prefix,
        None if row.previous_until is None else timestamps.to_datetime(row.previous_until),
        None if row.last_used_at is None else timestamps.to_datetime(row.last_used_at),
        row.last_used_from,
    )
