"""Evaluates an expression on one event in Python."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tidegate.filters.values import nearest_float32
from tidegate.model import timestamps
from tidegate.model.types import Array, Enum, Struct, Type
from tidegate.services.expressions import casts
from tidegate.services.expressions.nodes import AttributePath, Cast, Constant, Expression, ExpressionNode, FunctionCall


def evaluate(expression: Expression, event: Mapping[str, Any]) -> Any:
    """Return the value of an expression for an event of its schema; timestamps are aware `datetime`s.

    Slow and obvious: tests compare Spark with it.
    """
    return _evaluate(expression.root, event)


def _evaluate(node: ExpressionNode, event: Mapping[str, Any]) -> Any:
    match node:
        case Constant():
            return node.value
        case AttributePath():
            return to_python(_value_at(event, node.parts), node.type)
        case Cast():
            return casts.convert(_evaluate(node.argument, event), node.argument.type, node.type)
        case FunctionCall():
            values = [_evaluate(argument, event) for argument in node.arguments]
            if not node.overload.takes_nulls and any(value is None for value in values):
                return None
            return node.overload.python(*values)


def _value_at(event: Any, parts: tuple[str | int, ...]) -> Any:
    for part in parts:
        if isinstance(part, str):
            event = event.get(part) if isinstance(event, Mapping) else None
        else:
            event = event[part] if isinstance(event, list | tuple) and part < len(event) else None
    return event


def to_python(value: Any, kind: Type) -> Any:
    """Convert a value of an event: timestamps to `datetime`s, enums to labels, numbers to floats of their precision."""
    if value is None:
        return None
    match kind:
        case Struct():
            return {field.name: to_python(value.get(field.name), field.type) for field in kind}
        case Array():
            return [to_python(item, kind.item) for item in value]
        case Enum():
            return value if isinstance(value, str) else kind.labels[value]
    if kind.kind == "time":
        micros = timestamps.from_datetime(value) if isinstance(value, datetime) else timestamps.from_text(value)
        return None if micros is None else timestamps.to_datetime(micros)
    if kind.kind == "float":
        return nearest_float32(value) if kind.name == "float32" else float(value)
    return value
