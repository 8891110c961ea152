"""Makes paths and URLs of new, empty registries."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import psycopg

_NUMBERS = count(1)


def new_file(folder: Path) -> str:
    return str(folder / f"registry-{next(_NUMBERS)}" / "registry.db")


def new_schema(url: str) -> str:
    """Create an empty schema in a database, and return its URL."""
    name = f"registry_{next(_NUMBERS)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{url}?options=-csearch_path%3D{name}"
