"""Static tables of definitions that came over the network, read in the driver from files that it has opened itself."""

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
"""How large the files of a table may be: every task holds it in memory."""


def read(table: Table, open_file: Opener) -> pa.Table:
    """Read a table's rows; every column of a CSV file is text. Raises a `ServiceError`."""
    path = Path(str(table.path))
    try:
        if table_format(table) == "csv":
            with open_file(path) as file:
                return _of_csv(_content(file, MAX_TABLE_BYTES, path))
        return _of_parquet(list(parquet_files(path)) or [path], open_file)
    except (OSError, SourceError, pa.ArrowException) as error:
        raise ServiceError(f"can't read the table {table.path!r}: {error}") from error


def _content(file: BinaryIO, most: int, path: Path) -> bytes:
    size = os.fstat(file.fileno()).st_size
    content = file.read(most + 1) if size <= most else b""
    if size > most or len(content) > most:
        raise ServiceError(f"expected a table of at most {MAX_TABLE_BYTES} bytes: {str(path)!r} has more")
    return content


def _of_csv(content: bytes) -> pa.Table:
    # As everyone writes CSV: a quote inside quotes is doubled, and a value may have several lines.
    parsing = csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda _: "skip")
    names = csv.open_csv(io.BytesIO(content), parse_options=parsing).schema.names
    converting = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
    )
    found = csv.read_csv(io.BytesIO(content), parse_options=parsing, convert_options=converting)
    return found.rename_columns([name.strip() for name in found.column_names])


def _of_parquet(paths: list[Path], open_file: Opener) -> pa.Table:
    left, parts = MAX_TABLE_BYTES, []
    for path in paths:
        with open_file(path) as file:
            content = _content(file, left, path)
        left -= len(content)
        found = parquet.ParquetFile(pa.BufferReader(content))
        expanded = sum(found.metadata.row_group(n).total_byte_size for n in range(found.metadata.num_row_groups))
        if expanded > MAX_TABLE_BYTES:
            raise ServiceError(f"expected a table of at most {MAX_TABLE_BYTES} bytes: {str(path)!r} expands to more")
        parts.append(found.read())
    return pa.concat_tables(parts, promote_options="default")
