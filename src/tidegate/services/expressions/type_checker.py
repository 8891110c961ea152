"""Checks an untyped tree against a schema, and adds the conversions that functions need."""

from __future__ import annotations

from typing import Any, NoReturn

from tidegate.errors import ExpressionError, Problem, did_you_mean
from tidegate.model.events import show, value_violations
from tidegate.model.schema import Schema
from tidegate.model.types import Array, Struct, Type, parse_type
from tidegate.services.expressions import casts
from tidegate.services.expressions.casts import BOOL, FLOAT, INT, STRING
from tidegate.services.expressions.evaluate import to_python
from tidegate.services.expressions.functions import (
    COMMON,
    FUNCTIONS,
    KINDS,
    LITERALS,
    MAX_INT64,
    MIN_INT64,
    Overload,
    common_type,
)
from tidegate.services.expressions.nodes import AttributePath, Cast, Constant, Expression, ExpressionNode, FunctionCall
from tidegate.services.expressions.parser import Span, UntypedCall, UntypedConstant, UntypedNode, UntypedPath, parse


def resolve(text: str, schema: Schema, *, type: str | Type | None = None, default: Any = None) -> Expression:  # noqa: A002
    """Parse an expression and check it against a schema.

    The result is cast to `type`, and null is replaced by `default`. Raises `ExpressionError` with the first syntax
    error or with all type errors.

    >>> from tidegate.services.expressions import evaluate
    >>> expression = resolve("speed * 3.6", Schema({"speed": "float32?"}))
    >>> str(expression.type), expression.required, evaluate(expression, {"speed": 10})
    ('float64', False, 36.0)
    """
    checker = _TypeChecker(text, schema)
    root = checker.check(parse(text))
    if checker.problems:
        raise ExpressionError(text, checker.problems)
    whole = (0, len(text))
    target = None if type is None else parse_type(type)
    if target is not None:
        problem = casts.problem(root.type, target)
        if problem:
            checker.fail(whole, problem)
        if root.type != target:
            root = Cast(root, target)
    kind = root.type
    if kind is None:
        checker.fail(whole, "expected something that has a type; null needs one: {value: null, type: int32}")
    if default is not None:
        root = _with_default(root, kind, default, checker)
    return Expression(text, root, kind, _is_required(root))


def _with_default(root: ExpressionNode, kind: Type, default: Any, checker: _TypeChecker) -> ExpressionNode:
    whole = (0, len(checker.text))
    if isinstance(kind, Struct | Array):
        checker.fail(whole, f"a default needs a single value, not {kind}")
    for violation in value_violations(default, kind, "default"):
        checker.fail(whole, str(violation))
    overload = FUNCTIONS["coalesce"][0]
    return FunctionCall(overload, (root, Constant(to_python(default, kind), kind)), kind)


