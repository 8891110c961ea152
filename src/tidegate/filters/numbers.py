"""Exact comparison of numbers of any width.

A float64 can't hold every 64-bit integer, so a bound is first moved to the nearest number that the other side can hold.
NaN never compares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import c_float
from typing import Any

import numpy as np

from tidegate.filters.vectors import BoolArray
from tidegate.model.numbers import nearest_float

_UFUNCS: dict[str, Callable[..., Any]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def compare_numbers(values: Any, relation: str, value: Any) -> BoolArray:
    """Return which values of an array have a relation to a number; exact for every width, False for NaN."""
    if values.dtype.kind == "O":
        compared: BoolArray = _UFUNCS[relation](values, value).astype(bool)
        return compared
    if values.dtype.kind == "f":
        return _compare_floats(values, relation, value)
    bound, relation = whole_bound(relation, value)
    if bound is None:
        return np.full(len(values), relation == "<>")
    info = np.iinfo(values.dtype)
    if bound > info.max:
        return np.full(len(values), relation in ("<", "<=", "<>"))
    if bound < info.min:
        return np.full(len(values), relation in (">", ">=", "<>"))
    mask: BoolArray = _UFUNCS[relation](values, values.dtype.type(bound))
    return mask


def whole_bound(relation: str, value: int | float) -> tuple[int | None, str]:
    """Return the comparison of an integer with `value` as a comparison with an integer.

    The bound is None if no integer equals `value`.

    >>> whole_bound("<", 3.5), whole_bound(">=", 3.5), whole_bound("=", 3.5)
    ((4, '<'), (4, '>='), (None, '='))
    """
    if isinstance(value, int):
        return int(value), relation
    if math.isinf(value):
        return (10**400 if value > 0 else -(10**400)), relation
    if value == math.floor(value):
        return int(value), relation
    if relation in ("=", "<>"):
        return None, relation
    return (math.ceil(value) if relation in ("<", ">=") else math.floor(value)), relation


def _compare_floats(values: Any, relation: str, value: int | float) -> BoolArray:
    nearest, relation = float_bound(relation, value)
    if nearest is None:
        mask = np.full(len(values), relation == "<>")
    else:
        same_width = values.dtype == np.float32 and c_float(nearest).value == nearest
        mask = _UFUNCS[relation](values, np.float32(nearest) if same_width else np.float64(nearest))
    return mask & (values == values) if relation == "<>" else mask


def float_bound(relation: str, value: int | float) -> tuple[float | None, str]:
    """Return the comparison of a float with `value` as a comparison with a float, exactly.

    An integer that no float equals lies between two floats, so only the order matters.

    >>> float_bound("<", 2**53 + 1), float_bound("=", 2**53 + 1)
    ((9007199254740992.0, '<='), (None, '='))
    """
    nearest = nearest_float(value)
    if nearest == value:
        return nearest, relation
    if relation in ("=", "<>"):
        return None, relation
    if nearest > value:
        return nearest, "<" if relation in ("<", "<=") else ">="
    return nearest, "<=" if relation in ("<", "<=") else ">"


def compare_arrays(one: Any, relation: str, two: Any) -> BoolArray:
    """Return which rows of two arrays of numbers have a relation; exact, False for NaN."""
    kinds = one.dtype.kind, two.dtype.kind
    if "O" in kinds:
        compared: BoolArray = _UFUNCS[relation](one.astype(object), two.astype(object)).astype(bool)
        known: BoolArray = compared & (one == one).astype(bool) & (two == two).astype(bool)
        return known
    if kinds == ("f", "f"):
        mask: BoolArray = _UFUNCS[relation](one, two)
        return mask & (one == one) & (two == two) if relation == "<>" else mask
    if "f" in kinds:
        return _compare_mixed(one, relation, two)
    if one.dtype.itemsize == two.dtype.itemsize == 8 and kinds[0] != kinds[1]:
        return _relate(_sign_unsigned(one, two) if kinds[0] == "i" else -_sign_unsigned(two, one), relation)
    mask = _UFUNCS[relation](one, two)
    return mask


def _sign_unsigned(signed: Any, unsigned: Any) -> Any:
    """Return -1, 0 or 1 as an int64 is below, at or above a uint64."""
    as_unsigned = signed.astype(np.uint64)
    sign = np.where(as_unsigned < unsigned, -1, np.where(as_unsigned > unsigned, 1, 0))
    return np.where(signed < 0, -1, sign)


def _compare_mixed(one: Any, relation: str, two: Any) -> BoolArray:
    if one.dtype.kind == "f":
        sign, reals = -_sign_whole(two, one), one
    else:
        sign, reals = _sign_whole(one, two), two
    mask: BoolArray = _relate(sign, relation) & (reals == reals)
    return mask


def _sign_whole(whole: Any, reals: Any) -> Any:
    """Return -1, 0 or 1 as an integer is below, at or above a float; exact."""
    if whole.dtype.itemsize < 8:
        return np.sign(whole.astype(np.float64) - reals)
    info = np.iinfo(whole.dtype)
    low, high = float(info.min), float(info.max)  # high rounds up to the first float beyond
    with np.errstate(invalid="ignore"):
        floor = np.floor(reals.astype(np.float64))
        inside = (floor >= low) & (floor < high)
        near = np.where(inside, floor, 0).astype(whole.dtype)
        sign = np.where(whole < near, -1, np.where(whole > near, 1, np.where(reals > floor, -1, 0)))
        return np.where(floor >= high, -1, np.where(floor < low, 1, sign))


def _relate(sign: Any, relation: str) -> BoolArray:
    mask: BoolArray = _UFUNCS[relation](sign, 0)
    return mask
