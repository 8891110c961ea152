"""Evaluates an expression on one event in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tidegate.expressions import casts
from tidegate.expressions.nodes import AttributePath, Cast, Constant, Expression, ExpressionNode, FunctionCall
from tidegate.expressions.overloads import Overload
from tidegate.model import timestamps
from tidegate.model.numbers import nearest_float32
from tidegate.model.types import Array, Enum, Struct, Type

NodeFunction = Callable[[Any], Any]


def evaluate(expression: Expression, event: Mapping[str, Any]) -> Any:
    """Return the value of an expression for an event of its schema; timestamps are aware `datetime`s.

    Slow and obvious: tests compare Spark with it.
    """
    return compile_node(expression.root, _attribute)(event)


def compile_node(node: ExpressionNode, attribute: Callable[[AttributePath], NodeFunction]) -> NodeFunction:
    """Return a function that computes a node for an event; `attribute` returns one that reads an attribute."""
    match node:
        case Constant(value):
            return lambda _: value
        case AttributePath():
            return attribute(node)
        case Cast(argument, kind):
            inner, source = compile_node(argument, attribute), argument.type
            return lambda event: casts.convert(inner(event), source, kind)
        case FunctionCall(overload, arguments):
            return _compile_call(overload, [compile_node(argument, attribute) for argument in arguments])


def _compile_call(overload: Overload, arguments: list[NodeFunction]) -> NodeFunction:
    python, takes_nulls = overload.python, overload.takes_nulls

    def call(event: Any) -> Any:
        values = []
        for argument in arguments:
            value = argument(event)
            if value is None and not takes_nulls:
                return None
            values.append(value)
        return python(*values)

    return call


def _attribute(node: AttributePath) -> NodeFunction:
    return lambda event: to_python(_value_at(event, node.parts), node.type)


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
