"""The small language of projections: `speed * 3.6`, `concat(cid, '-', vid)`, `coalesce(pos.x, 0)`.

Text becomes a tree, is typed against a schema, and is then written as Spark SQL
or, slowly and obviously, evaluated on one event.

    sum     = product { ("+" | "-") product } ;
    product = sign { ("*" | "/" | "%") sign } ;
    sign    = "-" sign | value ;
    value   = number | 'text' | "true" | "false" | "null" | call | path | "(" sum ")" ;
    call    = name "(" sum { "," sum } ")" ;
    path    = part { "." part } ;   part = ( name | '"' any text '"' ) { "[" index "]" } ;
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from tidegate.errors import ExpressionError, Problem, did_you_mean
from tidegate.filters.values import nearest_float32
from tidegate.model import timestamps
from tidegate.model.events import show, value_violations
from tidegate.model.schema import Schema
from tidegate.model.types import Array, Enum, Scalar, Struct, Type, parse_type
from tidegate.services import casts
from tidegate.services.casts import BOOL, FLOAT, INT, STRING
from tidegate.services.functions import COMMON, FUNCTIONS, KINDS, LEAST, LITERALS, MOST, Overload, common_type

MAX_LENGTH = 4_096
"""The longest text of an expression, in characters."""
MAX_OPERATORS = 100
"""How many operators it may have."""
MAX_DEPTH = 24
"""How deep an expression may nest: some functions write an argument twice."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Literal:
    """A value; null has no type."""

    value: Any
    type: Type | None


@dataclass(frozen=True, slots=True)
class Attribute:
    """A path into the event: names, and indexes of arrays."""

    parts: tuple[str | int, ...]
    type: Type
    required: bool


@dataclass(frozen=True, slots=True)
class Cast:
    """A value as one of another type."""

    of: Node
    type: Type


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator of values that have the types it takes."""

    overload: Overload
    arguments: tuple[Node, ...]
    type: Type


Node = Literal | Attribute | Cast | Call


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that fits a schema: its tree, the type of what it gives, and whether it always gives something."""

    text: str
    root: Node
    type: Type
    required: bool

    @property
    def attribute(self) -> str | None:
        """The attribute that it selects as it is; None where it computes, or looks into one."""
        root = self.root
        return str(root.parts[0]) if isinstance(root, Attribute) and len(root.parts) == 1 else None


def resolve(text: str, schema: Schema, *, type: str | Type | None = None, default: Any = None) -> Expression:  # noqa: A002
    """Read an expression and fit it to a schema, or raise an `ExpressionError` with every problem.

    What it gives is cast to `type`, and is `default` where it is null.

    >>> found = resolve("speed * 3.6", Schema({"speed": "float32?"}))
    >>> str(found.type), found.required, evaluate(found, {"speed": 10})
    ('float64', False, 36.0)
    """
    raw = _Parser(text).whole()
    typing = _Typing(text, schema)
    root = typing.node(raw)
    if typing.problems:
        raise ExpressionError(text, typing.problems)
    whole = (0, len(text))
    target = _parse_type(type)
    if target is not None:
        unfit = casts.problem(_type(root), target)
        if unfit:
            typing.fail(whole, unfit)
        if _type(root) != target:
            root = Cast(root, target)
    kind = _type(root)
    if kind is None:
        typing.fail(whole, "expected something that has a type; null needs one: {value: null, type: int32}")
    if default is not None:
        root = _with_default(root, kind, default, typing)
    return Expression(text, root, kind, _required(root))


def _parse_type(given: str | Type | None) -> Type | None:
    return None if given is None else parse_type(given)


def _with_default(root: Node, kind: Type, default: Any, typing: _Typing) -> Node:
    whole = (0, len(typing.text))
    if isinstance(kind, Struct | Array):
        typing.fail(whole, f"a default needs a single value, not {kind}")
    for violation in value_violations(default, kind, "default"):
        typing.fail(whole, str(violation))
    overload = FUNCTIONS["coalesce"][0]
    return Call(overload, (root, Literal(_read(default, kind), kind)), kind)


# Parsing ---------------------------------------------------------------------

Raw = tuple[str, Any, Span]
"""A node before it has a type: its sort (literal, path or call), what it holds, where it stands."""

_TOKEN = re.compile(
    r"""\s*+(?:
      (?P<number>(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+(?![\w.]))
    | (?P<name>[^\W\d]\w*+)
    | (?P<quoted>"(?:[^"]|"")++")
    | (?P<string>'(?:[^']|'')*+')
    | (?P<mark>[-+*/%(),.\[\]])
    | (?P<end>\Z)
    | (?P<unknown>.)
    )""",
    re.VERBOSE | re.DOTALL,
)


