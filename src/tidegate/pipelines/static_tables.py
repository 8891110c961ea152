"""Reads static tables of remote definitions in the driver, from files that it opens itself and checks."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyarrow import csv, parquet

from tidegate.errors import ServiceError, SourceError
from tidegate.services.operators import Table
from tidegate.services.roots import Opener
from tidegate.services.tables import parquet_files, table_format

MAX_TABLE_BYTES = 256 * 1024 * 1024
"""Largest size of the files of a table: every task has the table in memory."""


def read(table: Table, open_file: Opener) -> pa.Table:
    """Return the rows of a table; every column of a CSV file is text. Raises ServiceError."""
    path = Path(str(table.path))
    try:
        if table_format(table) == "csv":
            with open_file(path) as file:
                return _of_csv(_content(file, MAX_TABLE_BYTES, path))
        return _of_parquet(list(parquet_files(path)) or [path], open_file)
    except (OSError, SourceError, pa.ArrowException) as error:
        raise ServiceError(f"can't read the table {table.path!r}: {error}") from error


def _content(file: BinaryIO, max_bytes: int, path: Path) -> bytes:
    size = os.fstat(file.fileno()).st_size
    content = file.read(max_bytes + 1) if size <= max_bytes else b""
    if size > max_bytes or len(content) > max_bytes:
        raise ServiceError(f"expected a table of at most {MAX_TABLE_BYTES} bytes: {str(path)!r} has more")
    return content


def _of_csv(content: bytes) -> pa.Table:
    # Usual CSV: a quote inside of quotes is doubled, and a value may contain line breaks.
    parsing = csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda _: "skip")
    names = csv.open_csv(io.BytesIO(content), parse_options=parsing).schema.names
    converting = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
    )
    table = csv.read_csv(io.BytesIO(content), parse_options=parsing, convert_options=converting)
    return table.rename_columns([name.strip() for name in table.column_names])


def _of_parquet(paths: list[Path], open_file: Opener) -> pa.Table:
    remaining_bytes, parts = MAX_TABLE_BYTES, []
    for path in paths:
        with open_file(path) as file:
            content = _content(file, remaining_bytes, path)
        remaining_bytes -= len(content)
        parquet_file = parquet.ParquetFile(pa.BufferReader(content))
        expanded = sum(
            parquet_file.metadata.row_group(n).total_byte_size for n in range(parquet_file.metadata.num_row_groups)
        )
        if expanded > MAX_TABLE_BYTES:
            raise ServiceError(f"expected a table of at most {MAX_TABLE_BYTES} bytes: {str(path)!r} expands to more")
        parts.append(parquet_file.read())
    return pa.concat_tables(parts, promote_options="default")
