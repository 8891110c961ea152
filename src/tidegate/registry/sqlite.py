"""The embedded registry: one SQLite file that any number of processes share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tidegate.errors import RegistryError
from tidegate.registry.sql import SqlRegistry

BUSY_TIMEOUT_S = 30.0
"""How long a change waits for another to end: a change takes milliseconds, unless it imports functions."""


def now_micros() -> int:
    """The moment, in microseconds since 1970 UTC."""
    return time.time_ns() // 1_000


class SqliteRegistry(SqlRegistry):
    """A registry in a SQLite file, which is made where there is none.

    `check_functions`: whether `apply` imports what custom operators name.
    """

    def __init__(
        self, path: str | Path, *, clock: Callable[[], int] = now_micros, check_functions: bool = True
    ) -> None:
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RegistryError(f"can't make the folder of {str(path)!r}: {error.strerror}") from error
        url = sa.URL.create("sqlite", database=str(path))
        engine = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
        sa.event.listen(engine, "connect", _prepare)
        try:
            super().__init__(engine, clock, check_functions)
        except sa.exc.DatabaseError as error:
            engine.dispose()
            raise RegistryError(f"expected a registry in {str(path)!r}: {error.orig}") from error


def _prepare(connection: Any, _: object) -> None:
    """Set a connection up: readers never wait for a writer. Every commit is on disk, as changes are rare."""
    cursor = connection.cursor()
    mode = cursor.execute("PRAGMA journal_mode").fetchone()[0]
    if mode != "wal":
        cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()
