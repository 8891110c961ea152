"""The functions and operators of expressions, as overloads by argument type, in Spark SQL and in Python.

No overload raises on a value: if there is no result, or its type can't hold it, the result is null. The Python version
is the reference that tests compare Spark with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from tidegate.expressions.casts import FLOAT, INT, STRING, TEXTS, TIME
from tidegate.expressions.conditions import CONDITIONS
from tidegate.expressions.geo import GEO
from tidegate.expressions.overloads import Overload
from tidegate.expressions.zones import in_zone
from tidegate.model import timestamps
from tidegate.model.types import Type

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The first and last second of the years 1 to 9999."""


def _in_int64(number: int) -> int | None:
    return number if MIN_INT64 <= number <= MAX_INT64 else None


def _remainder(a: int, b: int) -> int | None:
    """Return the remainder with the sign of the dividend, as in Java."""
    if b == 0:
        return None
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _float_remainder(a: float, b: float) -> float | None:
    if b == 0:
        return None
    try:
        return math.fmod(a, b)
    except ValueError:
        return math.nan


def _divide(a: float, b: float) -> float | None:
    return None if b == 0 else a / b


def _round(number: float, digits: int = 0) -> float:
    """Round half away from zero, based on the shortest decimal text of the number."""
    if not math.isfinite(number):
        return number
    with localcontext() as context:
        context.prec = 400
        return float(Decimal(repr(number)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def _whole(cut: Callable[[float], int]) -> Callable[[float], int | None]:
    def whole(number: float) -> int | None:
        return cut(number) if abs(number) < 2.0**63 else None

    return whole


def _number(compute: Callable[..., float]) -> Callable[..., float | None]:
    """Wrap a function of floats to behave as in Java: overflow is infinity, and NaN becomes null."""

    def number(*arguments: float) -> float | None:
        try:
            result = compute(*arguments)
        except ValueError:
            return None
        except OverflowError:
            return math.inf
        return None if math.isnan(result) else result

    return number


def _power(base: float, exponent: float) -> float:
    odd = math.isfinite(exponent) and exponent % 2 == 1
    if base == 0 and exponent < 0:
        return math.copysign(math.inf, base) if odd else math.inf
    if abs(base) == 1 and math.isinf(exponent):  # as in Java, not as in C
        return math.nan
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf


def _log(logarithm: Callable[[float], float]) -> Callable[[float], float | None]:
    return lambda number: None if not number > 0 else logarithm(number)


def _substring(text: str, start: int, length: int = 2**31) -> str:
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(begin, 0) : max(begin + length, 0)] if length > 0 else ""


def _replace(text: str, old: str, new: str) -> str:
    return text.replace(old, new) if old else text


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _extreme(sign: int) -> Callable[..., Any]:
    """Return a function for the least (-1) or greatest (1) value that is not None; NaN is above all numbers."""

    def above(one: Any, other: Any) -> bool:
        if isinstance(one, float) and math.isnan(one):
            return not math.isnan(other)
        return not (isinstance(other, float) and math.isnan(other)) and bool(one > other)

    def extreme(*values: Any) -> Any:
        best = None
        for value in values:
            if value is not None and (best is None or (above(value, best) if sign > 0 else above(best, value))):
                best = value
        return best

    return extreme


def _micros(moment: datetime) -> int:
    return timestamps.from_datetime(moment)


def _moment(unit: int) -> Callable[[int], datetime | None]:
    def moment(number: int) -> datetime | None:
        micros = number * unit
        return timestamps.to_datetime(micros) if timestamps.is_writable(micros) else None

    return moment


def _same(value: Any) -> Any:
    return value


def _math(name: str, compute: Callable[..., float], arity: int = 1) -> list[Overload]:
    arguments = ", ".join(f"{{{n}}}" for n in range(arity))
    return [Overload(("number",) * arity, FLOAT, f"nanvl({name}({arguments}), NULL)", _number(compute))]


def _arithmetic(
    name: str,
    ints: Callable[[int, int], int | None],
    floats: Callable[[float, float], float | None],
    total: bool = True,
) -> list[Overload]:
    sql = f"{name}({{0}}, {{1}})"
    return [
        Overload(("int", "int"), INT, sql, ints),
        Overload(("number", "number"), FLOAT, sql, floats, total=total),
    ]


def _floor(name: str, cut: Callable[[float], int]) -> list[Overload]:
    # Spark raises beyond the range of int64. NaN compares greater than all numbers, so it becomes null.
    sql = f"IF(abs({{0}}) < 9.223372036854775807E18D, {name}({{0}}), NULL)"
    return [Overload(("int",), INT, "{0}", _same, total=True), Overload(("number",), INT, sql, _whole(cut))]


def _part(sql: str, read: Callable[[datetime], int]) -> list[Overload]:
    return [Overload(("time",), INT, f"CAST({sql}({{0}}) AS BIGINT)", read, total=True)]


def _local_part(sql: str, read: Callable[[datetime], int]) -> list[Overload]:
    """Return a part of a timestamp, in UTC or in a time zone."""
    return [*_part(sql, read), in_zone(sql, read)]


def _text(sql: str, change: Callable[[str], Any], gives: Type = STRING) -> list[Overload]:
    return [Overload(("text",), gives, sql, change, total=True)]


def _from_unix(sql: str, unit: int) -> list[Overload]:
    bounds = f"{_FIRST_SECOND * 1_000_000 // unit}L AND {((_LAST_SECOND + 1) * 1_000_000 - 1) // unit}L"
    return [Overload(("int",), TIME, f"IF({{0}} BETWEEN {bounds}, {sql}({{0}}), NULL)", _moment(unit))]


FUNCTIONS: dict[str, list[Overload]] = {
    "+": _arithmetic("try_add", lambda a, b: _in_int64(a + b), lambda a, b: a + b),
    "-": _arithmetic("try_subtract", lambda a, b: _in_int64(a - b), lambda a, b: a - b),
    "*": _arithmetic("try_multiply", lambda a, b: _in_int64(a * b), lambda a, b: a * b),
    "/": [Overload(("number", "number"), FLOAT, "try_divide({0}, {1})", _divide)],
    "%": _arithmetic("try_mod", _remainder, _float_remainder, total=False),
    "negative": [
        Overload(("int",), INT, "try_subtract(0L, {0})", lambda a: _in_int64(-a)),
        Overload(("number",), FLOAT, "negative({0})", lambda a: -a, total=True),
    ],
    "abs": [
        # In decimals, because the absolute value of the least int64 is not an int64.
        Overload(("int",), INT, "try_cast(abs(CAST({0} AS DECIMAL(19,0))) AS BIGINT)", lambda a: _in_int64(abs(a))),
        Overload(("number",), FLOAT, "abs({0})", abs, total=True),
    ],
    "sign": _math("sign", lambda a: math.copysign(1.0, a) if a and not math.isnan(a) else a),
    "round": [
        Overload(("int",), INT, "{0}", _same, total=True),
        Overload(("int", "digits"), INT, "{0}", lambda a, _: a, total=True),
        Overload(("number",), FLOAT, "round({0})", _round, total=True),
        Overload(("number", "digits"), FLOAT, "round({0}, {1})", _round, total=True),
    ],
    "floor": _floor("floor", math.floor),
    "ceil": _floor("ceil", math.ceil),
    "sqrt": _math("sqrt", math.sqrt),
    "power": _math("power", _power, 2),
    "exp": _math("exp", math.exp),
    "ln": [Overload(("number",), FLOAT, "nanvl(ln({0}), NULL)", _log(math.log))],
    "log10": [Overload(("number",), FLOAT, "nanvl(log10({0}), NULL)", _log(math.log10))],
    "sin": _math("sin", math.sin),
    "cos": _math("cos", math.cos),
    "tan": _math("tan", math.tan),
    "atan2": _math("atan2", lambda a, b: math.atan2(a + 0.0, b + 0.0), 2),
    "radians": _math("radians", math.radians),
    "degrees": _math("degrees", math.degrees),
    "upper": _text("upper({0})", str.upper),
    "lower": _text("lower({0})", str.lower),
    "trim": _text("trim({0})", lambda text: text.strip(" ")),
    "length": [
        *_text("CAST(char_length({0}) AS BIGINT)", len, INT),
        Overload(("array",), INT, "CAST(size({0}) AS BIGINT)", len, total=True),
    ],
    "substring": [
        Overload(
            ("text", "place"), STRING, "substring({0}, {1})", lambda text, at: _substring(text, at, 2**31), total=True
        ),
        Overload(("text", "place", "place"), STRING, "substring({0}, {1}, {2})", _substring, total=True),
    ],
    "replace": [Overload(("text", "text", "text"), STRING, "replace({0}, {1}, {2})", _replace, total=True)],
    "concat": [Overload(("word*",), STRING, "concat({all})", lambda *texts: "".join(texts), total=True)],
    "coalesce": [Overload(("any*",), None, "coalesce({all})", _first, takes_nulls=True, is_required=any)],
    "least": [Overload(("ordered*",), None, "least({all})", _extreme(-1), takes_nulls=True, is_required=any)],
    "greatest": [Overload(("ordered*",), None, "greatest({all})", _extreme(1), takes_nulls=True, is_required=any)],
    "year": _local_part("year", lambda moment: moment.year),
    "month": _local_part("month", lambda moment: moment.month),
    "day": _local_part("day", lambda moment: moment.day),
    "weekday": _local_part("weekday", datetime.weekday),
    "hour": _local_part("hour", lambda moment: moment.hour),
    "minute": _local_part("minute", lambda moment: moment.minute),
    "second": _local_part("second", lambda moment: moment.second),
    "unix_seconds": _part("unix_seconds", lambda moment: _micros(moment) // 1_000_000),
    "unix_millis": _part("unix_millis", lambda moment: _micros(moment) // 1_000),
    "timestamp_seconds": _from_unix("timestamp_seconds", 1_000_000),
    "timestamp_millis": _from_unix("timestamp_millis", 1_000),
    **GEO,
    **CONDITIONS,
}
"""All functions and operators by name. `weekday` is 0 on Mondays; parts of a timestamp are in UTC unless a time zone is
given.
"""

OPERATORS = frozenset("+-*/%") | {"negative", *CONDITIONS}
"""Functions that are written as operators, not as calls."""

APPROXIMATE = frozenset(
    {"power", "exp", "ln", "log10", "sin", "cos", "tan", "atan2", "radians", "degrees", "distance", "bearing"}
)
"""Functions whose last digit depends on the math library of the machine."""


def common_type(types: Sequence[Type | None]) -> Type | None:
    """Return the common type of several types, ignoring None (null); None if there is none."""
    distinct = list(dict.fromkeys(type_ for type_ in types if type_ is not None))
    if len(distinct) == 1:
        return distinct[0]
    kinds = {type_.kind for type_ in distinct}
    for fitting, common in ((("int",), INT), (("int", "float"), FLOAT), (TEXTS, STRING)):
        if kinds and kinds <= set(fitting):
            return common
    return None
