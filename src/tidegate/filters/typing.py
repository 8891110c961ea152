"""Fits a parsed filter to its schema and its parameters.

Gives a tree in which every path has its type (where there is a schema), every
parameter is a literal, every literal has the type of the field it meets and
every shape its numbers. All problems are collected and reported together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

from tidegate.errors import FilterParameterError, FilterSyntaxError, FilterTypeError, Problem, did_you_mean
from tidegate.filters import areas, patterns, shapes
from tidegate.filters.nodes import (
    And,
    Area,
    Between,
    Bound,
    Compare,
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
    Shape,
    Span,
    StrLike,
    Value,
)
from tidegate.filters.parser import MAX_DIGITS, parse_shape, read_number
from tidegate.filters.render import path_text
from tidegate.filters.tokens import NUMBER, string_value
from tidegate.filters.values import nearest_float, nearest_float32
from tidegate.model import timestamps
from tidegate.model.schema import RESERVED, Schema
from tidegate.model.types import Array, Enum, Scalar, Struct, Type

T = TypeVar("T")

_FITS = {
    "bool": {"bool", "int"},
    "int": {"bool", "int", "float"},
    "float": {"int", "float"},
    "char": {"string"},
    "string": {"string"},
    "enum": {"int", "string"},
    "time": {"string", "time"},
}
"""Which kinds of literal each kind of field compares with."""

_PAIRS = {frozenset(pair) for pair in (("bool", "int"), ("int", "float"), ("int", "enum"), ("char", "string"))}
"""Which different kinds of field compare with each other."""

_WANTED = {
    "bool": "TRUE, FALSE or a whole number",
    "int": "a number, TRUE or FALSE",
    "float": "a number",
    "char": "a character in quotes",
    "string": "a string in quotes",
    "time": "a time in quotes, such as '2010-01-01T00:00:00Z'",
}

_FLOAT64, _INT64, _STRING_TYPE = Scalar("float64"), Scalar("int64"), Scalar("string")
_NUMBER = re.compile(NUMBER)
_STRING = re.compile(r"'''|[`'](?:[^']|'')*+'", re.DOTALL)


Simple = Compare | Between | Pattern | In | StrLike | Semantic
"""What may stand alone and in a fuzzy group."""


def resolve(
    query: Query,
    text: str,
    schema: Schema | None = None,
    params: Sequence[Any] = (),
    *,
    like_star: bool = False,
    strict_params: bool = False,
) -> Query:
    """Fit a parsed filter to a schema and to parameters, or raise with all problems."""
    resolver = _Resolver(text, schema, params, like_star)
    root = resolver.node(query.root)
    threshold = query.threshold
    if threshold is not None:
        threshold = resolver.number(threshold, "a THRESHOLD from 0 to 1", 0, 1)
    if strict_params and resolver.used < len(params):
        resolver.blame((0, 1), f"expected {resolver.used} parameters, not {len(params)}", parameter=True)
    resolver.finish()
    return Query(root, query.themes, threshold, query.is_semantic)


@lru_cache(maxsize=256)
def _known_paths(schema: Schema) -> dict[tuple[str | int, ...], Type]:  # noqa: ARG001 - the key of the cache
    """The paths into a schema that were walked before: a service's filters name the same ones again and again."""
    return {}


