"""Checks an untyped tree against a schema, and adds the conversions that functions need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from tidegate.errors import ExpressionError, Problem, did_you_mean
from tidegate.expressions import casts
from tidegate.expressions.casts import BOOL, FLOAT, INT, STRING, TIME
from tidegate.expressions.conditions import case, case_required, case_sql
from tidegate.expressions.evaluate import to_python
from tidegate.expressions.functions import FUNCTIONS, MAX_INT64, MIN_INT64, OPERATORS, common_type
from tidegate.expressions.nodes import AttributePath, Cast, Constant, Expression, ExpressionNode, FunctionCall
from tidegate.expressions.overloads import COMMON, COMPARED, KINDS, LITERALS, Overload
from tidegate.expressions.parser import (
    Span,
    UntypedCall,
    UntypedConstant,
    UntypedNode,
    UntypedParameter,
    UntypedPath,
    parse,
)
from tidegate.expressions.sql import sql_size
from tidegate.expressions.zones import zone
from tidegate.model import timestamps
from tidegate.model.events import show, value_violations
from tidegate.model.schema import Schema
from tidegate.model.types import Array, Enum, Struct, Type, parse_type

MAX_SQL_LENGTH = 200_000
"""The longest SQL of an expression, in characters: the SQL of some functions repeats their arguments."""

_TOO_LONG = "expected a simpler expression: as SQL it is too long; nest fewer functions"


def resolve(text: str, schema: Schema, *, type: str | Type | None = None, default: Any = None) -> Expression:  # noqa: A002
    """Parse an expression and check it against a schema.

    The result is cast to `type`, and null is replaced by `default`. Raises `ExpressionError` with the first syntax
    error or with all type errors.

    >>> from tidegate.expressions import evaluate
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
    if sql_size(root) > MAX_SQL_LENGTH:
        checker.fail(whole, _TOO_LONG)
    return Expression(text, root, kind, _is_required(root))


def check_tree(tree: UntypedNode, schema: Schema) -> tuple[ExpressionNode, list[Problem]]:
    """Check an untyped tree against a schema; return its typed root and all problems."""
    checker = _TypeChecker("", schema)
    root = checker.check(tree)
    if not checker.problems and sql_size(root) > MAX_SQL_LENGTH:
        checker.report((0, 1), _TOO_LONG)
    return root, checker.problems


def check_values(tree: UntypedNode, types: Mapping[tuple[str | int, ...], Type | None]) -> ExpressionNode | None:
    """Check an untyped tree against the types of the values at its paths. The type of null is None.

    Returns None if an operator or function does not take these types.
    """
    checker = _ValueChecker(types)
    root = checker.check(tree)
    return None if checker.problems else root


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
            case UntypedParameter(index, span):
                return self.report(span, f"expected a value for %{index}")
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
        if name in ("case", "if"):
            return self.case(name, arguments, span) if len(self.problems) == before else Constant(None, None)
        overloads = FUNCTIONS.get(name)
        if overloads is None:
            functions = ["if", *(function for function in FUNCTIONS if function not in OPERATORS)]
            return self.report(span, f"unknown function {name!r}{did_you_mean(name, functions)}")
        if len(self.problems) > before:
            return Constant(None, None)
        arguments, problem = _alike(arguments) if name in _RELATIONS else (arguments, "")
        if problem:
            return self.report(span, problem)
        for overload in overloads:
            call = _apply(overload, arguments)
            if call is not None:
                return call
        fitting = [overload for overload in overloads if len(overload.takes) == len(arguments)] or overloads
        general = [overload for overload in fitting if "int" not in overload.takes] or fitting
        expected = " or ".join(dict.fromkeys(_describe_arguments(overload) for overload in general))
        actual = ", ".join(str(argument.type or "null") for argument in arguments)
        return self.report(span, f"{name.upper() if name in _WORDS else name!r} expected {expected}, not {actual}")

    def case(self, name: str, arguments: list[ExpressionNode], span: Span) -> ExpressionNode:
        """Type a CASE or an if, whose arguments are conditions, each with its value, and the last value."""
        if name == "if" and len(arguments) != 3:
            return self.report(span, f"'if' expected a condition and two values, not {len(arguments)} arguments")
        for condition in arguments[:-1:2]:
            if condition.type is not None and condition.type != BOOL:
                return self.report(span, f"{name.upper()} expected a condition, not {condition.type}")
        values = [*arguments[1::2], arguments[-1]]
        common = common_type([value.type for value in values])
        if common is None and any(value.type is not None for value in values):
            actual = ", ".join(str(value.type or "null") for value in values)
            return self.report(span, f"{name.upper()} expected values of one type, not {actual}")
        if common is None:
            return Constant(None, None)
        branches = len(arguments) // 2
        takes = ("bool", "anything") * branches + ("anything",)
        overload = Overload(takes, common, case_sql(branches), case, takes_nulls=True, is_required=case_required)
        typed = [_convert(a, common if n % 2 or n == 2 * branches else BOOL) for n, a in enumerate(arguments)]
        return FunctionCall(overload, tuple(typed), common)


