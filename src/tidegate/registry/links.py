"""Links to other brokers in a database."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from tidegate.errors import NotRegistered, RegistryError, did_you_mean
from tidegate.model import ServiceName, timestamps
from tidegate.registry.registry import Kept, Link
from tidegate.registry.secrets import SEALED, SecretKey
from tidegate.registry.store import Store
from tidegate.registry.tables import LINK_ORIGINS, LINK_STATES, LINKS

MOST_NAME = 40
"""Characters of a broker's name: `service@broker` names a stream."""
LEAST_SECRET = 24
"""Characters of a secret: whoever pretends to be a neighbour may try to guess it."""
ANY = "*"
"""Stands for every name, in what a link allows."""
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MOST_NAME - 1}}}")
_SERVICE = re.compile(rf"[^@\s*]+(@{_NAME.pattern})?")
_SECRET_BYTES = 32


def need_broker_name(name: str) -> None:
    """Refuse what can't be a broker's name."""
    if not _NAME.fullmatch(name):
        raise RegistryError(
            f"expected a broker's name of letters, digits, _ and -, at most {MOST_NAME}, not {name!r:.80}"
        )


class SqlLinks(Store):
    """The links of a registry."""

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
        """Make a link to the broker of a name; without a secret one is made."""
        need_broker_name(name)
        if secret is not None and len(secret) < LEAST_SECRET:
            raise RegistryError(f"expected a secret of at least {LEAST_SECRET} characters, not {len(secret)}")
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
            "transit": _transit(transit),
            "public": _public(public, name),
        }
        with self._changing("subscriptions") as connection:
            if connection.execute(sa.select(LINKS.c.name).where(LINKS.c.name == name)).first() is not None:
                raise RegistryError(f"there is a link to {name!r} already; remove it first")
            key = self._sealing_key(connection)
            sealed = secret if key is None else key.seal(secret, _place(name))
            connection.execute(LINKS.insert().values({**row, "secret": sealed}))
            return self._link(connection.execute(sa.select(LINKS).where(LINKS.c.name == name)).one())

    def change_link(
        self, name: str, *, transit: Iterable[str] | None = None, public: Iterable[str] | None = None
    ) -> Link:
        """Change what is believed of a neighbour; None leaves a setting as it is."""
        changes = {} if transit is None else {"transit": _transit(transit)}
        changes |= {} if public is None else {"public": _public(public, name)}
        is_it = LINKS.c.name == name
        with self._changing("subscriptions") as connection:
            row = connection.execute(sa.select(LINKS).where(is_it)).first()
            if row is None:
                raise _missing(connection, name)
            if changes:
                connection.execute(LINKS.update().where(is_it).values(changes))
            return self._link(connection.execute(sa.select(LINKS).where(is_it)).one())

    def links(self) -> dict[str, Link]:
        """All links by the name of the broker at the other end."""
        with self._engine.connect() as connection:
            return {row.name: self._link(row) for row in connection.execute(sa.select(LINKS).order_by(LINKS.c.name))}

    def remove_link(self, name: str) -> None:
        """Remove a link, and what was known of it."""
        with self._changing("subscriptions") as connection:
            if connection.execute(LINKS.delete().where(LINKS.c.name == name)).rowcount == 0:
                raise _missing(connection, name)

    def link_states(self, link: str) -> dict[Kept, str]:
        """What is kept of a link."""
        query = sa.select(LINK_STATES).where(LINK_STATES.c.link == link)
        with self._engine.connect() as connection:
            return {(row.kind, row.name): row.document for row in connection.execute(query)}

    def keep_link_states(self, link: str, states: Mapping[Kept, str | None]) -> None:
        """Keep something of a link, or, by None, no more; nothing where the link is gone. Not a change."""
        columns = LINK_STATES.c
        with self._engine.begin() as connection:
            if connection.execute(sa.select(LINKS.c.name).where(LINKS.c.name == link)).first() is None:
                return
            for (kind, name), document in states.items():
                is_it = (columns.link == link) & (columns.kind == kind) & (columns.name == name)
                connection.execute(LINK_STATES.delete().where(is_it))
                if document is not None:
                    row = {"link": link, "kind": kind, "name": name, "document": document}
                    connection.execute(LINK_STATES.insert().values(row))

    # Pinned keys ---------------------------------------------------------------------

    def trust_origin(self, name: str, keys: str) -> None:
        """Pin the public keys of a broker, in place of those that were pinned before."""
        need_broker_name(name)
        with self._changing("subscriptions") as connection:
            connection.execute(LINK_ORIGINS.delete().where(LINK_ORIGINS.c.name == name))
            row = {"name": name, "keys": keys, "created_at": self._clock()}
            connection.execute(LINK_ORIGINS.insert().values(row))

    def distrust_origin(self, name: str) -> None:
        """Remove the pinned keys of a broker."""
        with self._changing("subscriptions") as connection:
            if connection.execute(LINK_ORIGINS.delete().where(LINK_ORIGINS.c.name == name)).rowcount == 0:
                known = connection.execute(sa.select(LINK_ORIGINS.c.name)).scalars().all()
                raise NotRegistered(f"no keys of {name!r} are pinned{did_you_mean(name, known)}")

    def trusted_origins(self) -> dict[str, str]:
        """Return the pinned keys of all brokers that have some, by the broker's name."""
        query = sa.select(LINK_ORIGINS).order_by(LINK_ORIGINS.c.name)
        with self._engine.connect() as connection:
            return {row.name: row.keys for row in connection.execute(query)}

    # Secrets ---------------------------------------------------------------------------

    def _link(self, row: sa.Row[Any]) -> Link:
        services = None if row.services is None else tuple(json.loads(row.services))
        secret = self._opened(row.secret, *_place(row.name))
        created = timestamps.to_datetime(row.created_at)
        return Link(row.name, row.url, secret, services, created, _names(row.transit), _names(row.public))

    def _reseal_links(self, connection: sa.Connection, key: SecretKey) -> int:
        """Encrypt all secrets of links with a key, and return how many there are."""
        rows = connection.execute(sa.select(LINKS.c.name, LINKS.c.secret)).all()
        for row in rows:
            sealed = key.seal(self._opened(row.secret, *_place(row.name)), _place(row.name))
            connection.execute(LINKS.update().where(LINKS.c.name == row.name).values(secret=sealed))
        return len(rows)


def _place(name: str) -> tuple[str, str, str]:
    return "links", name, "secret"


def _transit(names: Iterable[str]) -> str:
    found = sorted(set(names))
    for each in found:
        if each != ANY:
            need_broker_name(each)
    return json.dumps(found)


def _public(names: Iterable[str], link: str) -> str:
    found = set()
    for each in names:
        if each != ANY and not _SERVICE.fullmatch(each):
            raise RegistryError(f"public: expected the name of a service such as gps or gps@{link}, not {each!r:.80}")
        found.add(each if each == ANY or ServiceName.parse(each).is_remote else str(ServiceName(each, link)))
    return json.dumps(sorted(found))


def _missing(connection: sa.Connection, name: str) -> NotRegistered:
    known = connection.execute(sa.select(LINKS.c.name)).scalars().all()
    return NotRegistered(f"there is no link to {name!r}{did_you_mean(name, known)}")


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(json.loads(text))
