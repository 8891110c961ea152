"""Values that events really hold: numpy scalars, decimals, dates, and worse."""

from __future__ import annotations

import math
from collections import OrderedDict
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate import Filter, Schema


class Lane(IntEnum):
    LEFT = 1


@pytest.mark.parametrize(
    ("text", "value", "truth"),
    [
        ("x = 5", np.float32(5), True),
        ("x = 5", np.int64(5), True),
        ("x = 5", np.longdouble(5), True),
        ("x = 5", np.array(5), True),
        ("x = 5", np.array([5]), None),
        ("x = 5", np.array([1, 2]), None),
        ("x = TRUE", np.bool_(True), True),
        ("x = 'a'", np.str_("a"), True),
        ("x = 1", Lane.LEFT, True),
        ("x = 5", Decimal(5), True),
        ("x > 5", Decimal("5.5"), True),
        ("x > 5", Decimal("1e300000"), True),
        ("x > 5", Decimal("-inf"), False),
        ("x > 5", 10**400, True),
        ("x IS S(0, 1)", 10**400, True),
        ("x > 5", b"abc", None),
        ("x > 5", {1, 2}, None),
        ("x > 5", object(), None),
        ("x > '2020-01-01'", datetime(2021, 1, 1, tzinfo=UTC), True),
        ("x > '2020-01-01'", datetime(2021, 1, 1), True),  # noqa: DTZ001 - no zone means UTC
        ("x > '2020-01-01'", date(2021, 1, 1), True),
        ("x > '2020-01-01'", np.datetime64("2021-01-01", "ns"), True),
        ("x > 5", np.datetime64("2021-01-01", "ns"), None),
        ("x > 5", datetime(2021, 1, 1, tzinfo=UTC), None),
        ("x IS NULL", math.nan, True),
        ("x IS NULL", np.float32("nan"), True),
        ("x IS NULL", Decimal("nan"), True),
        ("x IS NULL", np.datetime64("NaT"), True),
        ("x IS NULL", np.array([1, 2]), False),
        ("x IS NULL", {}, False),
        ("x LIKE '%'", "\ud800", True),
        ("x MATCH '.'", "\ud800", None),
    ],
)
def test_value_of_unusual_type_compares_or_is_unknown(text: str, value: Any, truth: bool | None) -> None:
    built = Filter(text)
    assert built.truth({"x": value}) is truth
    assert built.matches({"x": value}) is (truth is True)


@pytest.mark.parametrize("event", [OrderedDict(x=5), MappingProxyType({"x": 5})])
def test_any_mapping_is_accepted_as_event(event: Any) -> None:
    assert Filter("x = 5").matches(event)
    assert Filter("y.x = 5").matches({"y": event})


def test_tuples_are_arrays() -> None:
    assert Filter("x[1] = 5").matches({"x": (3, 5)})


def test_typed_time_may_be_a_numpy_datetime() -> None:
    schema = Schema({"t": "timestamp"})
    assert Filter("t > '2020-01-01'", schema).matches({"t": np.datetime64("2021-01-01", "ns")})


@pytest.mark.parametrize("pattern", ["_" * 1_500_000 + "a", "(" * 100_000])
def test_hostile_pattern_in_an_event_is_harmless(pattern: str) -> None:
    for operator in ("LIKE", "MATCH"):
        assert Filter(f"x {operator} p").truth({"x": "a", "p": pattern}) is None


def dictionary(values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), values)


COLUMNS = {
    "dictionary with a null": pa.array(["a", None, "b"]).dictionary_encode(),
    "dictionary with a null value": dictionary(pa.array(["a", None])),
    "dictionary of large text": dictionary(pa.array(["a", "b"], pa.large_string())),
    "dictionary of views": dictionary(pa.array(["a", "b"], pa.string_view())),
    "dictionary of floats": dictionary(pa.array([1.5, math.nan])),
    "large text": pa.array(["a", None, "b"], pa.large_string()),
    "views": pa.array(["a", None, "b"], pa.string_view()),
    "nulls": pa.nulls(3),
    "truth values": pa.array([True, None, False]),
    "half floats": pa.array(np.array([1.5, math.nan, 0], np.float16)),
    "seconds": pa.array([0, None, 9_300_000_000_000], pa.timestamp("s")),
    "nanoseconds": pa.array([1_700_000_000_000_000_001, None, 0], pa.timestamp("ns", "UTC")),
    "dates": pa.array([0, None, 19_000], pa.date32()),
    "decimals": pa.array([Decimal("1.5"), None, Decimal(2)], pa.decimal128(9, 2)),
    "wide decimals": pa.array([Decimal(2**53 + 1), None, Decimal(10**30)], pa.decimal128(38, 0)),
    "unsigned": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "run-ends": pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array([1.5, 2.5])),
    "lists": pa.array([[1], None, []]),
}
TEXTS = [
    "x = 'a'",
    "x <> 'a'",
    "x LIKE 'a%'",
    "x > 1",
    "x = 9007199254740993",
    "x <> 1.5",
    "x = TRUE",
    "x > '2020-01-01'",
    "x IS NULL",
    "x IS NOT NULL",
    "x IN (1.5, 2)",
    "x NOT IN ('a', 'c')",
    "x = x",
    "x < y",
    "x IS S(0, 2)",
    "x[0] = 1",
    "x NOT BETWEEN 1 AND 2",
]


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("text", TEXTS)
def test_column_of_unusual_type_agrees_with_its_values(name: str, text: str) -> None:
    column = COLUMNS[name]
    batch = pa.RecordBatch.from_arrays([column, pa.array([1, 2, 3])], names=["x", "y"])
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # Python can't represent this time
        values = [*column.slice(0, 2).to_pylist(), None]
        batch = batch.slice(0, 2)
    rows = [{"x": value, "y": n + 1} for n, value in enumerate(values)][: batch.num_rows]
    built = Filter(text)
    assert built.mask(batch).tolist() == [built.matches(row) for row in rows]
    for n in range(batch.num_rows):  # a row does not depend on its neighbours
        assert built.mask(batch.slice(n, 1)).tolist() == [built.matches(rows[n])]


def test_time_beyond_64_bits_is_unknown() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([9_300_000_000_000, 0], pa.timestamp("s"))], names=["t"])
    assert Filter("t > '1960-01-01'").mask(batch).tolist() == [False, True]


def test_first_of_two_columns_with_the_same_name_is_used() -> None:
    columns = [pa.array(["x"]), pa.array(["y"]), pa.array(["x"])]
    batch = pa.RecordBatch.from_arrays(columns, names=["a", "a", "p"])
    assert Filter("a = 'x'").mask(batch).tolist() == [True]
    assert Filter("a LIKE p").mask(batch).tolist() == [True]
