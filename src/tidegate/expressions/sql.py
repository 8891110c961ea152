"""Writes an expression as Spark SQL."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tidegate.expressions import casts
from tidegate.expressions.casts import INT
from tidegate.expressions.functions import MIN_INT64
from tidegate.expressions.like import spark_pattern
from tidegate.expressions.nodes import AttributePath, Cast, Constant, Expression, ExpressionNode, FunctionCall
from tidegate.expressions.overloads import LITERALS
from tidegate.model import timestamps
from tidegate.model.types import Scalar, Type


def to_sql(expression: Expression) -> str:
    """Return an expression as Spark SQL, with back-quoted attributes. It raises on no value, also in ANSI mode.

    >>> from tidegate.model import Schema
    >>> from tidegate.expressions import resolve
    >>> print(to_sql(resolve("speed / 2", Schema({"speed": "float64"}))))
    try_divide(`speed`, CAST(2L AS DOUBLE))
    """
    return node_sql(expression.root)


def node_sql(node: ExpressionNode) -> str:
    """Return a node of a typed tree as Spark SQL."""
    match node:
        case Constant():
            return _constant_sql(node.value, node.type)
        case AttributePath():
            return _path_sql(node.parts)
        case Cast():
            return casts.sql(node_sql(node.argument), node.argument.type, node.type)
        case FunctionCall():
            takes = node.overload.takes
            arguments = [_argument_sql(a, takes[n] if n < len(takes) else "") for n, a in enumerate(node.arguments)]
            sql = node.overload.sql
            template = sql if isinstance(sql, str) else sql(*arguments)
            return template.format(*arguments, all=", ".join(arguments), rest=", ".join(arguments[1:]))


def _argument_sql(node: ExpressionNode, kind: str) -> str:
    if isinstance(node, Constant) and kind in LITERALS:
        return str(node.value)
    if isinstance(node, Constant) and kind == "pattern":
        return casts.quoted(spark_pattern(node.value))
    return node_sql(node)


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


def sql_size(node: ExpressionNode) -> int:
    """Return the length of the SQL of a node, without writing it: nested functions may repeat their arguments."""
    match node:
        case Cast(argument):
            template = casts.sql("\0", argument.type, node.type)
            return len(template) + template.count("\0") * sql_size(argument)
        case FunctionCall():
            sql = node.overload.sql
            literals = [str(a.value) if isinstance(a, Constant) else "" for a in node.arguments]
            template = sql if isinstance(sql, str) else sql(*literals)
            everywhere = template.count("{all}") + template.count("{rest}")
            sizes = (
                (template.count(f"{{{n}}}") + everywhere) * (sql_size(argument) + 2)
                for n, argument in enumerate(node.arguments)
            )
            return len(template) + sum(sizes)
    return len(node_sql(node))
