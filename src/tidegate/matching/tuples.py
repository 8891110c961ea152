"""The (attribute, value) tuples of a batch as codes: the distinct values per attribute, and the code of each event."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.filters.arrow_columns import ArrowColumn, distinct, path_array
from tidegate.filters.nodes import Path
from tidegate.filters.thematic import TupleValue, themes_of, tuple_reader
from tidegate.filters.tuples import columns_of, themes_of_rows
from tidegate.matching import meaning_kernels
from tidegate.model.numbers import nearest_float
from tidegate.model.schema import Schema


@dataclass(frozen=True, slots=True)
class TupleColumn:
    """One attribute of a batch."""

    attribute: str
    codes: Any
    """Index of each event's value in `values`; -1: no value, `IRRELEVANT`: a value that can't match."""
    values: Sequence[TupleValue]


@dataclass(frozen=True, slots=True)
class BatchThemes:
    """The theme tags of a batch's events."""

    codes: Any
    """Index of each event's tags in `sets`; None: all events have the same tags."""
    sets: Sequence[frozenset[str]]


WantedNumbers = frozenset[int | float]
"""Numbers that predicates compare with; other numbers can't match. None: only texts can match, and it does not matter
whether a number is present.
"""

IRRELEVANT = -2
"""Code of a value that is present but can't be part of a match."""


def of_batch(batch: pa.RecordBatch, schema: Schema | None, numbers: WantedNumbers | None) -> list[TupleColumn]:
    """Return the tuples of a record batch, one column per attribute."""
    columns = []
    for attribute, column in columns_of(batch, schema):
        if column.kind == "string":
            codes, texts = distinct(column.values)
            columns.append(TupleColumn(attribute, codes, texts))
        elif numbers is not None:
            columns.append(_numbers(attribute, column, numbers))
    return columns


def _numbers(attribute: str, column: ArrowColumn, numbers: WantedNumbers) -> TupleColumn:
    values, wanted_numbers = column.values, sorted(numbers)
    scalars: Sequence[TupleValue] = wanted_numbers
    if column.kind == "bool":
        codes, scalars = values.astype(np.int64), (False, True)
    else:
        codes = np.full(len(values), IRRELEVANT)
        values = values.astype(np.float64) if column.kind == "float" and values.dtype != object else values
        codes[values != values] = -1
        for code, number in enumerate(wanted_numbers):
            number_in_column = nearest_float(number) if column.kind == "float" else _whole(number)
            if number_in_column == number:  # else no value of this column equals it
                codes[values == number_in_column] = code
    if column.valid is not None:
        codes[~column.valid] = -1
    return TupleColumn(attribute, codes, scalars)


def _whole(number: int | float) -> int:
    return number if isinstance(number, int) else int(number) if math.isfinite(number) else 0


def of_rows(
    rows: Sequence[Mapping[str, Any]], schema: Schema | None, numbers: WantedNumbers | None
) -> list[TupleColumn]:
    """Return the tuples of events that are dicts, one column per attribute."""
    read = tuple_reader(schema)
    columns: dict[str, tuple[dict[Any, int], list[int], list[int]]] = {}
    for n, row in enumerate(rows):
        for attribute, value in read(row):
            key: Any = value
            if value.__class__ is not str:
                if numbers is None:
                    continue
                key = (value.__class__ is bool, value)  # keep True and 1 apart
                if value.__class__ is not bool and value not in numbers:
                    key = None
            column = columns.get(attribute)
            if column is None:
                column = columns[attribute] = {}, [], []
            column[1].append(n)
            column[2].append(IRRELEVANT if key is None else column[0].setdefault(key, len(column[0])))
    tuple_columns = []
    for attribute, (places, at, own) in columns.items():
        codes = np.full(len(rows), -1)
        codes[at] = own
        values = [key if isinstance(key, str) else key[1] for key in places]
        tuple_columns.append(TupleColumn(attribute, codes, values))
    return tuple_columns


def themes_of_batch(batch: pa.RecordBatch) -> BatchThemes:
    """Return the theme tags of a record batch's events; equal lists of tags are found by hash."""
    array = path_array(batch, Path(("_themes",)))
    if array is None or not batch.num_rows:
        return BatchThemes(None, [frozenset()])
    plain = pa.types.is_list(array.type) or pa.types.is_large_list(
        array.type
    )  # other types are rare, and read one by one
    if not plain or not pa.types.is_string(array.type.value_type):
        return _interned(themes_of_rows(batch))
    offsets = array.offsets.to_numpy().astype(np.int64)
    begin, end = offsets[:-1], offsets[1:]
    if array.null_count:  # the values behind a null list don't count
        end = np.where(np.asarray(array.is_valid()), end, begin)
    codes, tags = distinct(array.values)
    hashes = np.empty(len(array), np.uint64)
    meaning_kernels.list_hashes(begin, end, codes, hashes)
    _, firsts, own = np.unique(hashes, return_index=True, return_inverse=True)
    if not meaning_kernels.same_lists(begin, end, codes, firsts[own]):
        return _interned(themes_of_rows(batch))
    sets = [frozenset(tags[c] for c in codes[begin[n] : end[n]].tolist() if c >= 0) for n in firsts.tolist()]
    return BatchThemes(own if len(sets) > 1 else None, sets)


def themes_of_dicts(rows: Sequence[Mapping[str, Any]]) -> BatchThemes:
    """Return the theme tags of events that are dicts."""
    return _interned(map(themes_of, rows))


def _interned(several: Iterable[frozenset[str]]) -> BatchThemes:
    places: dict[frozenset[str], int] = {}
    codes = np.array([places.setdefault(tags, len(places)) for tags in several], np.int64)
    return BatchThemes(codes if len(places) > 1 else None, list(places) or [frozenset()])
