"""Checks a parsed filter against a schema and puts its parameters in.

In the resulting tree every path has its type (if there is a schema), every parameter is a literal, every literal has
the type of the field that it is compared with, and every membership function has its numbers. All problems are
collected and raised together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidegate.errors import FilterSyntaxError, did_you_mean
from tidegate.expressions.parser import UntypedConstant
from tidegate.filters import areas, computed, membership, patterns
from tidegate.filters.field_types import FieldTypes
from tidegate.filters.nodes import (
    And,
    Area,
    Between,
    Bound,
    Compare,
    ComputedValue,
    FuzzyShape,
    Group,
    In,
    Inside,
    IsNull,
    Item,
    Literal,
    Member,
    Node,
    Not,
    Operand,
    Or,
    Param,
    Path,
    Pattern,
    Query,
    Semantic,
    StrLike,
    Value,
)
from tidegate.filters.parameters import placeholder, read_param
from tidegate.filters.parser import parse_shape
from tidegate.filters.problems import ProblemCollector
from tidegate.filters.render import path_text
from tidegate.model import timestamps
from tidegate.model.numbers import nearest_float, nearest_float32
from tidegate.model.schema import Schema
from tidegate.model.types import Array, Enum, Scalar, Struct, Type

_FITS = {
    "bool": {"bool", "int"},
    "int": {"bool", "int", "float"},
    "float": {"int", "float"},
    "char": {"string"},
    "string": {"string"},
    "enum": {"int", "string"},
    "time": {"string", "time"},
}
"""Kinds of literal that each kind of field compares with."""

_PAIRS = {frozenset(pair) for pair in (("bool", "int"), ("int", "float"), ("int", "enum"), ("char", "string"))}
"""Different kinds of field that compare with each other."""

_EXPECTED = {
    "bool": "TRUE, FALSE or a whole number",
    "int": "a number, TRUE or FALSE",
    "float": "a number",
    "char": "a character in quotes",
    "string": "a string in quotes",
    "time": "a time in quotes, such as '2010-01-01T00:00:00Z'",
}
"""The literal that a message asks for, by kind of field."""

_FLOAT64, _INT64, _STRING_TYPE = Scalar("float64"), Scalar("int64"), Scalar("string")


SimplePredicate = Compare | Between | Pattern | In | StrLike | Semantic
"""Predicates that are allowed both alone and in a fuzzy group."""


def resolve(
    query: Query,
    text: str,
    schema: Schema | None = None,
    params: Sequence[Any] = (),
    *,
    like_star: bool = False,
    strict_params: bool = False,
) -> Query:
    """Return a parsed filter with types and with parameters put in.

    `text` is the filter's text, for messages. `strict_params` refuses parameters that the text does not name. Raises
    `FilterParameterError` if parameters cause all problems, `FilterTypeError` if not, each with all problems.
    """
    resolver = _Resolver(text, schema, params, like_star)
    root = resolver.node(query.root)
    threshold = query.threshold
    if threshold is not None:
        threshold = resolver.number(threshold, "a THRESHOLD from 0 to 1", 0, 1)
    if strict_params and resolver.params_used < len(params):
        resolver.problems.report(
            (0, 1), f"expected {resolver.params_used} parameters, not {len(params)}", parameter=True
        )
    resolver.problems.raise_problems()
    return Query(root, query.themes, threshold, query.is_semantic)


class _Resolver:
    """Types one tree. Reports each problem to `problems` and continues with the next node."""

    def __init__(self, text: str, schema: Schema | None, params: Sequence[Any], like_star: bool) -> None:
        self.schema, self.params, self.like_star = schema, params, like_star
        self.problems = ProblemCollector(text)
        self.fields = FieldTypes(schema, self.problems)
        self.params_used = 0
        """One more than the greatest index of a parameter in the text."""

    # Nodes ---------------------------------------------------------------------

    def node(self, node: Node) -> Node:
        match node:
            case Compare():
                return self.compare(node)
            case And(terms) | Or(terms):
                resolved = []
                for term in terms:  # a loop, not a generator: one stack frame per level
                    resolved.append(self.node(term))
                return type(node)(tuple(resolved))
            case Not(term):
                return Not(self.node(term))
            case Group():
                return self.group(node)
            case IsNull():
                return IsNull(self.path(node.path, whole=True), node.negated, node.span)
            case Inside():
                return self.inside(node)
        return self.simple(node)

    def simple(self, node: SimplePredicate) -> SimplePredicate:
        match node:
            case Compare():
                return self.compare(node)
            case Between():
                path = self.path(node.path)
                low, high = self.typed_value(node.low, path), self.typed_value(node.high, path)
                return Between(path, low, high, node.negated, node.span)
            case In():
                path = self.path(node.path)
                values = tuple([self.typed_value(value, path) for value in node.values if not isinstance(value, Path)])
                return In(path, values, node.negated, node.span)
            case Pattern():
                return self.pattern(node)
            case StrLike():
                return self.strlike(node)
            case Semantic():
                return self.semantic(node)

    def compare(self, node: Compare) -> Compare:
        other = node.other
        if isinstance(other, Path):
            return self.compare_fields(node, other)
        path = self.path(node.path)
        value = self.typed_value(other, path)
        return node if path is node.path and value is other else Compare(path, node.relation, value, node.span)

    def compare_fields(self, node: Compare, other: Path) -> Compare:
        left, right = self.path(node.path, beside=other), self.path(other, beside=node.path)
        if left.type is not None and right.type is not None and not _comparable(left.type, right.type):
            self.problems.report(
                node.span,
                f"{path_text(left)} ({left.type}) does not compare with {path_text(right)} ({right.type}): "
                f"expected fields of the same kind",
            )
        return Compare(left, node.relation, right, node.span)

    def pattern(self, node: Pattern) -> Pattern:
        subject, pattern = self.text_operand(node.subject, node), self.text_operand(node.pattern, node)
        sides = [side for side in (subject, pattern) if isinstance(side, Path)]
        typed = [side.type for side in sides if side.type is not None]
        if len(typed) == len(sides):
            kinds = {kind.kind for kind in typed}
            if "string" not in kinds or not kinds <= {"string", "char"}:
                shown = ", ".join(f"{path_text(side)} ({side.type})" for side in sides)
                self.problems.report(node.span, f"{node.operator} expected a string field, not {shown}")
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            return Pattern(node.operator, subject, pattern, node.negated, self.like_star, node.span)
        if node.operator == "MATCH":
            problem = patterns.regex_problem(pattern.value)
            if problem:
                is_param = isinstance(node.pattern, Param)
                self.problems.report(
                    pattern.span, f"expected a regular expression (RE2): {problem}", parameter=is_param
                )
        else:
            pattern = replace(pattern, value=patterns.canonical_like(pattern.value, self.like_star))
        return Pattern(node.operator, subject, pattern, node.negated, False, node.span)

    def text_operand(self, operand: Operand, node: Pattern) -> Operand:
        if isinstance(operand, Path):
            return self.path(operand)
        text = self.literal(operand, _STRING_TYPE)
        if text.kind != "string":
            message = f"{node.operator} expected a string in quotes, not {_shown(text)}"
            self.problems.report(operand.span, message, parameter=isinstance(operand, Param))
        return text

    def strlike(self, node: StrLike) -> StrLike:
        path = self.fields.path(node.path)
        if path.type is not None and path.type.kind not in ("string", "char"):
            self.problems.report(path.span, f"STRLIKE expected a string field, not {path_text(path)} ({path.type})")
        text = self.literal(node.text, _STRING_TYPE)
        if text.kind != "string":
            self.problems.report(node.text.span, f"STRLIKE expected a string in quotes, not {_shown(text)}")
        return StrLike(path, text, self.bound(node.bound), node.negated, node.span)

    def bound(self, bound: Bound | None) -> Bound | None:
        if bound is None:
            return None
        if bound.unit == "SIMILARITY":
            return Bound("SIMILARITY", self.number(bound.number, "a SIMILARITY from 0 to 1", 0, 1))
        number = self.literal(bound.number, _INT64)
        if number.kind != "int" or not 0 <= int(number.value) < 2**31:
            message = f"expected a whole number of EDITS, 0 or more, not {_shown(number)}"
            self.problems.report(bound.number.span, message, parameter=isinstance(bound.number, Param))
        return Bound("EDITS", number)

    def semantic(self, node: Semantic) -> Semantic:
        """Type a predicate with ~. The schema need not have a field with ~: it is matched by relatedness."""
        path, operand = node.path, node.value
        if not node.soft_path:
            path = self.fields.path(path)
        elif not node.soft_value:
            path = self.problems.attempt(lambda: self.fields.path(node.path)) or path
        if node.soft_value:
            value = self.literal(operand, _STRING_TYPE)
            if value.kind != "string":
                self.problems.report(operand.span, f"expected a string in quotes before ~, not {_shown(value)}")
            if path.type is not None and path.type.kind not in ("string", "char", "enum"):
                self.problems.report(path.span, f"~ expected a string field, not {path_text(path)} ({path.type})")
        elif node.soft_path and isinstance(operand, Literal):
            fitted = self.problems.attempt(lambda: self.typed_value(operand, path))
            path, value = (path, fitted) if fitted is not None else (node.path, operand)
        else:
            value = self.typed_value(operand, path)
        return Semantic(path, value, node.soft_path, node.soft_value, node.negated, node.span)

    def inside(self, node: Inside) -> Inside:
        longitude, latitude = self.fields.path(node.longitude), self.fields.path(node.latitude)
        self.want_number(longitude, "INSIDE")
        self.want_number(latitude, "INSIDE")
        before = len(self.problems.problems)
        numbers = tuple(self.number(n, "a number") for n in node.area.numbers)
        problem = areas.problem(node.area.name, _floats(numbers)) if len(self.problems.problems) == before else None
        if problem:
            self.problems.report(node.area.span, f"expected {problem}", parameter=_any_param(node.area.numbers))
        area = Area(node.area.name, numbers, node.area.span)
        return Inside(longitude, latitude, area, node.negated, node.span)

    def want_number(self, path: Path, operator: str) -> None:
        if path.type is not None and path.type.kind not in ("int", "float"):
            self.problems.report(path.span, f"{operator} expected a number field, not {path_text(path)} ({path.type})")

    # Fuzzy groups --------------------------------------------------------------

    def group(self, node: Group) -> Group:
        items = tuple([self.item(item) for item in node.items])
        if sum([float(item.weight.value) for item in items if isinstance(item.weight, Literal)]) == float("inf"):
            self.problems.report(node.span, "expected weights whose sum is a finite number")
        least = self.number(node.least, "a least degree from 0 to 1", 0, 1)
        return Group(node.mode, items, least, node.negated, node.span)

    def item(self, item: Item) -> Item:
        least = self.number(item.least, "AT LEAST 0 to 1", 0, 1)
        weight = self.number(item.weight, "a WEIGHT above 0")
        if not 0 < float(weight.value) < float("inf"):
            message = f"expected a WEIGHT above 0, not {_shown(weight)}"
            self.problems.report(item.weight.span, message, parameter=isinstance(item.weight, Param))
        predicate = item.predicate
        if isinstance(predicate, Member):
            path = self.fields.path(predicate.path)
            self.want_number(path, "IS")
            shape = self.shape(predicate.shape, path)
            return Item(Member(path, shape, predicate.span), item.negated, least, weight)
        return Item(self.simple(predicate), item.negated, least, weight)

    def shape(self, shape: FuzzyShape, path: Path) -> FuzzyShape:
        if shape.is_term:
            return self.term(shape, path)
        before = len(self.problems.problems)
        numbers = tuple(self.number(n, "a number") for n in shape.numbers)
        problem = membership.problem(shape.name, _floats(numbers)) if len(self.problems.problems) == before else None
        if problem:
            self.problems.report(shape.span, f"expected {problem}", parameter=_any_param(shape.numbers))
        return FuzzyShape(shape.name, numbers, span=shape.span)

    def term(self, shape: FuzzyShape, path: Path) -> FuzzyShape:
        if self.schema is None:
            self.problems.report(shape.span, f"the term {shape.name!r} needs a schema that defines it")
            return shape
        plain = ".".join(map(str, path.parts))
        terms = self.schema.terms.get(path_text(path)) or self.schema.terms.get(plain) or {}
        definition = next((text for name, text in terms.items() if name.lower() == shape.name.lower()), None)
        if definition is None:
            hint = did_you_mean(shape.name, list(terms)) or f"; {path_text(path)} has {', '.join(terms) or 'no terms'}"
            self.problems.report(shape.span, f"unknown term {shape.name!r} of {path_text(path)}{hint}")
            return shape
        try:
            parsed = parse_shape(definition)
        except FilterSyntaxError:
            self.problems.report(
                shape.span, f"the term {shape.name!r} is {definition!r}: expected a shape with numbers"
            )
            return shape
        numbers = tuple(Literal(float(n.value), "float", shape.span) for n in parsed.numbers if isinstance(n, Literal))
        problem = (
            membership.problem(parsed.name, _floats(numbers)) if len(numbers) == len(parsed.numbers) else "numbers only"
        )
        if problem:
            self.problems.report(shape.span, f"the term {shape.name!r} is {definition!r}: expected {problem}")
            return shape
        return FuzzyShape(parsed.name, numbers, span=shape.span)

    # Values --------------------------------------------------------------------

    def path(self, path: Path, beside: Path | None = None, *, whole: bool = False) -> Path:
        """Return a field or a computed value with its type, and report its problems."""
        if not isinstance(path, ComputedValue):
            return self.fields.path(path, beside, whole=whole)
        term = computed.with_params(path.term, self.constant)
        value, problems = computed.typed(replace(path, term=term), self.schema)
        for problem in problems:
            self.problems.report((problem.at, problem.at + problem.length), problem.message)
        return value

    def constant(self, param: Param) -> UntypedConstant:
        """Return a parameter of an expression as a constant; a text that is a number is read as one."""
        literal = self.literal(param, None)
        return UntypedConstant(literal.value, param.span)

    def typed_value(self, value: Value, path: Path) -> Literal:
        """Return a value as a literal of the type of its field; report a value that does not fit."""
        kind = path.type
        literal = value if isinstance(value, Literal) else self.literal(value, kind)
        if kind is None or isinstance(kind, Struct | Array):
            return literal
        if literal.kind not in _FITS[kind.kind]:
            return self.refuse(literal, value, path, kind)
        if isinstance(kind, Enum):
            if literal.kind == "string" and literal.value not in kind.labels:
                return self.refuse(literal, value, path, kind)
            return literal
        if kind.kind == "time" and literal.kind == "string":
            micros = timestamps.from_text(str(literal.value))
            if micros is None:
                return self.refuse(literal, value, path, kind)
            return replace(literal, value=micros, kind="time")
        if kind.name == "float32":
            assert not isinstance(literal.value, str)
            return replace(literal, value=nearest_float32(literal.value), kind="float")
        return literal

    def refuse(self, literal: Literal, value: Value, path: Path, kind: Scalar | Enum) -> Literal:
        if isinstance(kind, Enum):
            expected = f"one of {', '.join(map(repr, kind.labels))} or a position"
            if literal.kind == "string":
                expected += did_you_mean(str(literal.value), list(kind.labels))
        else:
            expected = _EXPECTED[kind.kind]
        where = f"%{value.index} is {_shown(literal)}" if isinstance(value, Param) else f"{_shown(literal)} is wrong"
        message = f"{where}: {path_text(path)} ({kind}) expected {expected}"
        self.problems.report(value.span, message, parameter=isinstance(value, Param))
        return literal

    def number(self, value: Value, expected: str, low: float = -float("inf"), high: float = float("inf")) -> Literal:
        literal = value if isinstance(value, Literal) else self.literal(value, _FLOAT64)
        if literal.kind not in ("int", "float"):
            self.problems.report(
                value.span, f"expected {expected}, not {_shown(literal)}", parameter=isinstance(value, Param)
            )
            return Literal(1.0, "float", value.span)
        if not low <= literal.value <= high:  # type: ignore[operator]
            self.problems.report(
                value.span, f"expected {expected}, not {_shown(literal)}", parameter=isinstance(value, Param)
            )
        if literal.kind == "float":
            return literal
        assert not isinstance(literal.value, str)
        return Literal(nearest_float(literal.value), "float", literal.span)

    def literal(self, value: Value, kind: Type | None) -> Literal:
        """Return a parameter as a literal for a field of type `kind`; a literal is returned unchanged."""
        if isinstance(value, Literal):
            return value
        self.params_used = max(self.params_used, value.index + 1)
        if value.index >= len(self.params):
            count = len(self.params)
            were = "was" if count == 1 else "were"
            message = f"expected a value for %{value.index}, but {count} {were} given"
            self.problems.report(value.span, message, parameter=True)
            return placeholder(kind, value.span)
        param = self.params[value.index]
        literal = read_param(param, kind, value.span)
        if isinstance(literal, str):
            self.problems.report(value.span, f"%{value.index} is {_shown_param(param)}: {literal}", parameter=True)
            return placeholder(kind, value.span)
        return literal


def _comparable(one: Type, other: Type) -> bool:
    if isinstance(one, Enum) and isinstance(other, Enum):
        return one == other
    return one.kind == other.kind or frozenset((one.kind, other.kind)) in _PAIRS


def _any_param(values: tuple[Value, ...]) -> bool:
    return any(isinstance(value, Param) for value in values)


def _floats(numbers: tuple[Literal, ...]) -> tuple[float, ...]:
    return tuple(float(number.value) for number in numbers)


def _shown_param(param: Any) -> str:
    return repr(param[:100] + "..." if isinstance(param, str) and len(param) > 100 else param)


def _shown(literal: Literal) -> str:
    if literal.kind == "string":
        text = str(literal.value)
        return repr(text if len(text) <= 40 else text[:40] + "...")
    if literal.kind == "bool":
        return str(literal.value).upper()
    text = str(literal.value) if not isinstance(literal.value, int) or abs(literal.value) < 10**40 else "a huge number"
    return text