class _Resolver:
    """Walks one tree; `problems` grows."""

    def __init__(self, text: str, schema: Schema | None, params: Sequence[Any], like_star: bool) -> None:
        self.text, self.schema, self.params, self.like_star = text, schema, params, like_star
        self.problems: list[Problem] = []
        self.only_parameters = True
        self.used = 0
        self.known = _known_paths(schema) if schema is not None else {}

    def blame(self, span: Span, message: str, *, parameter: bool = False) -> None:
        self.only_parameters &= parameter
        self.problems.append(Problem(span[0], message, max(1, span[1] - span[0])))

    def finish(self) -> None:
        if self.problems:
            kind = FilterParameterError if self.only_parameters else FilterTypeError
            raise kind(self.text, self.problems)

    # Nodes ---------------------------------------------------------------------

    def node(self, node: Node) -> Node:
        match node:
            case Compare():
                return self.compare(node)
            case And(terms) | Or(terms):
                found = []
                for term in terms:  # a plain loop: one frame a level
                    found.append(self.node(term))
                return type(node)(tuple(found))
            case Not(term):
                return Not(self.node(term))
            case Group():
                return self.group(node)
            case IsNull():
                return IsNull(self.path(node.path, whole=True), node.negated, node.span)
            case Inside():
                return self.inside(node)
        return self.simple(node)

    def simple(self, node: Simple) -> Simple:
        match node:
            case Compare():
                return self.compare(node)
            case Between():
                path = self.path(node.path)
                low, high = self.meet(node.low, path), self.meet(node.high, path)
                return Between(path, low, high, node.negated, node.span)
            case In():
                path = self.path(node.path)
                values = tuple([self.meet(value, path) for value in node.values])
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
        met = self.meet(other, path)
        return node if path is node.path and met is other else Compare(path, node.relation, met, node.span)

    def compare_fields(self, node: Compare, other: Path) -> Compare:
        left, right = self.path(node.path, beside=other), self.path(other, beside=node.path)
        if left.type is not None and right.type is not None and not _comparable(left.type, right.type):
            self.blame(
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
                self.blame(node.span, f"{node.operator} expected a string field, not {shown}")
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            return Pattern(node.operator, subject, pattern, node.negated, self.like_star, node.span)
        if node.operator == "MATCH":
            problem = patterns.regex_problem(pattern.value)
            if problem:
                is_param = isinstance(node.pattern, Param)
                self.blame(pattern.span, f"expected a regular expression (RE2): {problem}", parameter=is_param)
        else:
            pattern = replace(pattern, value=patterns.canonical_like(pattern.value, self.like_star))
        return Pattern(node.operator, subject, pattern, node.negated, False, node.span)

    def text_operand(self, operand: Operand, node: Pattern) -> Operand:
        if isinstance(operand, Path):
            return self.path(operand)
        found = self.literal(operand, _STRING_TYPE)
        if found.kind != "string":
            message = f"{node.operator} expected a string in quotes, not {_shown(found)}"
            self.blame(operand.span, message, parameter=isinstance(operand, Param))
        return found

    def strlike(self, node: StrLike) -> StrLike:
        path = self.path(node.path)
        if path.type is not None and path.type.kind not in ("string", "char"):
            self.blame(path.span, f"STRLIKE expected a string field, not {path_text(path)} ({path.type})")
        text = self.literal(node.text, _STRING_TYPE)
        if text.kind != "string":
            self.blame(node.text.span, f"STRLIKE expected a string in quotes, not {_shown(text)}")
        return StrLike(path, text, self.bound(node.bound), node.negated, node.span)

    def bound(self, bound: Bound | None) -> Bound | None:
        if bound is None:
            return None
        if bound.unit == "SIMILARITY":
            return Bound("SIMILARITY", self.number(bound.number, "a SIMILARITY from 0 to 1", 0, 1))
        number = self.literal(bound.number, _INT64)
        if number.kind != "int" or not 0 <= int(number.value) < 2**31:
            message = f"expected a whole number of EDITS, 0 or more, not {_shown(number)}"
            self.blame(bound.number.span, message, parameter=isinstance(bound.number, Param))
        return Bound("EDITS", number)

    def semantic(self, node: Semantic) -> Semantic:
        """A field with ~ is a meaning: the schema may have none of its name, or one of any type."""
        path, given = node.path, node.value
        if not node.soft_path:
            path = self.path(path)
        elif not node.soft_value:
            path = self.tried(lambda: self.path(node.path)) or path
        if node.soft_value:
            value = self.literal(given, _STRING_TYPE)
            if value.kind != "string":
                self.blame(given.span, f"expected a string in quotes before ~, not {_shown(value)}")
            if path.type is not None and path.type.kind not in ("string", "char", "enum"):
                self.blame(path.span, f"~ expected a string field, not {path_text(path)} ({path.type})")
        elif node.soft_path and isinstance(given, Literal):
            fitted = self.tried(lambda: self.meet(given, path))
            path, value = (path, fitted) if fitted is not None else (node.path, given)
        else:
            value = self.meet(given, path)
        return Semantic(path, value, node.soft_path, node.soft_value, node.negated, node.span)

    def tried(self, work: Callable[[], T]) -> T | None:
        """What nobody is to blame for; else None, and nobody is blamed."""
        before, only_parameters = len(self.problems), self.only_parameters
        found = work()
        if len(self.problems) == before:
            return found
        del self.problems[before:]
        self.only_parameters = only_parameters
        return None

    def inside(self, node: Inside) -> Inside:
        longitude, latitude = self.path(node.longitude), self.path(node.latitude)
        self.want_number(longitude, "INSIDE")
        self.want_number(latitude, "INSIDE")
        before = len(self.problems)
        numbers = tuple(self.number(n, "a number") for n in node.area.numbers)
        problem = areas.problem(node.area.name, _floats(numbers)) if len(self.problems) == before else None
        if problem:
            self.blame(node.area.span, f"expected {problem}", parameter=_any_param(node.area.numbers))
        area = Area(node.area.name, numbers, node.area.span)
        return Inside(longitude, latitude, area, node.negated, node.span)

    def want_number(self, path: Path, operator: str) -> None:
        if path.type is not None and path.type.kind not in ("int", "float"):
            self.blame(path.span, f"{operator} expected a number field, not {path_text(path)} ({path.type})")

    # Fuzzy groups --------------------------------------------------------------

    def group(self, node: Group) -> Group:
        items = tuple([self.item(item) for item in node.items])
        if sum([float(item.weight.value) for item in items if isinstance(item.weight, Literal)]) == float("inf"):
            self.blame(node.span, "expected weights whose sum is a finite number")
        least = self.number(node.least, "a least degree from 0 to 1", 0, 1)
        return Group(node.mode, items, least, node.negated, node.span)

    def item(self, item: Item) -> Item:
        least = self.number(item.least, "AT LEAST 0 to 1", 0, 1)
        weight = self.number(item.weight, "a WEIGHT above 0")
        if not 0 < float(weight.value) < float("inf"):
            message = f"expected a WEIGHT above 0, not {_shown(weight)}"
            self.blame(item.weight.span, message, parameter=isinstance(item.weight, Param))
        predicate = item.predicate
        if isinstance(predicate, Member):
            path = self.path(predicate.path)
            self.want_number(path, "IS")
            shape = self.shape(predicate.shape, path)
            return Item(Member(path, shape, predicate.span), item.negated, least, weight)
        return Item(self.simple(predicate), item.negated, least, weight)

    def shape(self, shape: Shape, path: Path) -> Shape:
        if shape.is_term:
            return self.term(shape, path)
        before = len(self.problems)
        numbers = tuple(self.number(n, "a number") for n in shape.numbers)
        problem = shapes.problem(shape.name, _floats(numbers)) if len(self.problems) == before else None
        if problem:
            self.blame(shape.span, f"expected {problem}", parameter=_any_param(shape.numbers))
        return Shape(shape.name, numbers, span=shape.span)

    def term(self, shape: Shape, path: Path) -> Shape:
        if self.schema is None:
            self.blame(shape.span, f"the term {shape.name!r} needs a schema that defines it")
            return shape
        plain = ".".join(map(str, path.parts))
        known = self.schema.terms.get(path_text(path)) or self.schema.terms.get(plain) or {}
        found = next((text for name, text in known.items() if name.lower() == shape.name.lower()), None)
        if found is None:
            hint = did_you_mean(shape.name, list(known)) or f"; {path_text(path)} has {', '.join(known) or 'no terms'}"
            self.blame(shape.span, f"unknown term {shape.name!r} of {path_text(path)}{hint}")
            return shape
        try:
            parsed = parse_shape(found)
        except FilterSyntaxError:
            self.blame(shape.span, f"the term {shape.name!r} is {found!r}: expected a shape with numbers")
            return shape
        numbers = tuple(Literal(float(n.value), "float", shape.span) for n in parsed.numbers if isinstance(n, Literal))
        problem = (
            shapes.problem(parsed.name, _floats(numbers)) if len(numbers) == len(parsed.numbers) else "numbers only"
        )
        if problem:
            self.blame(shape.span, f"the term {shape.name!r} is {found!r}: expected {problem}")
            return shape
        return Shape(parsed.name, numbers, span=shape.span)

    # Paths ---------------------------------------------------------------------

    def path(self, path: Path, beside: Path | None = None, *, whole: bool = False) -> Path:
        """Type a path; `whole` allows one to a struct or an array (IS NULL)."""
        if self.schema is None:
            return path
        kind = self.known.get(path.parts)
        if kind is None or whole:
            kind = self.walk(path, beside)
            if kind is not None and not whole:
                kind = self.want_value(path, kind)
                if kind is not None:
                    self.known[path.parts] = kind
        return Path(path.parts, kind, path.span) if kind is not None else path

    def walk(self, path: Path, beside: Path | None) -> Type | None:
        """Follow a path through the schema to its type."""
        assert self.schema is not None
        here: Type = self.schema.root
        for n, part in enumerate(path.parts):
            so_far = path_text(Path(path.parts[:n])) if n else ""
            if isinstance(part, int):
                if not isinstance(here, Array):
                    self.blame(path.span, f"{so_far} ({here}) is no array: expected no index")
                    return None
                if here.bound is not None and part >= here.bound:
                    self.blame(path.span, f"expected an index of {so_far} from 0 to {here.bound - 1}, not {part}")
                    return None
                here = here.item
                continue
            if isinstance(here, Array):
                self.blame(path.span, f"{so_far} is an array: expected an index, such as {so_far}[0]")
                return None
            if not isinstance(here, Struct):
                self.blame(path.span, f"{so_far} ({here}) has no fields: expected no .{part}")
                return None
            field = here.get(part)
            reserved = RESERVED.get(part) if n == 0 and part not in self.schema.absent else None
            kind = field.type if field is not None else reserved
            if kind is None:
                self.unknown(path, part, so_far, here, beside)
                return None
            here = kind
        return here

    def want_value(self, path: Path, kind: Type) -> Type | None:
        if isinstance(kind, Array):
            self.blame(path.span, f"{path_text(path)} is an array: expected an index, such as {path_text(path)}[0]")
            return None
        if isinstance(kind, Struct):
            inner = ", ".join(f"{path_text(path)}.{field.name}" for field in kind.fields[:4])
            self.blame(path.span, f"{path_text(path)} is a struct: expected one of its fields, such as {inner}")
            return None
        return kind

    def unknown(self, path: Path, part: str, so_far: str, struct: Struct, beside: Path | None) -> None:
        if beside is not None and len(path.parts) == 1:
            if part.upper() == "NULL":
                self.blame(path.span, "NULL compares with nothing: expected IS NULL or IS NOT NULL")
                return
            if self.is_text(beside):
                self.blame(path.span, f"unknown field {part}; did you mean '{part}'? Text stands in single quotes")
                return
        names = [field.name for field in struct]
        hint = did_you_mean(part, names) or (f"; expected one of {', '.join(names[:8])}" if names else "")
        self.blame(path.span, f"unknown field {part!r}{f' of {so_far}' if so_far else ''}{hint}")

    def is_text(self, path: Path) -> bool:
        """Say whether a path leads to text, without blaming it."""
        quiet = _Resolver(self.text, self.schema, (), self.like_star)
        kind = quiet.walk(path, None)
        return kind is not None and kind.kind in ("string", "char", "enum")

    # Values --------------------------------------------------------------------

    def meet(self, value: Value, path: Path) -> Literal:
        """Give a value the type of the field that it meets."""
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
            wanted = f"one of {', '.join(map(repr, kind.labels))} or a position"
            if literal.kind == "string":
                wanted += did_you_mean(str(literal.value), list(kind.labels))
        else:
            wanted = _WANTED[kind.kind]
        where = f"%{value.index} is {_shown(literal)}" if isinstance(value, Param) else f"{_shown(literal)} is wrong"
        message = f"{where}: {path_text(path)} ({kind}) expected {wanted}"
        self.blame(value.span, message, parameter=isinstance(value, Param))
        return literal

    def number(self, value: Value, expected: str, low: float = -float("inf"), high: float = float("inf")) -> Literal:
        literal = value if isinstance(value, Literal) else self.literal(value, _FLOAT64)
        if literal.kind not in ("int", "float"):
            self.blame(value.span, f"expected {expected}, not {_shown(literal)}", parameter=isinstance(value, Param))
            return Literal(1.0, "float", value.span)
        if not low <= literal.value <= high:  # type: ignore[operator]
            self.blame(value.span, f"expected {expected}, not {_shown(literal)}", parameter=isinstance(value, Param))
        if literal.kind == "float":
            return literal
        assert not isinstance(literal.value, str)
        return Literal(nearest_float(literal.value), "float", literal.span)

    def literal(self, value: Value, kind: Type | None) -> Literal:
        """Read a parameter as the field it meets would; a literal stays as it is."""
        if isinstance(value, Literal):
            return value
        self.used = max(self.used, value.index + 1)
        if value.index >= len(self.params):
            count = len(self.params)
            given = f"{count} {'was' if count == 1 else 'were'} given"
            self.blame(value.span, f"expected a value for %{value.index}, but {given}", parameter=True)
            return _placeholder(kind, value.span)
        found = read_param(self.params[value.index], kind, value.span)
        if isinstance(found, str):
            self.blame(value.span, f"%{value.index} is {self.params[value.index]!r}: {found}", parameter=True)
            return _placeholder(kind, value.span)
        return found


def read_param(given: Any, kind: Type | None, span: Span) -> Literal | str:
    """Read a parameter's text as the field it meets; a string where it can't be.

    Without a schema a text that looks like a number or a truth value is one.
    """
    match given:
        case bool():
            return Literal(given, "bool", span)
        case int():
            return _whole(int(given), span)
        case float():
            return Literal(float(given), "float", span) if given == given else "expected a number"
        case datetime():
            micros = timestamps.from_datetime(given)
            if not timestamps.is_writable(micros):
                return "expected a time in the years 1 to 9999"
            return Literal(timestamps.to_text(micros), "string", span)
        case str():
            return _read_text(given, kind, span)
    return f"expected text, a number or a truth value, not {type(given).__name__}"


def _whole(number: int, span: Span) -> Literal:
    """A whole number as a literal; one that no text could say is infinite, as in a text."""
    if abs(number) < 10**MAX_DIGITS:
        return Literal(number, "int", span)
    return Literal(float("inf") if number > 0 else float("-inf"), "float", span)


def _read_text(given: str, kind: Type | None, span: Span) -> Literal | str:
    try:
        given.encode()
    except UnicodeEncodeError:
        return "expected Unicode text without lone surrogates"
    text = given.strip()
    if text[:1] in ("'", "`"):
        if _STRING.fullmatch(text) is None:
            return "expected a quote ' that ends this string"
        return Literal(string_value(text), "string", span)
    wanted = kind.kind if kind is not None else ""
    if wanted in ("string", "char", "time"):
        return Literal(given, "string", span)
    if isinstance(kind, Enum) and given in kind.labels:
        return Literal(given, "string", span)
    if _NUMBER.fullmatch(text):
        number = read_number(text)
        return Literal(number, "int" if isinstance(number, int) else "float", span)
    if text.upper() in ("TRUE", "FALSE"):
        return Literal(text.upper() == "TRUE", "bool", span)
    return Literal(given, "string", span)


def _placeholder(kind: Type | None, span: Span) -> Literal:
    """Stand in for a value that could not be read, so that no second problem follows from it."""
    if isinstance(kind, Enum):
        return Literal(kind.labels[0], "string", span)
    if isinstance(kind, Scalar) and kind.kind in ("string", "char"):
        return Literal("", "string", span)
    if isinstance(kind, Scalar) and kind.kind == "time":
        return Literal("1970-01-01", "string", span)
    return Literal(1, "int", span)


def _comparable(one: Type, other: Type) -> bool:
    if isinstance(one, Enum) and isinstance(other, Enum):
        return one == other
    return one.kind == other.kind or frozenset((one.kind, other.kind)) in _PAIRS


def _any_param(values: tuple[Value, ...]) -> bool:
    return any(isinstance(value, Param) for value in values)


def _floats(numbers: tuple[Literal, ...]) -> tuple[float, ...]:
    return tuple(float(number.value) for number in numbers)


def _shown(literal: Literal) -> str:
    if literal.kind == "string":
        text = str(literal.value)
        return repr(text if len(text) <= 40 else text[:40] + "...")
    if literal.kind == "bool":
        return str(literal.value).upper()
    text = str(literal.value) if not isinstance(literal.value, int) or abs(literal.value) < 10**40 else "a huge number"
    return text
