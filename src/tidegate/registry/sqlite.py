"""The embedded registry: one SQLite file that any number of processes share."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tidegate.errors import RegistryError
from tidegate.registry.registry import Ends
from tidegate.registry.secrets import Keyring
from tidegate.registry.sql import SqlRegistry
from tidegate.registry.store import now_micros

BUSY_TIMEOUT_S = 30.0
"""How long a change waits for another to end: a change takes milliseconds, unless it imports functions."""
_LOOK_AGAIN_S = 0.005


class SqliteRegistry(SqlRegistry):
    """A registry in a SQLite file, which is made where there is none.

    `check_functions`: whether `apply` imports what custom operators name. `keyring`: what secrets are encrypted with.
    `ends` reads the log's end, where new services begin.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], int] = now_micros,
        check_functions: bool = True,
        ends: Ends | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RegistryError(f"can't make the folder of {str(path)!r}: {error.strerror}") from error
        with suppress(OSError):  # it is there; or who can't make it is told so by SQLite
            path.touch(mode=0o600, exist_ok=False)  # it holds what webhooks and links are signed with
        url = sa.URL.create("sqlite", database=str(path))
        engine = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
        sa.event.listen(engine, "connect", _prepare)
        super().__init__(engine, clock, f"in {str(path)!r}", check_functions, keyring, ends)

    def _scrub(self) -> None:
        # What is overwritten stays in free pages and in the write-ahead log until these are written anew. Another
        # process that reads may keep the log: then its next checkpoint does it.
        with suppress(RegistryError), self._engine.connect() as connection:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql("VACUUM")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def _prepare(connection: Any, _: object) -> None:
    """Set a connection up: readers never wait for a writer. Every commit is on disk, as changes are rare."""
    cursor = connection.cursor()
    _write_ahead(cursor)
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA secure_delete=ON")  # of a secret that is replaced or removed nothing stays in the file
    cursor.close()


def _write_ahead(cursor: sqlite3.Cursor) -> None:
    """Let the file have a write-ahead log, which it then keeps."""
    until = time.monotonic() + BUSY_TIMEOUT_S
    while cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            # For this SQLite does not wait by itself while another writes, as one does that opens a new file too.
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # the low byte: the rest says of which kind
            if not busy or time.monotonic() > until:
                raise
            time.sleep(_LOOK_AGAIN_S)
