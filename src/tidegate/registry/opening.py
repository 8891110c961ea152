"""Opening a registry by the text that names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidegate.errors import RegistryError
from tidegate.registry.postgres import SCHEMES, PostgresRegistry
from tidegate.registry.registry import Ends
from tidegate.registry.secrets import Keyring
from tidegate.registry.sqlite import SqliteRegistry
from tidegate.registry.store import now_micros


def open_registry(
    where: str | Path,
    *,
    clock: Callable[[], int] | None = None,
    check_functions: bool = True,
    ends: Ends | None = None,
    keyring: Keyring | None = None,
) -> SqliteRegistry | PostgresRegistry:
    """Open the registry at a `postgresql://` URL, or in the SQLite file at a path.

    `ends` reads the end of streams in the log, where services that are applied begin.
    """
    scheme, separator, _ = str(where).partition("://")
    if separator and scheme in SCHEMES:
        return PostgresRegistry(str(where), clock=clock, check_functions=check_functions, keyring=keyring, ends=ends)
    if separator:
        raise RegistryError(f"a registry can't be at {scheme}://: expected postgresql:// or the path of a file")
    return SqliteRegistry(where, clock=clock or now_micros, check_functions=check_functions, keyring=keyring, ends=ends)
