"""Running aggregates as JSON values: each function begins with None, adds values, and can be merged.

Numbers are exact for integers. `percentile`, `distinct` and `approx_distinct` keep every different value, where the
connector has sketches.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from itertools import accumulate
from typing import Any

from tidegate.pipelines.plain.state.plan import Record

_SMALLEST = {"min", "first"}
_EXTREMES = {"min", "max", "first", "last"}


def add(aggregate: Mapping[str, Any], state: Any, record: Record) -> Any:
    """Return the state with a record."""
    value: Any = record if "argument" not in aggregate else record.arguments[aggregate["argument"]]
    if value is None:
        return state
    function = aggregate["function"]
    match function:
        case "count":
            return (state or 0) + 1
        case "sum" | "avg":
            return _merge_sums(state, _sum(value))
        case "stddev":
            return _merge_deviations(state, [1, value, 0.0])
        case "distinct" | "approx_distinct":
            return {**(state or {}), str(value): 1} if str(value) not in (state or {}) else state
        case "percentile":
            return state if math.isnan(value) else _merge_counts(state, {repr(value): 1})
        case "collect":
            return [*(state or []), [record.time, record.tie, value]]
    order = record.arguments[aggregate["order"]]
    if order is None:
        return state
    tie = record.id if function in ("min", "max") else record.tie
    return _extreme(function, state, [_json_order(order), tie, str(value)])


def merge(aggregate: Mapping[str, Any], state: Any, other: Any) -> Any:
    """Return one state for the records of two."""
    if state is None or other is None:
        return other if state is None else state
    match aggregate["function"]:
        case "count":
            return state + other
        case "sum" | "avg":
            return _merge_sums(state, other)
        case "stddev":
            return _merge_deviations(state, other)
        case "distinct" | "approx_distinct":
            return state | other
        case "percentile":
            return _merge_counts(state, other)
        case "collect":
            return state + other
    return _extreme(aggregate["function"], state, other)


def result(aggregate: Mapping[str, Any], state: Any) -> str | None:
    """Return the result as a text that Spark casts to the attribute's type; None if there is none."""
    function = aggregate["function"]
    if function in ("count", "distinct", "approx_distinct"):
        return str((state if function == "count" else len(state)) if state else 0)
    if function == "collect":
        return json_array([text for *_, text in sorted(state or [])])
    if state is None:
        return None
    if function in _EXTREMES:
        return str(state[2])
    if function == "percentile":
        return _quantile(state, aggregate["share"])
    count = state[0]
    if function == "stddev":
        return None if count < 2 else repr(math.sqrt(state[2] / (count - 1)))
    total = state[1] if state[1] is not None else state[2]
    return repr(float(total) / count) if function == "avg" else repr(total)


def json_array(texts: list[str]) -> str:
    """Return a list of JSON texts as one.

    >>> json_array(['1', '"a"'])
    '[1,"a"]'
    """
    return f"[{','.join(texts)}]"


# Sums: [count, whole, real] ----------------------------------------------------


def _sum(value: Any) -> list[Any]:
    return [1, None, value] if isinstance(value, float) else [1, int(value), 0.0]


def _merge_sums(state: Any, other: list[Any]) -> list[Any]:
    if state is None:
        return other
    whole = None if state[1] is None and other[1] is None else (state[1] or 0) + (other[1] or 0)
    return [state[0] + other[0], whole, state[2] + other[2]]


# Deviations: [count, mean, squares], by Welford's method -------------------------


def _merge_deviations(state: Any, other: list[Any]) -> list[Any]:
    if state is None:
        return other
    (count, mean, squares), (more, their_mean, their_squares) = state, other
    total = count + more
    delta = their_mean - mean
    return [total, mean + delta * more / total, squares + their_squares + delta * delta * count * more / total]


# Extremes: [order, tie, value] ------------------------------------------------------


def _json_order(order: Any) -> Any:
    return int(order) if isinstance(order, Decimal) else order


def _comparable(entry: list[Any]) -> tuple[Any, ...]:
    """NaN is above all numbers. Texts are ordered by code points, as Spark orders them."""
    is_nan = isinstance(entry[0], float) and math.isnan(entry[0])
    return is_nan, 0 if is_nan else entry[0], entry[1]


def _extreme(function: str, state: Any, entry: list[Any]) -> list[Any]:
    if state is None:
        return entry
    pick = min if function in _SMALLEST else max
    chosen: list[Any] = pick(state, entry, key=_comparable)
    return chosen


# Percentiles: how often each value came ----------------------------------------------


def _merge_counts(state: Any, other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(state or {}) + Counter(other))


def _quantile(counts: Mapping[str, int], share: float) -> str:
    """Return the least value such that at least a share of all values is not above it."""
    values = sorted((float(text), count) for text, count in counts.items())
    wanted = max(1, math.ceil(sum(counts.values()) * share))
    ranks = accumulate(count for _, count in values)
    return repr(next(value for (value, _), rank in zip(values, ranks, strict=True) if rank >= wanted))
