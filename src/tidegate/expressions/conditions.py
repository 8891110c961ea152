"""Comparisons, AND, OR, NOT, IN, LIKE, IS NULL, CASE and if, in Spark SQL and in Python.

Three-valued logic as in SQL: a comparison with null is null, and null AND false is false. NaN equals itself and is
above all numbers, as in Spark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tidegate.expressions import like
from tidegate.expressions.casts import BOOL
from tidegate.expressions.overloads import Overload


def _order(one: Any, other: Any) -> int:
    """Return -1, 0 or 1 as one value is below, at or above another."""
    for value, against, sign in ((one, other, 1), (other, one, -1)):
        if isinstance(value, float) and math.isnan(value):
            return 0 if isinstance(against, float) and math.isnan(against) else sign
    return 1 if one > other else -1 if one < other else 0


_TESTS: dict[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "<>": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def _compare(relation: str) -> list[Overload]:
    test = _TESTS[relation]
    kind = "equal*" if relation in ("=", "<>") else "ordered*"
    sql = f"({{0}} {relation} {{1}})"
    return [Overload((kind,), BOOL, sql, lambda one, other: test(_order(one, other)), total=True)]


def _and(*values: bool | None) -> bool | None:
    return False if False in values else None if None in values else True


def _or(*values: bool | None) -> bool | None:
    return True if True in values else None if None in values else False


def _in(value: Any, *members: Any) -> bool | None:
    return None if value is None else _or(*(None if m is None else _order(value, m) == 0 for m in members))


def case(*arguments: Any) -> Any:
    """Return the value after the first condition that is true; else the last argument."""
    for condition, value in zip(arguments[:-1:2], arguments[1::2], strict=True):
        if condition is True:
            return value
    return arguments[-1]


def case_required(required: Sequence[bool]) -> bool:
    """Return True if no branch of a CASE is ever null; conditions may be."""
    return all((*required[1::2], required[-1]))


def case_sql(branches: int) -> str:
    """Return the SQL of a CASE with some WHENs and an ELSE, as a format string."""
    whens = " ".join(f"WHEN {{{2 * n}}} THEN {{{2 * n + 1}}}" for n in range(branches))
    return f"CASE {whens} ELSE {{{2 * branches}}} END"


CONDITIONS: dict[str, list[Overload]] = {
    **{relation: _compare(relation) for relation in _TESTS},
    "and": [Overload(("bool", "bool"), BOOL, "({0} AND {1})", _and, takes_nulls=True, is_required=all)],
    "or": [Overload(("bool", "bool"), BOOL, "({0} OR {1})", _or, takes_nulls=True, is_required=all)],
    "not": [Overload(("bool",), BOOL, "(NOT {0})", lambda value: not value, total=True)],
    "in": [Overload(("equal*",), BOOL, "({0} IN ({rest}))", _in, takes_nulls=True, is_required=all)],
    "like": [Overload(("text", "pattern"), BOOL, "({0} LIKE {1})", like.fits, total=True)],
    "is null": [
        Overload(
            ("anything",),
            BOOL,
            "({0} IS NULL)",
            lambda value: value is None,
            takes_nulls=True,
            is_required=lambda _: True,
        )
    ],
}
"""Conditions by name. CASE and if have as many signatures as branches; the type checker makes theirs."""
