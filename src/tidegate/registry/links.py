"""Links to other brokers in a database, with their persisted state and the pinned signing keys."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from tidegate.errors import NotRegistered, RegistryError, did_you_mean
from tidegate.model import ServiceName, timestamps
from tidegate.registry.records import Link, LinkStateKey
from tidegate.registry.secrets import SEALED, SecretKey
from tidegate.registry.store import Store
from tidegate.registry.tables import LINK_ORIGINS, LINK_STATES, LINKS

MAX_BROKER_NAME = 40
"""The longest name of a broker, in characters: it is part of stream names such as `service@broker`."""
MIN_LINK_SECRET = 24
"""The shortest secret of a link, in characters: an attacker may try to guess it."""
ANY = "*"
"""Matches every name in `Link.transit` and `Link.public`."""
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_BROKER_NAME - 1}}}")
_SERVICE = re.compile(rf"[^@\s*]+(@{_NAME.pattern})?")
_SECRET_BYTES = 32


def need_broker_name(name: str) -> None:
    """Raise `RegistryError` if a text is not a valid name of a broker."""
    if not _NAME.fullmatch(name):
        raise RegistryError(
            f"expected a broker's name of letters, digits, _ and -, at most {MAX_BROKER_NAME}, not {name!r:.80}"
        )


class SqlLinks(Store):
    """The links of a registry. See `LinkStore` for what each public method promises."""

    def add_link(
        self,
        name: str,
        url: str | None = None,
        secret: str | None = None,
        services: Iterable[str] | None = None,
        *,
        transit: Iterable[str] = (),
        public: Iterable[str] = (),
    ) -> Link:
        """Add a link to the broker `name`; without `secret`, one is generated."""
        need_broker_name(name)
        if secret is not None and len(secret) < MIN_LINK_SECRET:
            raise RegistryError(f"expected a secret of at least {MIN_LINK_SECRET} characters, not {len(secret)}")
        if url is not None and not re.match(r"(https?|wss?)://[^/\s]", url):
            raise RegistryError(f"expected the URL of a gateway, such as https://city.example:8080, not {url!r}")
        if secret is not None and secret.startswith(SEALED):
            raise RegistryError(f"expected a secret that does not begin with {SEALED!r}")
        secret = secret or secrets.token_urlsafe(_SECRET_BYTES)
        row = {
            "name": name,
            "url": url,
            "services": None if services is None else json.dumps(sorted(set(services))),
            "created_at": self._clock(),
            "transit": _transit_json(transit),
            "public": _public_json(public, name),
        }
        with self._change_transaction("subscriptions") as connection:
            if connection.execute(sa.select(LINKS.c.name).where(LINKS.c.name == name)).first() is not None:
                raise RegistryError(f"there is a link to {name!r} already; remove it first")
            key = self._encryption_key(connection)
            sealed = secret if key is None else key.seal(secret, _secret_location(name))
            connection.execute(LINKS.insert().values({**row, "secret": sealed}))
            return self._link(connection.execute(sa.select(LINKS).where(LINKS.c.name == name)).one())

    def change_link(
        self, name: str, *, transit: Iterable[str] | None = None, public: Iterable[str] | None = None
    ) -> Link:
        """Change what we accept from a neighbour; None leaves a setting unchanged."""
        changes = {} if transit is None else {"transit": _transit_json(transit)}
        changes |= {} if public is None else {"public": _public_json(public, name)}
        is_link = LINKS.c.name == name
        with self._change_transaction("subscriptions") as connection:
            row = connection.execute(sa.select(LINKS).where(is_link)).first()
            if row is None:
                raise _missing(connection, name)
            if changes:
                connection.execute(LINKS.update().where(is_link).values(changes))
            return self._link(connection.execute(sa.select(LINKS).where(is_link)).one())

    def links(self) -> dict[str, Link]:
        """Return all links by the name of the other broker."""
        with self._engine.connect() as connection:
            return {row.name: self._link(row) for row in connection.execute(sa.select(LINKS).order_by(LINKS.c.name))}

    def remove_link(self, name: str) -> None:
        """Remove a link and its persisted state."""
        with self._change_transaction("subscriptions") as connection:
            if connection.execute(LINKS.delete().where(LINKS.c.name == name)).rowcount == 0:
                raise _missing(connection, name)

    def link_states(self, link: str) -> dict[LinkStateKey, str]:
        """Return the persisted state of a link; empty if the link does not exist."""
        query = sa.select(LINK_STATES).where(LINK_STATES.c.link == link)
        with self._engine.connect() as connection:
            return {(row.kind, row.name): row.document for row in connection.execute(query)}

    def save_link_states(self, link: str, states: Mapping[LinkStateKey, str | None]) -> None:
        """Persist states of a link; None deletes one. Does nothing if the link does not exist."""
        columns = LINK_STATES.c
        with self._engine.begin() as connection:
            if connection.execute(sa.select(LINKS.c.name).where(LINKS.c.name == link)).first() is None:
                return
            for (kind, name), document in states.items():
                is_row = (columns.link == link) & (columns.kind == kind) & (columns.name == name)
                connection.execute(LINK_STATES.delete().where(is_row))
                if document is not None:
                    row = {"link": link, "kind": kind, "name": name, "document": document}
                    connection.execute(LINK_STATES.insert().values(row))

    # Pinned keys ---------------------------------------------------------------

    def trust_origin(self, name: str, keys: str) -> None:
        """Pin the public keys of a broker, a JWK set as text. Replaces keys that were pinned before."""
        need_broker_name(name)
        with self._change_transaction("subscriptions") as connection:
            connection.execute(LINK_ORIGINS.delete().where(LINK_ORIGINS.c.name == name))
            row = {"name": name, "keys": keys, "created_at": self._clock()}
            connection.execute(LINK_ORIGINS.insert().values(row))

    def distrust_origin(self, name: str) -> None:
        """Remove the pinned keys of a broker."""
        with self._change_transaction("subscriptions") as connection:
            if connection.execute(LINK_ORIGINS.delete().where(LINK_ORIGINS.c.name == name)).rowcount == 0:
                names = connection.execute(sa.select(LINK_ORIGINS.c.name)).scalars().all()
                raise NotRegistered(f"no keys of {name!r} are pinned{did_you_mean(name, names)}")

    def trusted_origins(self) -> dict[str, str]:
        """Return the pinned keys by the name of the broker."""
        query = sa.select(LINK_ORIGINS).order_by(LINK_ORIGINS.c.name)
        with self._engine.connect() as connection:
            return {row.name: row.keys for row in connection.execute(query)}

    # Secrets -------------------------------------------------------------------

    def _link(self, row: sa.Row[Any]) -> Link:
        services = None if row.services is None else tuple(json.loads(row.services))
        secret = self._decrypt(row.secret, *_secret_location(row.name))
        created = timestamps.to_datetime(row.created_at)
        return Link(row.name, row.url, secret, services, created, _names(row.transit), _names(row.public))

    def _reseal_links(self, connection: sa.Connection, key: SecretKey) -> int:
        """Encrypt the secrets of all links with a key, and return how many there are."""
        rows = connection.execute(sa.select(LINKS.c.name, LINKS.c.secret)).all()
        for row in rows:
            sealed = key.seal(self._decrypt(row.secret, *_secret_location(row.name)), _secret_location(row.name))
            connection.execute(LINKS.update().where(LINKS.c.name == row.name).values(secret=sealed))
        return len(rows)


def _secret_location(name: str) -> tuple[str, str, str]:
    """Return table, row and column of a link's secret, which its encryption is bound to."""
    return "links", name, "secret"


def _transit_json(brokers: Iterable[str]) -> str:
    names = sorted(set(brokers))
    for name in names:
        if name != ANY:
            need_broker_name(name)
    return json.dumps(names)


def _public_json(services: Iterable[str], link: str) -> str:
    names = set()
    for name in services:
        if name != ANY and not _SERVICE.fullmatch(name):
            raise RegistryError(f"public: expected the name of a service such as gps or gps@{link}, not {name!r:.80}")
        names.add(name if name == ANY or ServiceName.parse(name).is_remote else str(ServiceName(name, link)))
    return json.dumps(sorted(names))


def _missing(connection: sa.Connection, name: str) -> NotRegistered:
    names = connection.execute(sa.select(LINKS.c.name)).scalars().all()
    return NotRegistered(f"there is no link to {name!r}{did_you_mean(name, names)}")


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(json.loads(text))
