"""Computes values from the fields of an event: `speed * 3.6`, `hour(time)`.

With a schema an expression has one type. Without a schema it is type-checked once for every combination of types that
the values of an event have, and has no value if that check fails. A field that is missing, NaN or not of its type is
null. A result that is NaN is null too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tidegate.errors import Problem
from tidegate.expressions.casts import BOOL, FLOAT, INT, STRING, TIME
from tidegate.expressions.evaluate import compile_node
from tidegate.expressions.functions import FUNCTIONS
from tidegate.expressions.nodes import AttributePath, Cast, ExpressionNode, FunctionCall
from tidegate.expressions.overloads import Overload
from tidegate.expressions.parser import UntypedCall, UntypedConstant, UntypedNode, UntypedParameter
from tidegate.expressions.type_checker import check_tree, check_values
from tidegate.filters.nodes import ComputedValue, Param, Path
from tidegate.filters.values import Moment, plain, raw_reader
from tidegate.model import timestamps
from tidegate.model.numbers import nearest_float, nearest_float32
from tidegate.model.schema import Schema
from tidegate.model.types import INTEGER_RANGES, Array, Enum, Scalar, Struct, Type

_UINT, _ARRAY = Scalar("uint64"), Array(INT)
_LOW, _HIGH = INTEGER_RANGES["int64"]
NUMBER_OR_NULL = Overload(("number",), None, "nanvl({0}, NULL)", lambda number: None if number != number else number)
"""A number; null if it is NaN."""

Convert = Callable[[Any], Any]


def with_params(term: UntypedNode, value_of: Callable[[Param], UntypedNode]) -> UntypedNode:
    """Return an expression with constants in place of its parameters."""
    match term:
        case UntypedParameter(index, span):
            return value_of(Param(index, span))
        case UntypedCall(name, arguments, span):
            return UntypedCall(name, tuple(with_params(argument, value_of) for argument in arguments), span)
    return term


def typed(computed: ComputedValue, schema: Schema | None) -> tuple[ComputedValue, list[Problem]]:
    """Return a computed value with its type, and the problems of its expression."""
    if schema is None:
        return computed, _untyped_problems(computed.term)
    root, problems = check_tree(computed.term, schema)
    if problems:
        return computed, problems
    at, end = computed.span
    leaves = list(_leaves(root))
    if root.type is None or isinstance(root.type, Array | Struct) or any(isinstance(x.type, Struct) for x in leaves):
        return computed, [Problem(at, "expected an expression of single values", max(1, end - at))]
    root = _settled(_with_nulls(root))
    fields = {leaf.parts: leaf.type for leaf in leaves}
    paths = tuple(Path(path.parts, fields.get(path.parts), path.span) for path in computed.fields)
    return replace(computed, type=root.type, root=root, fields=paths), []


def _untyped_problems(term: UntypedNode) -> list[Problem]:
    """Return the problems of an expression that are known without a schema: its constants and function names."""
    problems: list[Problem] = []
    stack = [term]
    while stack:
        node = stack.pop()
        if isinstance(node, UntypedCall):
            stack += reversed(node.arguments)
            if node.name not in FUNCTIONS and node.name != "if":
                problems += check_tree(UntypedCall(node.name, (), node.span), Schema({}))[1]
        elif isinstance(node, UntypedConstant):
            problems += check_tree(node, Schema({}))[1]
    return problems


def _leaves(node: ExpressionNode) -> list[AttributePath]:
    match node:
        case AttributePath():
            return [node]
        case Cast(argument):
            return _leaves(argument)
        case FunctionCall(arguments=arguments):
            return [leaf for argument in arguments for leaf in _leaves(argument)]
    return []


def _with_nulls(node: ExpressionNode) -> ExpressionNode:
    """Return an expression that reads NaN as null."""
    match node:
        case AttributePath() if node.type.kind == "float":
            return FunctionCall(NUMBER_OR_NULL, (node,), node.type)
        case Cast(argument, kind):
            return Cast(_with_nulls(argument), kind)
        case FunctionCall(overload, arguments, kind):
            return FunctionCall(overload, tuple(map(_with_nulls, arguments)), kind)
    return node


def _settled(root: ExpressionNode) -> ExpressionNode:
    """Return an expression as a truth value, an int64 or uint64, a float64, a text or a timestamp."""
    assert root.type is not None
    target: Type = {"bool": BOOL, "int": INT, "float": FLOAT, "time": TIME}.get(root.type.kind, STRING)
    return root if root.type in (target, _UINT) else Cast(root, target)


# Reading -----------------------------------------------------------------------


def compute_reader(computed: ComputedValue) -> Convert:
    """Return a function that computes the value for an event in comparable form; it returns None if there is none."""
    if computed.root is None:
        return _by_values(computed)

    def attribute(node: AttributePath) -> Convert:
        read, convert = raw_reader(Path(node.parts, node.type)), _converter(node.type)
        return lambda event: None if (value := read(event)) is None else convert(value)

    compute = compile_node(computed.root, attribute)
    return lambda event: _comparable(compute(event))


def _comparable(value: Any) -> Any:
    if value.__class__ is float:
        return value if value == value else None
    return timestamps.from_datetime(value) if isinstance(value, datetime) else value


def _by_values(computed: ComputedValue) -> Convert:
    """Return a reader without a schema, which types the expression by the values of each event."""
    readers = [(path.parts, raw_reader(path)) for path in computed.fields]
    compiled: dict[tuple[Type | None, ...], Convert | None] = {}

    def compute(event: Any) -> Any:
        values, types = {}, []
        for parts, read in readers:
            values[parts], kind = _typed_value(read(event))
            types.append(kind)
        signature = tuple(types)
        if signature not in compiled:
            parts_of = [parts for parts, _ in readers]
            compiled[signature] = _compile_for(computed.term, dict(zip(parts_of, signature, strict=True)))
        function = compiled[signature]
        return None if function is None else function(values)

    return compute


def _compile_for(term: UntypedNode, types: Mapping[tuple[str | int, ...], Type | None]) -> Convert | None:
    root = check_values(term, types)
    if root is None or root.type is None or isinstance(root.type, Array | Struct):
        return None
    compute = compile_node(_settled(root), lambda node: lambda values: values[node.parts])
    if root.type != TIME:
        return lambda values: _comparable(compute(values))
    return lambda values: None if (moment := compute(values)) is None else Moment(timestamps.from_datetime(moment))


def _typed_value(raw: Any) -> tuple[Any, Type | None]:
    """Return a value as expressions compute with it, and its type; None if it is null or of no type."""
    if isinstance(raw, list | tuple):
        return raw, _ARRAY
    value = None if raw is None else plain(raw)
    match value:
        case bool():
            return value, BOOL
        case Moment():
            return (timestamps.to_datetime(int(value)), TIME) if timestamps.is_writable(value) else (None, None)
        case int():
            return (value, INT) if _LOW <= value <= _HIGH else (None, None)
        case float():
            return (value, FLOAT) if value == value else (None, None)
        case str():
            return value, STRING
    return None, None


def _converter(kind: Type) -> Convert:
    """Return a function that converts a value of an event to a type; it returns None for a value of another type."""
    if isinstance(kind, Enum):
        return lambda value: _label(value, kind)
    if isinstance(kind, Array):
        return lambda value: value if isinstance(value, list | tuple) else None
    assert isinstance(kind, Scalar)
    match kind.kind:
        case "time":
            return lambda value: _moment(value)
        case "int":
            low, high = INTEGER_RANGES[kind.name]
            return lambda value: n if (n := plain(value)).__class__ is int and low <= n <= high else None
        case "float":
            return lambda value: _float(plain(value), kind.name)
        case "bool":
            return lambda value: flag if (flag := plain(value)).__class__ is bool else None
    return lambda value: text if (text := plain(value)).__class__ is str else None


def _label(value: Any, kind: Enum) -> str | None:
    scalar = plain(value)
    if scalar.__class__ is int:
        return kind.labels[scalar] if 0 <= scalar < len(kind.labels) else None
    return scalar if scalar in kind.labels else None


def _float(scalar: Any, name: str) -> float | None:
    if scalar.__class__ not in (int, float):
        return None
    return nearest_float32(scalar) if name == "float32" else nearest_float(scalar)


def _moment(value: Any) -> datetime | None:
    scalar = plain(value)
    micros = timestamps.from_text(scalar) if scalar.__class__ is str else scalar
    if micros is None or not (scalar.__class__ is str or isinstance(scalar, Moment)):
        return None
    return timestamps.to_datetime(int(micros)) if timestamps.is_writable(micros) else None