class _Parser:
    """Reads one text by recursive descent."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            message = f"expected at most {MAX_LENGTH} characters, not {len(text)}"
            raise ExpressionError(f"{text[:60]}...", [Problem(0, message)])
        self.text, self.at, self.depth, self.operators = text, 0, 0, 0
        self.kind, self.piece, self.start = "", "", 0
        self.next()

    def next(self) -> None:
        found = _TOKEN.match(self.text, self.at)
        assert found is not None
        assert found.lastgroup is not None
        self.kind, self.piece, self.start = found.lastgroup, found[found.lastgroup], found.start(found.lastgroup)
        if self.kind == "unknown":
            wanted = {"'": "a quote ' that ends this text", '"': 'a name in quotes "..."'}.get(self.piece)
            self.fail(wanted or "a value, an attribute or an operator")
        self.at = found.end()

    def fail(self, expected: str) -> NoReturn:
        found = f", not {self.piece!r}" if self.piece else ""
        raise ExpressionError(self.text, [Problem(self.start, f"expected {expected}{found}", max(1, len(self.piece)))])

    def take(self, *marks: str) -> str:
        if self.kind != "mark" or self.piece not in marks:
            return ""
        mark = self.piece
        self.next()
        return mark

    def want(self, mark: str) -> None:
        if not self.take(mark):
            self.fail(f"{mark!r}")

    def whole(self) -> Raw:
        found = self.sum()
        if self.kind != "end":
            self.fail("an operator or the end")
        return found

    def sum(self) -> Raw:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"an expression that nests {MAX_DEPTH} deep at the most")
        found = self.chain(self.product, "+", "-")
        self.depth -= 1
        return found

    def product(self) -> Raw:
        return self.chain(self.sign, "*", "/", "%")

    def chain(self, part: Any, *marks: str) -> Raw:
        found: Raw = part()
        while mark := self.take(*marks):
            self.count_operator()
            other: Raw = part()
            found = ("call", (mark, [found, other]), (found[2][0], other[2][1]))
        return found

    def sign(self) -> Raw:
        starts = []
        while self.kind == "mark" and self.piece == "-":
            starts.append(self.start)
            self.count_operator()
            self.next()
        found = self.value()
        for start in reversed(starts):
            sort, held, (_, end) = found
            if sort == "literal" and isinstance(held, int | float) and not isinstance(held, bool):
                found = sort, -held, (start, end)
            else:
                found = "call", ("negative", [found]), (start, end)
        return found

    def count_operator(self) -> None:
        self.operators += 1
        if self.operators > MAX_OPERATORS:
            self.fail(f"at most {MAX_OPERATORS} operators")

    def value(self) -> Raw:
        kind, piece, start = self.kind, self.piece, self.start
        span = (start, start + len(piece))
        if self.take("("):
            found = self.sum()
            self.want(")")
            return found
        if kind not in ("number", "string", "name", "quoted"):
            self.fail("a value or an attribute")
        self.next()
        if kind == "number":
            return "literal", int(piece) if piece.isdecimal() else float(piece), span
        if kind == "string":
            return "literal", piece[1:-1].replace("''", "'"), span
        if kind == "name":
            if piece.lower() in _WORDS:
                return "literal", _WORDS[piece.lower()], span
            if self.take("("):
                return self.call(piece, start)
        return self.path(piece, start)

    def call(self, name: str, start: int) -> Raw:
        arguments: list[Raw] = []
        while not arguments or self.take(","):
            arguments.append(self.sum())
        end = self.at
        self.want(")")
        return "call", (name.lower(), arguments), (start, end)

    def path(self, first: str, start: int) -> Raw:
        parts: list[str | int] = [_name(first)]
        end = start + len(first)
        while mark := self.take(".", "["):
            end = self.start + len(self.piece)
            if mark == ".":
                if self.kind not in ("name", "quoted"):
                    self.fail("a name after the dot")
                parts.append(_name(self.piece))
                self.next()
                continue
            if self.kind != "number" or not self.piece.isdecimal() or len(self.piece) > 9:
                self.fail("an index, such as [3]")
            parts.append(int(self.piece))
            self.next()
            end = self.start + 1
            self.want("]")
        return "path", tuple(parts), (start, end)


def names(text: str) -> frozenset[str]:
    """Return the attributes that an expression names, whatever schema it is for; raises an `ExpressionError`.

    >>> sorted(names("concat(cid, '-', pos.x) + 1"))
    ['cid', 'pos']
    """
    found: set[str] = set()
    waiting = [_Parser(text).whole()]
    while waiting:
        sort, held, _ = waiting.pop()
        if sort == "path":
            found.add(str(held[0]))
        elif sort == "call":
            waiting += held[1]
    return frozenset(found)


_WORDS = {"true": True, "false": False, "null": None}


def _name(piece: str) -> str:
    return piece[1:-1].replace('""', '"') if piece.startswith('"') else piece


# Typing ----------------------------------------------------------------------


class _Typing:
    """Fits one tree to a schema; `problems` grows."""

    def __init__(self, text: str, schema: Schema) -> None:
        self.text, self.schema = text, schema
        self.problems: list[Problem] = []

    def blame(self, span: Span, message: str) -> Node:
        self.problems.append(Problem(span[0], message, max(1, span[1] - span[0])))
        return Literal(None, None)

    def fail(self, span: Span, message: str) -> NoReturn:
        self.blame(span, message)
        raise ExpressionError(self.text, self.problems)

    def node(self, raw: Raw) -> Node:
        sort, held, span = raw
        if sort == "path":
            return self.path(held, span)
        if sort == "call":
            name, arguments = held
            return self.call(name, arguments, span)
        return self.literal(held, span)

    def literal(self, value: Any, span: Span) -> Node:
        match value:
            case None:
                return Literal(None, None)
            case bool():
                return Literal(value, BOOL)
            case str():
                return Literal(value, STRING)
            case int():
                if LEAST <= value <= MOST:
                    return Literal(value, INT)
                return self.blame(span, f"expected a whole number of 64 bits, or a float such as {show(value)[:40]}.0")
        if value in (float("inf"), float("-inf")):
            return self.blame(span, "expected a number that a float64 can hold")
        return Literal(value, FLOAT)

    def path(self, parts: tuple[str | int, ...], span: Span) -> Node:
        first = str(parts[0])
        found = self.schema.get(first)
        if found is None:
            return self.unknown(first, self.schema.root, span)
        kind, required, so_far = found.type, found.required, first
        for part in parts[1:]:
            if isinstance(part, int):
                if not isinstance(kind, Array):
                    return self.blame(span, f"{so_far} ({kind}) is no array: expected no index")
                if kind.bound is not None and part >= kind.bound:
                    return self.blame(span, f"{so_far} has at most {kind.bound} elements: expected an index below")
                kind, required, so_far = kind.item, False, f"{so_far}[{part}]"
                continue
            field = kind.get(part) if isinstance(kind, Struct) else None
            if not isinstance(kind, Struct):
                return self.blame(span, f"{so_far} ({kind}) has no parts: expected no .{part}")
            if field is None:
                return self.unknown(part, kind, span)
            kind, required, so_far = field.type, required and field.required, f"{so_far}.{part}"
        if "${" in so_far:
            return self.blame(span, "expected a name without ${, which Spark takes for a setting")
        return Attribute(parts, kind, required)

    def unknown(self, name: str, struct: Struct, span: Span) -> Node:
        names = [field.name for field in struct]
        hint = did_you_mean(name, names) or (f"; expected one of {', '.join(names[:8])}" if names else "")
        return self.blame(span, f"unknown attribute {name!r}{hint}")

    def call(self, name: str, raws: list[Raw], span: Span) -> Node:
        before = len(self.problems)
        arguments = [self.node(raw) for raw in raws]
        overloads = FUNCTIONS.get(name)
        if overloads is None:
            known = [each for each in FUNCTIONS if each.isidentifier()]
            return self.blame(span, f"unknown function {name!r}{did_you_mean(name, known)}")
        if len(self.problems) > before:
            return Literal(None, None)
        for overload in overloads:
            fitted = _fit(overload, arguments)
            if fitted is not None:
                return fitted
        general = [each for each in overloads if "int" not in each.takes] or overloads
        wanted = " or ".join(dict.fromkeys(_words(overload) for overload in general))
        given = ", ".join(str(_type(each) or "null") for each in arguments)
        return self.blame(span, f"{name!r} expected {wanted}, not {given}")


def _fit(overload: Overload, arguments: list[Node]) -> Node | None:
    """Convert the arguments to what an overload takes; None where they don't fit."""
    takes = overload.takes
    if takes[0] in COMMON:
        kinds = [_type(each) for each in arguments]
        common = common_type(kinds)
        if takes[0] == "ordered*" and len(arguments) < 2:
            return None
        if common is None or any(kind is not None and kind.kind not in COMMON[takes[0]] for kind in kinds):
            return None
        return Call(overload, tuple(_convert(each, common) for each in arguments), common)
    if takes[0].endswith("*"):
        takes = (takes[0][:-1],) * len(arguments)
    if len(takes) != len(arguments):
        return None
    fitted: list[Node] = []
    for name, argument in zip(takes, arguments, strict=True):
        fitting, target, _ = KINDS[name]
        kind = _type(argument)
        if name in LITERALS:
            low, high = LITERALS[name]
            if not isinstance(argument, Literal) or kind != INT or not low <= argument.value <= high:
                return None
        elif (kind is not None and kind.kind not in fitting) or (kind is None and target is None):
            return None
        fitted.append(argument if target is None else _convert(argument, target))
    assert overload.gives is not None
    return Call(overload, tuple(fitted), overload.gives)


