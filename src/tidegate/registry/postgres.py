"""The registry of a cluster: a PostgreSQL database that several machines share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from tidegate.errors import MissingDependency, RegistryError
from tidegate.registry.records import EndReader
from tidegate.registry.secrets import Keyring
from tidegate.registry.sql import SqlRegistry
from tidegate.registry.store import now_micros

SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
CONNECT_TIMEOUT_S = 10
"""The connect timeout, unless the URL has `connect_timeout`."""
LOCK_TIMEOUT_S = 30.0
"""How long a change waits for other changes. A change takes milliseconds, unless it imports functions."""

_SERVER_NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"


class PostgresRegistry(SqlRegistry):
    """A registry in a PostgreSQL database: `postgresql://user:password@host:port/database`.

    Without `clock`, this machine's clock gives the times of changes, and the server's clock those of leases, because
    the clocks of several machines differ. See `open_registry` for the other arguments.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], int] | None = None,
        check_functions: bool = True,
        read_ends: EndReader | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        self._server_clock = clock is None
        location = _parse_url(url)
        timeout = {} if "connect_timeout" in location.query else {"connect_timeout": CONNECT_TIMEOUT_S}
        try:
            # READ COMMITTED, because a change that waited for the lock must see the change before it.
            # Connections are tested before use, because the server may have been restarted.
            engine = sa.create_engine(
                location, connect_args=timeout, isolation_level="READ COMMITTED", pool_pre_ping=True
            )
        except ImportError as exc:
            raise MissingDependency("psycopg", "postgres") from exc
        sa.event.listen(engine, "connect", _prepare)
        super().__init__(
            engine,
            clock or now_micros,
            _describe(location),
            keyring,
            check_functions=check_functions,
            read_ends=read_ends,
        )

    def _now_sql(self) -> tuple[str, dict[str, Any]]:
        return (_SERVER_NOW, {}) if self._server_clock else super()._now_sql()


def _prepare(connection: Any, _: object) -> None:
    """Configure a new connection."""
    connection.execute(f"SET lock_timeout = {round(LOCK_TIMEOUT_S * 1_000)}")
    connection.commit()


def _parse_url(url: str) -> sa.URL:
    """Parse a URL. Errors do not quote it, because it may contain a password."""
    try:
        location = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        location = None
    if location is None or location.drivername not in SCHEMES:
        raise RegistryError(
            "expected postgresql://user:password@host:port/database, with % / @ : in a password as %25 %2F %40 %3A"
        )
    return location.set(drivername="postgresql+psycopg")


def _describe(location: sa.URL) -> str:
    """Return the name and address of a database, without user and password."""
    hosts = location.query.get("host", location.host)
    host = ", ".join(hosts) if isinstance(hosts, tuple) else hosts
    port = location.query.get("port", location.port or 5432)
    return f"{location.database or ''!r} of PostgreSQL at {host or 'localhost'}:{port}"
