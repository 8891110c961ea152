"""The tuples of a batch as numbers: an attribute's distinct values, and which of them each event has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.filters.arrow_columns import Column, distinct, path_array
from tidegate.filters.nodes import Path
from tidegate.filters.thematic import Scalar, themes_of, tuple_reader
from tidegate.filters.tuples import columns_of, themes_of_rows
from tidegate.filters.values import nearest_float
from tidegate.matching import meaning_kernels
from tidegate.model.schema import Schema


@dataclass(frozen=True, slots=True)
class TupleColumn:
    """One attribute of a batch."""

    attribute: str
    codes: Any
    """Of each event the place of its value; -1: it has none, `OTHER`: it has one that does not matter."""
    values: Sequence[Scalar]


@dataclass(frozen=True, slots=True)
class Themes:
    """The tags of a batch's events."""

    codes: Any
    """Of each event the place of its tags; None: all have the same."""
    sets: Sequence[frozenset[str]]


Numbers = frozenset[int | float]
"""The numbers that predicates ask for: others can't be part of a match. None: nothing but text can, and whether a
number is there does not matter."""

OTHER = -2
"""The code of a value that is there, but can't be part of a match."""


def of_batch(batch: pa.RecordBatch, schema: Schema | None, numbers: Numbers | None) -> list[TupleColumn]:
    """The tuples of a record batch."""
    found = []
    for attribute, column in columns_of(batch, schema):
        if column.kind == "string":
            codes, texts = distinct(column.values)
            found.append(TupleColumn(attribute, codes, texts))
        elif numbers is not None:
            found.append(_numbers(attribute, column, numbers))
    return found


def _numbers(attribute: str, column: Column, numbers: Numbers) -> TupleColumn:
    values, wanted = column.values, sorted(numbers)
    scalars: Sequence[Scalar] = wanted
    if column.kind == "bool":
        codes, scalars = values.astype(np.int64), (False, True)
    else:
        codes = np.full(len(values), OTHER)
        values = values.astype(np.float64) if column.kind == "float" and values.dtype != object else values
        codes[values != values] = -1
        for code, number in enumerate(wanted):
            here = nearest_float(number) if column.kind == "float" else _whole(number)
            if here == number:  # else no value of this column can be equal to it
                codes[values == here] = code
    if column.valid is not None:
        codes[~column.valid] = -1
    return TupleColumn(attribute, codes, scalars)


def _whole(number: int | float) -> int:
    return number if isinstance(number, int) else int(number) if math.isfinite(number) else 0


def of_rows(rows: Sequence[Mapping[str, Any]], schema: Schema | None, numbers: Numbers | None) -> list[TupleColumn]:
    """The tuples of events that are dicts."""
    read = tuple_reader(schema)
    columns: dict[str, tuple[dict[Any, int], list[int], list[int]]] = {}
    for n, row in enumerate(rows):
        for attribute, value in read(row):
            key: Any = value
            if value.__class__ is not str:
                if numbers is None:
                    continue
                key = (value.__class__ is bool, value)  # True is no 1
                if value.__class__ is not bool and value not in numbers:
                    key = None
            known = columns.get(attribute)
            if known is None:
                known = columns[attribute] = {}, [], []
            known[1].append(n)
            known[2].append(OTHER if key is None else known[0].setdefault(key, len(known[0])))
    found = []
    for attribute, (places, at, own) in columns.items():
        codes = np.full(len(rows), -1)
        codes[at] = own
        values = [key if isinstance(key, str) else key[1] for key in places]
        found.append(TupleColumn(attribute, codes, values))
    return found


def themes_of_batch(batch: pa.RecordBatch) -> Themes:
    """The tags of a record batch's events; equal ones are told by their codes."""
    array = path_array(batch, Path(("_themes",)))
    if array is None or not batch.num_rows:
        return Themes(None, [frozenset()])
    plain = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)  # others are rare, and read one by one
    if not plain or not pa.types.is_string(array.type.value_type):
        return _interned(themes_of_rows(batch))
    offsets = array.offsets.to_numpy().astype(np.int64)
    begin, end = offsets[:-1], offsets[1:]
    if array.null_count:  # what is null may have tags behind it
        end = np.where(np.asarray(array.is_valid()), end, begin)
    codes, tags = distinct(array.values)
    hashes = np.empty(len(array), np.uint64)
    meaning_kernels.list_hashes(begin, end, codes, hashes)
    _, firsts, own = np.unique(hashes, return_index=True, return_inverse=True)
    if not meaning_kernels.same_lists(begin, end, codes, firsts[own]):
        return _interned(themes_of_rows(batch))
    sets = [frozenset(tags[c] for c in codes[begin[n] : end[n]].tolist() if c >= 0) for n in firsts.tolist()]
    return Themes(own if len(sets) > 1 else None, sets)


def themes_of_dicts(rows: Sequence[Mapping[str, Any]]) -> Themes:
    """The tags of events that are dicts."""
    return _interned(map(themes_of, rows))


def _interned(several: Iterable[frozenset[str]]) -> Themes:
    places: dict[frozenset[str], int] = {}
    codes = np.array([places.setdefault(each, len(places)) for each in several], np.int64)
    return Themes(codes if len(places) > 1 else None, list(places) or [frozenset()])
