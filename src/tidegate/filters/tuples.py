"""The (attribute, value) tuples of an Arrow record batch, column by column; `thematic` reads those of one event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.filters.arrow_columns import ArrowColumn, path_array, read_column
from tidegate.filters.nodes import Path
from tidegate.filters.thematic import Tuple, tags_in, tuple_paths, typed
from tidegate.model.schema import Schema
from tidegate.model.types import Enum

_SCALARS = frozenset({"string", "int", "float", "bool"})


def columns_of(batch: pa.RecordBatch, schema: Schema | None) -> Iterator[tuple[str, ArrowColumn]]:
    """Yield the attributes that are tuples: strings and enum labels as text, numbers and booleans as numbers.

    With a schema these are its attributes, without one all attributes that are not reserved. A value that is null, NaN
    or not of its type is no tuple.
    """
    paths = _leaves(batch.schema, ()) if schema is None else tuple_paths(schema)
    for name, path in paths:
        array = path_array(batch, path)
        if array is None:
            continue
        column = read_column(array, None)
        if isinstance(path.type, Enum):
            column = _labels(column, path.type)
        if column.kind not in _SCALARS:
            continue
        if path.type is None or (column.kind == "string") == (path.type.kind in ("string", "char", "enum")):
            yield name, column


def _leaves(fields: Any, outer: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Yield the columns of a batch that are no structs; of columns with the same name the first."""
    seen: set[str] = set()
    for field in fields:
        if field.name in seen or (not outer and field.name.startswith("_")):
            continue
        seen.add(field.name)
        parts = (*outer, field.name)
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, parts)
        else:
            yield ".".join(parts), Path(parts)


def _labels(column: ArrowColumn, kind: Enum) -> ArrowColumn:
    """Return an enum's column as text; a value that is none of its labels becomes null."""
    labels = pa.array(kind.labels, pa.string())
    if column.kind == "string":
        codes = pc.index_in(column.values.cast(pa.string()), labels)
    elif column.kind == "int":
        there = (column.values >= 0) & (column.values < len(kind.labels))
        there = there if column.valid is None else there & column.valid
        codes = pa.array(np.where(there, column.values, 0).astype(np.int32), mask=~there)
    else:
        return column
    return read_column(pa.DictionaryArray.from_arrays(codes, labels), None)


def rows_of(batch: pa.RecordBatch, schema: Schema | None) -> tuple[list[list[Tuple]], list[frozenset[str]]]:
    """Return the tuples of each event, and each event's own theme tags."""
    rows: list[list[Tuple]] = [[] for _ in range(batch.num_rows)]
    for name, column in columns_of(batch, schema):
        for n, value in enumerate(_values(column)):
            scalar = typed(value, None)
            if scalar is not None:
                rows[n].append((name, scalar))
    return rows, themes_of_rows(batch)


def _values(column: ArrowColumn) -> list[Any]:
    if column.kind == "string":
        texts: list[Any] = column.values.to_pylist()
        return texts
    values = column.values.astype(bool) if column.kind == "bool" else column.values
    scalars: list[Any] = values.tolist()
    return scalars if column.valid is None else [v if ok else None for v, ok in zip(scalars, column.valid, strict=True)]


def themes_of_rows(batch: pa.RecordBatch) -> list[frozenset[str]]:
    """Return the theme tags of each event; a column that holds neither strings nor lists gives no tags."""
    array = path_array(batch, Path(("_themes",)))
    if array is None or not _is_tags(array.type):
        return [frozenset()] * batch.num_rows
    return [tags_in(tags) for tags in array.to_pylist()]


def _is_tags(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(
        is_it(kind)
        for is_it in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_list,
            pa.types.is_large_list,
            pa.types.is_fixed_size_list,
            pa.types.is_list_view,
            pa.types.is_large_list_view,
        )
    )
