"""Reads the columns of an Arrow record batch as numpy arrays that filters compare.

Numbers are views of Arrow's own memory. Text stays in Arrow; `distinct` numbers its distinct values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.filters.nodes import Path
from tidegate.filters.values import plain
from tidegate.filters.vectors import BoolArray
from tidegate.model import timestamps
from tidegate.model.types import Enum, Type


@dataclass(slots=True)
class ArrowColumn:
    """One attribute of a batch: numbers as numpy, text as Arrow."""

    kind: str
    """One of bool, int, float, string, time (without a schema), and other, which compares with nothing."""
    values: Any
    valid: BoolArray | None
    """Which rows have a value; None: all of them."""


def in_one_piece(batch: Any) -> Any:
    """Return a table as one record batch, and any other value unchanged."""
    if not isinstance(batch, pa.Table):
        return batch
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in batch.columns], schema=batch.schema)


def path_array(batch: pa.RecordBatch, path: Path) -> pa.Array | None:
    """Return the array at a path; None if the batch has no such attribute."""
    name, *rest = path.parts
    at = batch.schema.get_all_field_indices(name)
    array = batch.column(at[0]) if at else None
    for part in rest:
        if array is None:
            return None
        array = _element(array, part) if isinstance(part, int) else _member(array, part)
    if array is not None and pa.types.is_run_end_encoded(array.type):
        return pc.run_end_decode(array)
    return array


def _member(array: pa.Array, name: str) -> pa.Array | None:
    kind = array.type
    if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
        return None
    return pc.struct_field(array, kind.get_field_index(name))


def _element(array: pa.Array, index: int) -> pa.Array | None:
    """Return element `index` of each list; null for lists that are too short."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        if index >= kind.list_size:
            return pa.nulls(len(array), kind.value_type)
        at = (np.arange(len(array)) + array.offset) * kind.list_size + index
        there = _valid(array)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = array.offsets.to_numpy()
        at = offsets[:-1].astype(np.int64) + index
        there = at < offsets[1:]
        valid = _valid(array)
        there = there if valid is None else there & valid
    else:
        return None
    indices = pa.array(at, mask=None if there is None else ~there)
    return array.values.take(indices)


def read_column(array: pa.Array, kind: Type | None) -> ArrowColumn:
    """Return an Arrow array as a column that filters compare, by the schema's type or else by Arrow's."""
    column = _arrow_column(array)
    expected = kind.kind if kind is not None else ""
    if isinstance(kind, Enum):
        return _enum_column(column, kind)
    if expected == "time":
        if column.kind == "string":
            return _times_from_text(column)
        return ArrowColumn("int" if column.kind == "time" else "other", column.values, column.valid)
    if expected in ("string", "char"):
        return column if column.kind == "string" else ArrowColumn("other", column.values, column.valid)
    if expected and column.kind == "time":
        return ArrowColumn("other", column.values, column.valid)
    if kind is not None and str(kind) == "float32" and column.kind in ("int", "float"):
        with np.errstate(over="ignore"):
            return ArrowColumn("float", column.values.astype(np.float64).astype(np.float32), column.valid)
    if kind is not None and str(kind) == "float32":
        return ArrowColumn("other", column.values, column.valid)
    return column


def _arrow_column(array: pa.Array) -> ArrowColumn:
    kind = array.type
    if pa.types.is_dictionary(kind) and not pa.types.is_string(kind.value_type):
        # Arrow can't decode a dictionary of string views; cast to plain strings, it need not be decoded.
        textual = pa.types.is_string_view(kind.value_type) or pa.types.is_large_string(kind.value_type)
        array = _plain_dictionary(array) if textual else array.dictionary_decode()
        kind = array.type
    valid = _valid(array)
    if pa.types.is_floating(kind):
        return ArrowColumn("float", _numpy(array), valid)
    if pa.types.is_integer(kind):
        return ArrowColumn("int", _numpy(array), valid)
    if pa.types.is_boolean(kind):
        values = array.fill_null(False) if array.null_count else array
        return ArrowColumn("bool", values.to_numpy(zero_copy_only=False).view(np.uint8), valid)
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind):
        return ArrowColumn("string", array, valid)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return ArrowColumn("string", array.cast(pa.string()), valid)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _time_column(array, valid)
    if pa.types.is_decimal(kind):
        return _decimal_column(array, valid)
    return ArrowColumn("other", None, valid)