def _convert(node: Node, target: Type) -> Node:
    return node if _type(node) == target else Cast(node, target)


def _words(overload: Overload) -> str:
    first = overload.takes[0]
    if first in COMMON:
        return "values of one type" if first == "any*" else "several numbers, texts or timestamps"
    return " and ".join(KINDS[name.rstrip("*")][2] for name in overload.takes)


def _type(node: Node) -> Type | None:
    return node.type


def _required(node: Node) -> bool:
    match node:
        case Literal():
            return node.value is not None
        case Attribute():
            return node.required
        case Cast():
            return _required(node.of) and not casts.may_lose(_type(node.of), node.type)
        case Call():
            if node.overload.lenient:
                return any(map(_required, node.arguments))
            return node.overload.total and all(map(_required, node.arguments))


# Spark SQL -------------------------------------------------------------------


def to_sql(expression: Expression) -> str:
    """Write an expression as Spark SQL: attributes back-quoted, nothing in it raises in ANSI mode.

    >>> print(to_sql(resolve("speed / 2", Schema({"speed": "float64"}))))
    try_divide(`speed`, CAST(2L AS DOUBLE))
    """
    return _sql(expression.root)


def _sql(node: Node) -> str:
    match node:
        case Literal():
            return _literal_sql(node.value, node.type)
        case Attribute():
            return _path_sql(node.parts)
        case Cast():
            return casts.sql(_sql(node.of), _type(node.of), node.type)
        case Call():
            takes = node.overload.takes
            written = [
                str(each.value) if isinstance(each, Literal) and n < len(takes) and takes[n] in LITERALS else _sql(each)
                for n, each in enumerate(node.arguments)
            ]
            return node.overload.sql.format(*written, all=", ".join(written))


