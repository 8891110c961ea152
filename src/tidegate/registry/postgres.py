"""The registry of a cluster: a PostgreSQL database that any number of machines share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from tidegate.errors import MissingDependency, RegistryError
from tidegate.registry.registry import Ends
from tidegate.registry.secrets import Keyring
from tidegate.registry.sql import SqlRegistry
from tidegate.registry.store import now_micros

SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
CONNECT_TIMEOUT_S = 10
"""How long to wait for a server that does not answer, unless the URL says `connect_timeout`."""
LOCK_TIMEOUT_S = 30.0
"""How long a change waits for another to end: a change takes milliseconds, unless it imports functions."""

_SERVER_NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"


class PostgresRegistry(SqlRegistry):
    """A registry in a PostgreSQL database: `postgresql://user:password@host:port/database`.

    `clock`: None: this machine's for when something changed, the server's for leases, because the clocks of
    several machines differ. `check_functions`: whether `apply` imports what custom operators name. `ends` reads the
    log's end, where new services begin.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], int] | None = None,
        check_functions: bool = True,
        ends: Ends | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        self._server_clock = clock is None
        place = _read(url)
        wait = {} if "connect_timeout" in place.query else {"connect_timeout": CONNECT_TIMEOUT_S}
        try:
            # Whoever waits for the lock must see what the one before did: no stricter isolation than this.
            # A connection is looked at before it is used: servers are restarted.
            engine = sa.create_engine(place, connect_args=wait, isolation_level="READ COMMITTED", pool_pre_ping=True)
        except ImportError as exc:
            raise MissingDependency("psycopg", "postgres") from exc
        sa.event.listen(engine, "connect", _prepare)
        super().__init__(engine, clock or now_micros, _show(place), check_functions, keyring, ends)

    def _moment(self) -> tuple[str, dict[str, Any]]:
        return (_SERVER_NOW, {}) if self._server_clock else super()._moment()


def _prepare(connection: Any, _: object) -> None:
    """Set a connection up."""
    connection.execute(f"SET lock_timeout = {round(LOCK_TIMEOUT_S * 1_000)}")
    connection.commit()


def _read(url: str) -> sa.URL:
    """Read a URL. What is wrong with one is not shown: it may be the password."""
    try:
        place = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        place = None
    if place is None or place.drivername not in SCHEMES:
        raise RegistryError(
            "expected postgresql://user:password@host:port/database, with % / @ : in a password as %25 %2F %40 %3A"
        )
    return place.set(drivername="postgresql+psycopg")


def _show(place: sa.URL) -> str:
    """A database without its user and password."""
    hosts = place.query.get("host", place.host)
    host = ", ".join(hosts) if isinstance(hosts, tuple) else hosts
    port = place.query.get("port", place.port or 5432)
    return f"{place.database or ''!r} of PostgreSQL at {host or 'localhost'}:{port}"
