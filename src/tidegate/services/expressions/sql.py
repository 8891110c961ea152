"""Writes an expression as Spark SQL."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tidegate.model import timestamps
from tidegate.model.types import Scalar, Type
from tidegate.services.expressions import casts
from tidegate.services.expressions.casts import INT
from tidegate.services.expressions.functions import LITERALS, MIN_INT64
from tidegate.services.expressions.nodes import AttributePath, Cast, Constant, Expression, ExpressionNode, FunctionCall


def to_sql(expression: Expression) -> str:
    """Return an expression as Spark SQL, with back-quoted attributes. It raises on no value, also in ANSI mode.

    >>> from tidegate.model import Schema
    >>> from tidegate.services.expressions import resolve
    >>> print(to_sql(resolve("speed / 2", Schema({"speed": "float64"}))))
    try_divide(`speed`, CAST(2L AS DOUBLE))
    """
    return _sql(expression.root)


def _sql(node: ExpressionNode) -> str:
    match node:
        case Constant():
            return _constant_sql(node.value, node.type)
        case AttributePath():
            return _path_sql(node.parts)
        case Cast():
            return casts.sql(_sql(node.argument), node.argument.type, node.type)
        case FunctionCall():
            takes = node.overload.takes
            arguments = [
                str(argument.value)
                if isinstance(argument, Constant) and n < len(takes) and takes[n] in LITERALS
                else _sql(argument)
                for n, argument in enumerate(node.arguments)
            ]
            return node.overload.sql.format(*arguments, all=", ".join(arguments))


def _path_sql(parts: tuple[str | int, ...]) -> str:
    text = ""
    for part in parts:
        if isinstance(part, int):
            text = f"get({text}, {part})"
        else:
            name = "`" + part.replace("`", "``") + "`"
            text = f"{text}.{name}" if text else name
    return text


def _constant_sql(value: Any, kind: Type | None) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case str():
            return casts.quoted(value)
        case datetime():
            return f"timestamp_micros({timestamps.from_datetime(value)}L)"
        case float():
            return _float_sql(value, kind)
    if kind == INT and value > MIN_INT64:
        return f"{value}L" if value >= 0 else f"({value}L)"
    assert kind is not None
    return f"CAST('{value}' AS {casts.type_name(kind)})"


def _float_sql(value: float, kind: Type | None) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        written = f"CAST('{str(value).replace('inf', 'Infinity').replace('nan', 'NaN')}' AS DOUBLE)"
    else:
        written = f"{value!r}D" if str(value)[0] != "-" else f"({value!r}D)"
    return written if kind != Scalar("float32") else f"CAST({written} AS FLOAT)"