def _path_sql(parts: tuple[str | int, ...]) -> str:
    text = ""
    for part in parts:
        if isinstance(part, int):
            text = f"get({text}, {part})"
        else:
            name = "`" + part.replace("`", "``") + "`"
            text = f"{text}.{name}" if text else name
    return text


def _literal_sql(value: Any, kind: Type | None) -> str:
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
    if kind == INT and value > LEAST:
        return f"{value}L" if value >= 0 else f"({value}L)"
    assert kind is not None
    return f"CAST('{value}' AS {casts.type_name(kind)})"


def _float_sql(value: float, kind: Type | None) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        written = f"CAST('{str(value).replace('inf', 'Infinity').replace('nan', 'NaN')}' AS DOUBLE)"
    else:
        written = f"{value!r}D" if str(value)[0] != "-" else f"({value!r}D)"
    return written if kind != Scalar("float32") else f"CAST({written} AS FLOAT)"


# Evaluation ------------------------------------------------------------------


def evaluate(expression: Expression, event: Mapping[str, Any]) -> Any:
    """Give an expression's value on one event: slow and obvious, the version that Spark is held against.

    The event fits the schema. Timestamps come back as aware `datetime`s.
    """
    return _evaluate(expression.root, event)


def _evaluate(node: Node, event: Mapping[str, Any]) -> Any:
    match node:
        case Literal():
            return node.value
        case Attribute():
            return _read(_walk(event, node.parts), node.type)
        case Cast():
            return casts.value(_evaluate(node.of, event), _type(node.of), node.type)
        case Call():
            values = [_evaluate(each, event) for each in node.arguments]
            if not node.overload.lenient and any(value is None for value in values):
                return None
            return node.overload.python(*values)


def _walk(event: Any, parts: tuple[str | int, ...]) -> Any:
    for part in parts:
        if isinstance(part, str):
            event = event.get(part) if isinstance(event, Mapping) else None
        else:
            event = event[part] if isinstance(event, list | tuple) and part < len(event) else None
    return event


def _read(value: Any, kind: Type) -> Any:
    """A value of an event as the types say: moments as datetimes, enums as labels, floats as floats."""
    if value is None:
        return None
    match kind:
        case Struct():
            return {field.name: _read(value.get(field.name), field.type) for field in kind}
        case Array():
            return [_read(item, kind.item) for item in value]
        case Enum():
            return value if isinstance(value, str) else kind.labels[value]
    if kind.kind == "time":
        micros = timestamps.from_datetime(value) if isinstance(value, datetime) else timestamps.from_text(value)
        return None if micros is None else timestamps.to_datetime(micros)
    if kind.kind == "float":
        return nearest_float32(value) if kind.name == "float32" else float(value)
    return value