class _ValueChecker(_TypeChecker):
    """Types a tree by the values at its paths."""

    def __init__(self, types: Mapping[tuple[str | int, ...], Type | None]) -> None:
        super().__init__("", Schema({}))
        self.types = types

    def path(self, parts: tuple[str | int, ...], span: Span) -> ExpressionNode:  # noqa: ARG002
        kind = self.types[parts]
        return Constant(None, None) if kind is None else AttributePath(parts, kind, required=False)


_RELATIONS = frozenset({"=", "<>", "<", "<=", ">", ">=", "in"})
_WORDS = frozenset({"and", "or", "not", "in", "like"})


def _alike(arguments: list[ExpressionNode]) -> tuple[list[ExpressionNode], str]:
    """Return the arguments of a comparison with texts as what they are compared with, or a problem.

    A text beside a timestamp is a timestamp; a text beside an enum must be one of its labels.
    """
    types = [argument.type for argument in arguments]
    is_text = [isinstance(a, Constant) and isinstance(a.value, str) for a in arguments]
    if TIME in types and all(kind in (TIME, None) or text for kind, text in zip(types, is_text, strict=True)):
        moments = [_moment(a) if text else a for a, text in zip(arguments, is_text, strict=True)]
        if None in moments:
            wrong = arguments[moments.index(None)]
            text = show(wrong.value) if isinstance(wrong, Constant) else "this"
            return arguments, f"expected a time such as '2010-01-01T00:00:00Z', not {text}"
        return [moment for moment in moments if moment is not None], ""
    enums = {kind for kind in types if isinstance(kind, Enum)}
    if len(enums) == 1:
        (enum,) = enums
        for argument in arguments:
            if isinstance(argument, Constant) and isinstance(argument.value, str) and argument.value not in enum.labels:
                hint = did_you_mean(argument.value, list(enum.labels)) or f"; expected one of {', '.join(enum.labels)}"
                return arguments, f"{show(argument.value)} is no label of {enum}{hint}"
    return arguments, ""


def _moment(node: ExpressionNode) -> Constant | None:
    """Return a text constant as a timestamp; None if it is none."""
    assert isinstance(node, Constant)
    micros = timestamps.from_text(node.value)
    return None if micros is None else Constant(timestamps.to_datetime(micros), TIME)


def _apply(overload: Overload, arguments: list[ExpressionNode]) -> ExpressionNode | None:
    """Call an overload, with its arguments converted to the types it takes; None if they do not fit."""
    takes = overload.takes
    if overload.gives == BOOL and takes[0] in COMPARED:
        return _comparison(overload, arguments)
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
        elif name in ("zone", "pattern"):
            if not isinstance(argument, Constant) or kind != STRING or (name == "zone" and not zone(argument.value)):
                return None
        elif kind.kind not in fitting if kind is not None else target is None and name != "anything":
            return None
        converted.append(argument if target is None else _convert(argument, target))
    assert overload.gives is not None
    return FunctionCall(overload, tuple(converted), overload.gives)


def _comparison(overload: Overload, arguments: list[ExpressionNode]) -> ExpressionNode | None:
    """Compare values of one type. Whole numbers are compared without conversion, which is exact for all of them."""
    types = [argument.type for argument in arguments]
    if len(arguments) < 2 or any(kind is not None and kind.kind not in COMPARED[overload.takes[0]] for kind in types):
        return None
    kinds = {kind.kind for kind in types if kind is not None}
    common = common_type(types)
    if kinds and common is None:
        return None
    if kinds != {"int"}:
        arguments = [_convert(argument, common or BOOL) for argument in arguments]
    return FunctionCall(overload, tuple(arguments), BOOL)


def _convert(node: ExpressionNode, target: Type) -> ExpressionNode:
    return node if node.type == target else Cast(node, target)


def _describe_arguments(overload: Overload) -> str:
    first = overload.takes[0]
    if overload.gives == BOOL and first in COMPARED:
        return "values that compare"
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
            if node.overload.is_required is not None:
                return node.overload.is_required([_is_required(argument) for argument in node.arguments])
            return node.overload.total and all(map(_is_required, node.arguments))
