"""Finds the columns of static tables."""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from tidegate.errors import MissingDependency, SchemaError
from tidegate.model import Schema
from tidegate.services.roots import Opener, open_any

MAX_HEADER_BYTES = 64 * 1024
"""How much of a CSV file is read to find its columns."""
MAX_FOOTER_BYTES = 16 * 1024 * 1024
"""The longest footer of a Parquet file."""
MAX_FILES = 10_000
"""The largest number of files in a folder of Parquet files."""


@dataclass(frozen=True)
class Table:
    """A static table on disk or in a database."""

    path: str | None = None
    format: Literal["csv", "parquet", "jdbc"] | None = None
    """None: by the ending of the file's name."""
    schema: Schema | None = None
    url: str | None = None
    table: str | None = None
    connection: str | None = None
    """A connection of the profile, instead of a URL."""


def table_format(table: Table) -> str:
    """Return the format of a table, derived from the file name if the definition has none."""
    return table.format or ("parquet" if (table.path or "").endswith(".parquet") else "csv")


def table_schema(table: Table, open_file: Opener = open_any) -> Schema:
    """Return the columns of a table: those of its definition, otherwise those of its file. Columns of CSV are text.

    The file may be a folder of Parquet files. Reads only the header or footer. Raises `SchemaError`, or what
    `open_file` raises except `OSError`.
    """
    if table.schema is not None:
        return table.schema
    if table_format(table) == "jdbc" or table.path is None:
        raise SchemaError("expected a schema for a table in a database, such as schema: {cid: string, road: string?}")
    path = Path(table.path)
    try:
        if table_format(table) == "csv":
            with open_file(path) as file:
                return _of_csv(file, path)
        file_path = next(parquet_files(path), path)
        with open_file(file_path) as file:
            return _of_parquet(file, file_path)
    except OSError as error:
        raise SchemaError(f"can't read {table.path!r}: {error.strerror or error}; or give a schema") from error


def parquet_files(path: Path) -> Iterator[Path]:
    """Yield the Parquet files below a folder, sorted; none if the path is not a folder. Ignores links to folders."""
    paths: list[Path] = []
    for folder, _, names in os.walk(path):
        paths += [Path(folder, name) for name in names if name.endswith(".parquet")]
        if len(paths) > MAX_FILES:
            raise SchemaError(f"expected at most {MAX_FILES} Parquet files below {str(path)!r}")
    yield from sorted(paths)


def _of_csv(file: BinaryIO, path: Path) -> Schema:
    head = file.read(MAX_HEADER_BYTES)
    is_whole = len(head) < MAX_HEADER_BYTES
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head, final=is_whole)
        lines = io.StringIO(text, newline="")
        header = next(csv.reader(lines), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise SchemaError(f"expected a CSV file in UTF-8, and {path.name!r} is not one: {error}") from error
    if not is_whole and lines.tell() == len(text):
        raise SchemaError(f"expected a first line of at most {MAX_HEADER_BYTES} bytes in {path.name!r}")
    names = [name.strip() for name in header]
    if not names or "" in names or len(set(names)) < len(names):
        raise SchemaError("expected a first line with a name for every column, each once")
    return Schema(dict.fromkeys(names, "string?"))


def _of_parquet(file: BinaryIO, path: Path) -> Schema:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as exc:
        raise MissingDependency("pyarrow", "arrow") from exc
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    if int.from_bytes(file.read(8)[:4], "little") > MAX_FOOTER_BYTES:
        raise SchemaError(f"expected a Parquet file with a footer of at most {MAX_FOOTER_BYTES} bytes: {path.name!r}")
    file.seek(0)
    try:
        schema: Any = parquet.read_schema(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise SchemaError(f"expected a Parquet file, and {path.name!r} is not one: {error}") from error
    return Schema.from_arrow(schema)
