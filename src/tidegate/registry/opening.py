"""Opening a registry by the text that names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidegate.errors import RegistryError
from tidegate.registry.postgres import SCHEMES, PostgresRegistry
from tidegate.registry.registry import Ends
from tidegate.registry.sqlite import SqliteRegistry


def open_registry(
    where: str | Path,
    *,
    clock: Callable[[], int] | None = None,
    check_functions: bool = True,
    ends: Ends | None = None,
) -> SqliteRegistry | PostgresRegistry:
    """Open the registry at a `postgresql://` URL, or in the SQLite file at a path.

    `ends` reads the end of streams in the log, where services that are applied begin.
    """
    scheme, separator, _ = str(where).partition("://")
    if separator and scheme in SCHEMES:
        return PostgresRegistry(str(where), clock=clock, check_functions=check_functions, ends=ends)
    if separator:
        raise RegistryError(f"a registry can't be at {scheme}://: expected postgresql:// or the path of a file")
    if clock is None:
        return SqliteRegistry(where, check_functions=check_functions, ends=ends)
    return SqliteRegistry(where, clock=clock, check_functions=check_functions, ends=ends)
