"""What columns a static table has."""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from tidegate.errors import MissingDependency, SchemaError
from tidegate.model import Schema
from tidegate.services.operators import Table
from tidegate.services.roots import Opener, open_any

MAX_HEADER_BYTES = 64 * 1024
"""How much of a CSV file is read to find its columns."""
MAX_FOOTER_BYTES = 16 * 1024 * 1024
"""How long the description at the end of a Parquet file may be."""
MAX_FILES = 10_000
"""How many files a folder of Parquet files may have."""


def table_format(table: Table) -> str:
    """Give a table's format, by its file's ending where it does not say."""
    return table.format or ("parquet" if (table.path or "").endswith(".parquet") else "csv")


def table_schema(table: Table, open_file: Opener = open_any) -> Schema:
    """Give a table's columns: as it says, else as its file does. A CSV file's columns are text.

    A file may be a folder of Parquet files. Reads no more than a header. Raises a `SchemaError`; what `open_file`
    raises of its own passes.
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
    """Give the Parquet files of a folder in order; nothing where the path is no folder. Follows no links to folders."""
    found: list[Path] = []
    for folder, _, names in os.walk(path):
        found += [Path(folder, name) for name in names if name.endswith(".parquet")]
        if len(found) > MAX_FILES:
            raise SchemaError(f"expected at most {MAX_FILES} Parquet files below {str(path)!r}")
    yield from sorted(found)


def _of_csv(file: BinaryIO, path: Path) -> Schema:
    head = file.read(MAX_HEADER_BYTES)
    is_whole = len(head) < MAX_HEADER_BYTES
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head, final=is_whole)
        lines = io.StringIO(text, newline="")
        header = next(csv.reader(lines), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise SchemaError(f"expected a CSV file in UTF-8: {path.name!r} is none: {error}") from error
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
        found: Any = parquet.read_schema(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise SchemaError(f"expected a Parquet file: {path.name!r} is none: {error}") from error
    return Schema.from_arrow(found)
