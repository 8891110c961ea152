"""What columns a static table has."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from tidegate.errors import MissingDependency, SchemaError
from tidegate.model import Schema
from tidegate.services.operators import Table


def table_format(table: Table) -> str:
    """Give a table's format, by its file's ending where it does not say."""
    return table.format or ("parquet" if (table.path or "").endswith(".parquet") else "csv")


def table_schema(table: Table) -> Schema:
    """Give a table's columns: as it says, else as its file does. A CSV file's columns are text.

    A file may be a folder of Parquet files. Raises a `SchemaError`.
    """
    if table.schema is not None:
        return table.schema
    if table_format(table) == "jdbc" or table.path is None:
        raise SchemaError("expected a schema for a table in a database, such as schema: {cid: string, road: string?}")
    try:
        return _of_parquet(Path(table.path)) if table_format(table) == "parquet" else _of_csv(Path(table.path))
    except OSError as error:
        raise SchemaError(f"can't read {table.path!r}: {error.strerror or error}; or give a schema") from error


def _of_csv(path: Path) -> Schema:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise SchemaError(f"expected a CSV file in UTF-8: {path.name!r} is none: {error}") from error
    names = [name.strip() for name in header]
    if not names or "" in names or len(set(names)) < len(names):
        raise SchemaError(f"expected a first line with a name for every column, each once, not {header}")
    return Schema(dict.fromkeys(names, "string?"))


def _of_parquet(path: Path) -> Schema:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as exc:
        raise MissingDependency("pyarrow", "arrow") from exc
    file = next(iter(sorted(path.glob("**/*.parquet"))), path) if path.is_dir() else path
    try:
        found: Any = parquet.read_schema(file)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"expected a Parquet file: {file.name!r} is none: {error}") from error
    return Schema.from_arrow(found)