def _numpy(array: pa.Array) -> Any:
    """Return the numbers of an array as a view of Arrow's memory; the values at nulls are arbitrary."""
    kind = array.type
    width = kind.bit_width // 8
    dtype = np.dtype(kind.to_pandas_dtype())
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), dtype=dtype)
    return np.frombuffer(data, dtype=dtype, count=len(array), offset=array.offset * width)


def _plain_dictionary(array: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.string()))


def _time_column(array: pa.Array, valid: BoolArray | None) -> ArrowColumn:
    """Return times as microseconds since 1970 UTC, rounded down; times that 64 bits can't hold become null."""
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("ms"))
    ticks = np.asarray(array.cast(pa.int64()).fill_null(0))
    factor = {"s": 1_000_000, "ms": 1000, "us": 1}.get(array.type.unit)
    if factor is None:
        return ArrowColumn("time", ticks // 1000, valid)
    if factor > 1:
        fits = np.abs(ticks) <= (2**63 - 1) // factor
        if not fits.all():
            valid = fits if valid is None else valid & fits
        ticks = np.where(fits, ticks, 0) * factor
    return ArrowColumn("time", ticks, valid)


def _decimal_column(array: pa.Array, valid: BoolArray | None) -> ArrowColumn:
    """Return decimals as `evaluate` reads them; integral ones, such as Spark's uint64, exactly as integers."""
    whole = array.type.scale == 0
    if whole:
        for kind in (pa.int64(), pa.uint64()):
            try:
                return ArrowColumn("int", _numpy(array.cast(kind)), valid)
            except pa.ArrowInvalid:
                continue
    values = np.empty(len(array), dtype=object)
    values[:] = [0 if decimal is None else plain(decimal) for decimal in array.to_pylist()]
    return ArrowColumn("int" if whole else "float", values, valid)


def _enum_column(column: ArrowColumn, kind: Enum) -> ArrowColumn:
    """Return labels as positions; an unknown label becomes null."""
    if column.kind != "string":
        return column if column.kind == "int" else ArrowColumn("other", column.values, column.valid)
    codes, texts = distinct(column.values)
    positions = {label: n for n, label in enumerate(kind.labels)}
    mapped = np.fromiter((positions.get(text, -1) for text in texts), dtype=np.int64, count=len(texts))
    values = spread(mapped, codes, -1)
    return ArrowColumn("int", values, values >= 0)


def _times_from_text(column: ArrowColumn) -> ArrowColumn:
    codes, texts = distinct(column.values)
    read = [timestamps.from_text(text) for text in texts]
    micros = np.fromiter((0 if time is None else time for time in read), dtype=np.int64, count=len(read))
    known = np.fromiter((time is not None for time in read), dtype=bool, count=len(read))
    return ArrowColumn("int", spread(micros, codes, 0), spread(known, codes, False))


def distinct(array: pa.Array) -> tuple[Any, list[str]]:
    """Return for each row the index of its text, and the distinct texts; the index is -1 for null."""
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes = np.asarray(encoded.indices.cast(pa.int64()).fill_null(-1))
    texts = encoded.dictionary.to_pylist()
    if None in texts:  # a null inside a dictionary is also null
        codes = np.where(np.isin(codes, [n for n, text in enumerate(texts) if text is None]), -1, codes)
        texts = ["" if text is None else text for text in texts]
    return codes, texts


def spread(verdicts: Any, codes: Any, missing: Any) -> Any:
    """Return the verdict of each row, given the verdict of each distinct value."""
    return np.append(verdicts, np.asarray([missing], dtype=verdicts.dtype))[codes]


def _valid(array: pa.Array) -> BoolArray | None:
    return to_mask(array.is_valid()) if array.null_count else None


def to_mask(array: pa.Array) -> BoolArray:
    """Return an Arrow array of truth values as numpy; null becomes False."""
    filled = array.fill_null(False) if array.null_count else array
    mask: BoolArray = filled.to_numpy(zero_copy_only=False)
    return mask


def to_python(array: pa.Array) -> list[Any]:
    """Return an array as Python values; a value that Python can't hold, such as a time in the year 20000, becomes None.

    Times are cut to microseconds.
    """
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    try:
        values: list[Any] = array.to_pylist()
    except (OverflowError, ValueError):
        return [_python_value(item) for item in array]
    return values


def _python_value(item: Any) -> Any:
    try:
        return item.as_py()
    except (OverflowError, ValueError):
        return None
