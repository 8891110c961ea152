"""API keys in a database. A secret is stored as a SHA-256 hash and found by its public prefix."""

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
from tidegate.registry.records import Key, Role
from tidegate.registry.store import Store, roll_back
from tidegate.registry.tables import KEYS

_LETTERS = string.ascii_lowercase + string.digits
_PREFIX_LENGTH = 8
_SECRET_BYTES = 32
MAX_NAME = 200
"""The longest name of a key, in characters."""
MAX_OVERLAP_S = 90 * 86_400.0
"""The longest time that an old secret stays valid after a rotation."""


class SqlKeys(Store):
    """The API keys of a registry. See `KeyStore` for what each public method promises."""

    def create_key(
        self,
        name: str,
        role: Role,
        services: Iterable[str] | None = None,
        expires_at: datetime | None = None,
        quotas: Mapping[str, float] | None = None,
    ) -> tuple[Key, str]:
        """Create a key, and return it with its secret, which can't be shown again."""
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
        key_id = f"key_{secrets.token_hex(8)}"
        row = {
            "id": key_id,
            "name": name,
            "role": role,
            "services": None if services is None else json.dumps(services),
            "prefix": prefix,
            "digest": _digest(secret),
            "created_at": self._clock(),
            "expires_at": None if expires_at is None else timestamps.from_datetime(expires_at),
            "quotas": json.dumps(dict(quotas)) if quotas else None,
        }
        with self._change_transaction("subscriptions") as connection:
            connection.execute(KEYS.insert().values(row))
            return _parse(_need_row(connection, key_id)), secret

    def find_key(self, secret: str) -> Key | None:
        """Return the key with this secret, even if it is expired or revoked, or None."""
        prefix = prefix_of(secret)
        if prefix is None:
            return None
        digest = _digest(secret)
        with self._engine.connect() as connection:
            has_prefix = (KEYS.c.prefix == prefix) | (KEYS.c.previous_prefix == prefix)
            rows = connection.execute(sa.select(KEYS).where(has_prefix)).all()
        now = self._clock()
        return next((_parse(row) for row in rows if _accepts(row, digest, now)), None)

    def keys(self) -> dict[str, Key]:
        """Return all keys by id, oldest first, including revoked ones."""
        with self._engine.connect() as connection:
            query = sa.select(KEYS).order_by(KEYS.c.created_at, KEYS.c.id)
            return {row.id: _parse(row) for row in connection.execute(query)}

    def revoke_key(self, key: str) -> Key:
        """Revoke a key, and return it. It stays stored, so that error messages and the audit log can name it."""
        with self._change_transaction("subscriptions") as connection:
            row = _need_row(connection, key)
            if row.revoked_at is not None:
                roll_back(connection)
                return _parse(row)
            connection.execute(KEYS.update().where(KEYS.c.id == key).values(revoked_at=self._clock()))
            return _parse(_need_row(connection, key))

    def rotate_key(self, key: str, overlap_s: float, expires_at: datetime | None = None) -> tuple[Key, str]:
        """Give a key a new secret, and return both; the old secret stays valid for `overlap_s` seconds."""
        if not 0 <= overlap_s <= MAX_OVERLAP_S:
            raise RegistryError(f"expected an overlap of 0 to {MAX_OVERLAP_S // 86_400:.0f} days, not {overlap_s:g} s")
        prefix, secret = _new_secret()
        with self._change_transaction("subscriptions") as connection:
            row = _need_row(connection, key)
            if row.revoked_at is not None:
                raise RegistryError(f"the key {row.name!r} ({key}) is revoked and can't be rotated; create another")
            values: dict[str, Any] = {
                "prefix": prefix,
                "digest": _digest(secret),
                "previous_prefix": row.prefix,
                "previous_digest": row.digest,
                "previous_until": self._clock() + round(overlap_s * 1e6),
            }
            if expires_at is not None:
                values["expires_at"] = timestamps.from_datetime(expires_at)
            connection.execute(KEYS.update().where(KEYS.c.id == key).values(values))
            return _parse(_need_row(connection, key)), secret

    def note_key_use(self, uses: Mapping[str, tuple[datetime, str]]) -> None:
        """Store time and client address of the last use of keys; an older use never replaces a newer one."""
        columns = KEYS.c
        with self._engine.begin() as connection:
            for id_ in sorted(uses):  # sorted, so that gateways lock rows in the same order and can't deadlock
                moment, address = timestamps.from_datetime(uses[id_][0]), uses[id_][1]
                is_newer = columns.last_used_at.is_(None) | (columns.last_used_at < moment)
                values = {"last_used_at": moment, "last_used_from": address}
                connection.execute(KEYS.update().where(columns.id == id_, is_newer).values(values))


def _new_secret() -> tuple[str, str]:
    """Return the public prefix of a new random secret, and the secret."""
    prefix = "".join(secrets.choice(_LETTERS) for _ in range(_PREFIX_LENGTH))
    return prefix, f"tg_{prefix}_{secrets.token_urlsafe(_SECRET_BYTES)}"


def _accepts(row: sa.Row[Any], digest: bytes, now: int) -> bool:
    """Return True if `digest` is that of the current secret, or of the previous one within its overlap."""
    if hmac.compare_digest(bytes(row.digest), digest):
        return True
    is_in_overlap = row.previous_until is not None and now < row.previous_until
    return is_in_overlap and hmac.compare_digest(bytes(row.previous_digest), digest)


def prefix_of(secret: str) -> str | None:
    """Return the public prefix of a secret; None if the text is not a secret of a key.

    >>> prefix_of("tg_abcd1234_rest")
    'abcd1234'
    """
    start, _, rest = secret.partition("_")
    prefix = rest.partition("_")[0]
    is_ours = start == "tg" and len(prefix) == _PREFIX_LENGTH and prefix.isalnum() and secret.isascii()
    return prefix if is_ours else None


def _digest(secret: str) -> bytes:
    # A fast hash without salt is enough: slow, salted hashes protect passwords that can be guessed, and this secret
    # has 256 random bits. The hash is computed for every request.
    return hashlib.sha256(secret.encode()).digest()


def _need_row(connection: sa.Connection, key: str) -> sa.Row[Any]:
    row = connection.execute(sa.select(KEYS).where(KEYS.c.id == key)).one_or_none()
    if row is None:
        raise NotRegistered(f"there is no key {key!r}")
    return row


def _parse(row: sa.Row[Any]) -> Key:
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