class _TypeChecker:
    """Converts one untyped tree to a typed one, and collects all `problems`."""

    def __init__(self, text: str, schema: Schema) -> None:
        self.text, self.schema = text, schema
        self.problems: list[Problem] = []

    def report(self, span: Span, message: str) -> ExpressionNode:
        """Add a problem, and return a null constant in place of the bad node."""
        self.problems.append(Problem(span[0], message, max(1, span[1] - span[0])))
        return Constant(None, None)

    def fail(self, span: Span, message: str) -> NoReturn:
        """Raise an `ExpressionError` with this problem and all problems before it."""
        self.report(span, message)
        raise ExpressionError(self.text, self.problems)

    def check(self, node: UntypedNode) -> ExpressionNode:
        match node:
            case UntypedConstant(value, span):
                return self.constant(value, span)
            case UntypedPath(parts, span):
                return self.path(parts, span)
            case UntypedCall(name, arguments, span):
                return self.call(name, arguments, span)

    def constant(self, value: str | float | None, span: Span) -> ExpressionNode:
        match value:
            case None:
                return Constant(None, None)
            case bool():
                return Constant(value, BOOL)
            case str():
                return Constant(value, STRING)
            case int():
                if MIN_INT64 <= value <= MAX_INT64:
                    return Constant(value, INT)
                return self.report(span, f"expected a whole number of 64 bits, or a float such as {show(value)[:40]}.0")
        if value in (float("inf"), float("-inf")):
            return self.report(span, "expected a number that a float64 can hold")
        return Constant(value, FLOAT)

    def path(self, parts: tuple[str | int, ...], span: Span) -> ExpressionNode:
        first = str(parts[0])
        attribute = self.schema.get(first)
        if attribute is None:
            return self.unknown(first, self.schema.root, span)
        kind, required, so_far = attribute.type, attribute.required, first
        for part in parts[1:]:
            if isinstance(part, int):
                if not isinstance(kind, Array):
                    return self.report(span, f"{so_far} ({kind}) is no array: expected no index")
                if kind.bound is not None and part >= kind.bound:
                    return self.report(span, f"{so_far} has at most {kind.bound} elements: expected an index below")
                kind, required, so_far = kind.item, False, f"{so_far}[{part}]"
                continue
            field = kind.get(part) if isinstance(kind, Struct) else None
            if not isinstance(kind, Struct):
                return self.report(span, f"{so_far} ({kind}) has no parts: expected no .{part}")
            if field is None:
                return self.unknown(part, kind, span)
            kind, required, so_far = field.type, required and field.required, f"{so_far}.{part}"
        if "${" in so_far:
            return self.report(span, "expected a name without ${, which Spark takes for a setting")
        return AttributePath(parts, kind, required)

    def unknown(self, name: str, struct: Struct, span: Span) -> ExpressionNode:
        names = [field.name for field in struct]
        hint = did_you_mean(name, names) or (f"; expected one of {', '.join(names[:8])}" if names else "")
        return self.report(span, f"unknown attribute {name!r}{hint}")

    def call(self, name: str, untyped: tuple[UntypedNode, ...], span: Span) -> ExpressionNode:
        before = len(self.problems)
        arguments = [self.check(argument) for argument in untyped]
        overloads = FUNCTIONS.get(name)
        if overloads is None:
            functions = [function for function in FUNCTIONS if function.isidentifier()]
            return self.report(span, f"unknown function {name!r}{did_you_mean(name, functions)}")
        if len(self.problems) > before:
            return Constant(None, None)
        for overload in overloads:
            call = _apply(overload, arguments)
            if call is not None:
                return call
        general = [overload for overload in overloads if "int" not in overload.takes] or overloads
        expected = " or ".join(dict.fromkeys(_describe_arguments(overload) for overload in general))
        actual = ", ".join(str(argument.type or "null") for argument in arguments)
        return self.report(span, f"{name!r} expected {expected}, not {actual}")


def _apply(overload: Overload, arguments: list[ExpressionNode]) -> ExpressionNode | None:
    """Call an overload, with its arguments converted to the types it takes; None if they do not fit."""
    takes = overload.takes
    if takes[0] in COMMON:
        types = [argument.type for argument in arguments]
        common = common_type(types)
        if takes[0] == "ordered*" and len(arguments) < 2:
            return None
        if common is None or any(type_ is not None and type_.kind not in COMMON[takes[0]] for type_ in types):
            return None
        return FunctionCall(overload, tuple(_convert(argument, common) for argument in arguments), common)
    if takes[0].endswith("*"):
        takes = (takes[0][:-1],) * len(arguments)
    if len(takes) != len(arguments):
        return None
    converted: list[ExpressionNode] = []
    for name, argument in zip(takes, arguments, strict=True):
        fitting, target, _ = KINDS[name]
        kind = argument.type
        if name in LITERALS:
            low, high = LITERALS[name]
            if not isinstance(argument, Constant) or kind != INT or not low <= argument.value <= high:
                return None
        elif (kind is not None and kind.kind not in fitting) or (kind is None and target is None):
            return None
        converted.append(argument if target is None else _convert(argument, target))
    assert overload.gives is not None
    return FunctionCall(overload, tuple(converted), overload.gives)


def _convert(node: ExpressionNode, target: Type) -> ExpressionNode:
    return node if node.type == target else Cast(node, target)


def _describe_arguments(overload: Overload) -> str:
    first = overload.takes[0]
    if first in COMMON:
        return "values of one type" if first == "any*" else "several numbers, texts or timestamps"
    return " and ".join(KINDS[name.rstrip("*")][2] for name in overload.takes)


def _is_required(node: ExpressionNode) -> bool:
    """Return True if a node is never null for an event of its schema."""
    match node:
        case Constant():
            return node.value is not None
        case AttributePath():
            return node.required
        case Cast():
            return _is_required(node.argument) and not casts.may_lose(node.argument.type, node.type)
        case FunctionCall():
            if node.overload.takes_nulls:
                return any(map(_is_required, node.arguments))
            return node.overload.total and all(map(_is_required, node.arguments))
