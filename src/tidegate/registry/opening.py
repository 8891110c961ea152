"""Opens a registry by its URL or path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidegate.errors import RegistryError
from tidegate.registry.postgres import SCHEMES, PostgresRegistry
from tidegate.registry.records import EndReader
from tidegate.registry.secrets import Keyring
from tidegate.registry.sqlite import SqliteRegistry
from tidegate.registry.store import now_micros


def open_registry(
    where: str | Path,
    *,
    clock: Callable[[], int] | None = None,
    check_functions: bool = True,
    read_ends: EndReader | None = None,
    keyring: Keyring | None = None,
) -> SqliteRegistry | PostgresRegistry:
    """Open the registry at a `postgresql://` URL, or in the SQLite file at a path.

    Creates or migrates the tables. `clock` returns microseconds since 1970 UTC; None: the system's. With
    `check_functions`, `apply` imports what custom operators name. `read_ends` reads the end of the log, where applied
    services start. `keyring` encrypts secrets; None: they are stored as plain text. Raises `RegistryError` if the
    registry can't be opened.
    """
    scheme, separator, _ = str(where).partition("://")
    if separator and scheme in SCHEMES:
        return PostgresRegistry(
            str(where), clock=clock, check_functions=check_functions, keyring=keyring, read_ends=read_ends
        )
    if separator:
        raise RegistryError(f"a registry can't be at {scheme}://: expected postgresql:// or the path of a file")
    return SqliteRegistry(
        where, clock=clock or now_micros, check_functions=check_functions, keyring=keyring, read_ends=read_ends
    )
