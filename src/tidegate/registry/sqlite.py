"""The embedded registry: a SQLite file that several processes share."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tidegate.errors import RegistryError
from tidegate.registry.records import EndReader
from tidegate.registry.secrets import Keyring
from tidegate.registry.sql import SqlRegistry
from tidegate.registry.store import now_micros

BUSY_TIMEOUT_S = 30.0
"""How long a change waits for other changes. A change takes milliseconds, unless it imports functions."""
_BUSY_POLL_INTERVAL_S = 0.005


class SqliteRegistry(SqlRegistry):
    """A registry in a SQLite file, which is created if it does not exist. Only its owner may read the file.

    See `open_registry` for the arguments.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], int] = now_micros,
        check_functions: bool = True,
        read_ends: EndReader | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RegistryError(f"can't make the folder of {str(path)!r}: {error.strerror}") from error
        with suppress(OSError):  # the file exists, or SQLite reports the error below
            path.touch(mode=0o600, exist_ok=False)  # it contains the secrets of webhooks and links
        url = sa.URL.create("sqlite", database=str(path))
        engine = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
        sa.event.listen(engine, "connect", _prepare)
        name = f"in {str(path)!r}"
        super().__init__(engine, clock, name, keyring, check_functions=check_functions, read_ends=read_ends)

    def _erase_overwritten(self) -> None:
        # Overwritten text stays in free pages and in the write-ahead log until both are rewritten. If another process
        # is reading, the log can't be truncated now; the next checkpoint does it.
        with suppress(RegistryError), self._engine.connect() as connection:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql("VACUUM")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def _prepare(connection: Any, _: object) -> None:
    """Configure a new connection: readers do not wait for writers, and every commit is synced to disk."""
    cursor = connection.cursor()
    _enable_write_ahead_log(cursor)
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA secure_delete=ON")  # overwrite deleted secrets in the file
    cursor.close()


def _enable_write_ahead_log(cursor: sqlite3.Cursor) -> None:
    """Switch the file to a write-ahead log, which is permanent; wait while another process writes."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            # SQLite's own busy timeout does not apply to this statement. Another process may just be creating the file.
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # the low byte is the primary error code
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_POLL_INTERVAL_S)
