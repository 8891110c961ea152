"""The types of an event's attributes, and their notation.

A type is written as text: `float64`, `int32[4]` (at most four elements), `string[]`, `enum(CAR, BUS)`, `{x: float64, y:
float64}[]`. A `?` at the end makes an attribute optional. In Python a struct may be a dict, and `Enum`, `Array` and
`Optional` may replace their notation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from tidegate.errors import SchemaError, did_you_mean

INTEGER_RANGES: dict[str, tuple[int, int]] = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
"""Minimum and maximum of each integer type."""

_KINDS = {
    "bool": "bool",
    **dict.fromkeys(INTEGER_RANGES, "int"),
    "float32": "float",
    "float64": "float",
    "char": "char",
    "string": "string",
    "timestamp": "time",
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A named type: `bool`, `int8` to `uint64`, `float32`, `float64`, `char`, `string`, `timestamp`."""

    name: str
    kind: str = field(init=False, repr=False, compare=False)
    """How its values compare: bool, int, float, char, string or time."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", _KINDS[self.name])

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, init=False)
class Enum:
    """One of several labels, ordered by position.

    >>> str(Enum("CAR", "BUS"))
    'enum(CAR, BUS)'
    """

    labels: tuple[str, ...]
    kind: ClassVar[str] = "enum"

    def __init__(self, *labels: str) -> None:
        if not labels:
            raise SchemaError("an enum needs at least one label")
        for label in labels:
            if not isinstance(label, str) or not label:
                raise SchemaError(f"an enum label must be a non-empty string, not {label!r}")
        if len(set(labels)) < len(labels):
            raise SchemaError(f"enum labels must be distinct, not {list(labels)}")
        object.__setattr__(self, "labels", labels)

    def __str__(self) -> str:
        return f"enum({', '.join(map(_quoted, self.labels))})"


@dataclass(frozen=True, slots=True, init=False)
class Array:
    """A list of elements of one type: at most `bound` of them, or any number.

    >>> str(Array("int32", 4)), str(Array({"x": "float64"}))
    ('int32[4]', '{x: float64}[]')
    """

    item: Type
    bound: int | None
    kind: ClassVar[str] = "array"

    def __init__(self, item: Any, bound: int | None = None) -> None:
        if bound is not None and (type(bound) is not int or bound < 1):
            raise SchemaError(f"an array's bound must be a whole number above 0, not {bound!r}")
        object.__setattr__(self, "item", parse_type(item))
        object.__setattr__(self, "bound", bound)

    def __str__(self) -> str:
        # int32[2][3] is written in the order of its indices: the outer bound comes first.
        suffix, inner = "", self
        while True:
            suffix += f"[{'' if inner.bound is None else inner.bound}]"
            if not isinstance(inner.item, Array):
                return f"{inner.item}{suffix}"
            inner = inner.item


@dataclass(frozen=True, slots=True)
class Field:
    """A named attribute of a struct. A required one must not be missing or null."""

    name: str
    type: Type
    required: bool = True


@dataclass(frozen=True, slots=True)
class Struct:
    """Named attributes, in order."""

    fields: tuple[Field, ...]
    kind: ClassVar[str] = "struct"

    def __post_init__(self) -> None:
        names = [field_.name for field_ in self.fields]
        if "" in names or len(set(names)) < len(names):
            raise SchemaError(f"attribute names must be non-empty and distinct, not {names}")

    def get(self, name: str) -> Field | None:
        """Return a field by its name; None if there is none."""
        for field_ in self.fields:
            if field_.name == name:
                return field_
        return None

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __str__(self) -> str:
        return "{" + ", ".join(f"{_quoted(f.name)}: {notation(f)}" for f in self.fields) + "}"


@dataclass(frozen=True, slots=True)
class Optional:
    """Only a notation: `Optional(T)` is T with a `?`."""

    type: Any


Type = Scalar | Enum | Array | Struct

SCALARS = {name: Scalar(name) for name in _KINDS}


def notation(of: Field) -> str:
    """Return a field's type as text, with its `?`."""
    return f"{of.type}{'' if of.required else '?'}"


def parse_type(value: Any, path: str = "") -> Type:
    """Return a type from any of its notations. Raises `SchemaError`.

    >>> parse_type("int32[4]") == Array("int32", 4)
    True
    >>> parse_type("flot64")
    Traceback (most recent call last):
    tidegate.errors.SchemaError: unknown type 'flot64'; did you mean 'float64'?
    """
    kind, required = parse_field_type(value, path)
    if not required:
        raise SchemaError(f"{value!r} is optional, but a type that is required was expected", path)
    return kind


def parse_field_type(value: Any, path: str = "") -> tuple[Type, bool]:
    """Return a type, and whether it is required. Raises `SchemaError`."""
    match value:
        case Scalar() | Enum() | Array() | Struct():
            return value, True
        case Optional():
            return parse_field_type(value.type, path)[0], False
        case str():
            return _Notation(value, path).whole()
        case Mapping():
            return parse_struct(value, path), True
    raise SchemaError(
        f"{value!r} is not a type; expected a name such as 'float64', 'enum(CAR, BUS)' or 'int32[4]?', a dict, Enum, "
        "Array or Optional",
        path,
    )


def parse_struct(types: Mapping[Any, Any], path: str = "") -> Struct:
    """Return a struct from a dict of names to types. Raises `SchemaError`."""
    if path.count(".") > _MAX_DEPTH:
        raise SchemaError(f"a type may nest {_MAX_DEPTH} levels deep at most", path[:40])
    fields = []
    for name, kind in types.items():
        if not isinstance(name, str) or not name:
            raise SchemaError(f"an attribute's name must be a non-empty string, not {name!r}", path)
        where = f"{path}.{name}" if path else name
        fields.append(Field(name, *parse_field_type(kind, where)))
    return Struct(tuple(fields))


_TOKEN = re.compile(r'\s*(?:(?P<word>\w+)|(?P<quoted>"(?:[^"]|"")*+")|(?P<mark>[\[\](){},:?]))')
_MAX_DEPTH = 64


class _Notation:
    """Parses one type that is written as text."""

    def __init__(self, text: str, path: str) -> None:
        self.text, self.path, self.at, self.depth = text, path, 0, 0

    def whole(self) -> tuple[Type, bool]:
        kind, required = self.field_type()
        if self.text[self.at :].strip():
            self.fail("the end of the type")
        return kind, required

    def field_type(self) -> tuple[Type, bool]:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise SchemaError(f"a type may nest {_MAX_DEPTH} levels deep at most", self.path)
        kind = self.core()
        bounds: list[int | None] = []
        while self.take("["):
            bounds.append(self.bound())
        for bound in reversed(bounds):
            kind = Array(kind, bound)
        self.depth -= 1
        return kind, not self.take("?")

    def bound(self) -> int | None:
        if self.take("]"):
            return None
        digits = self.word("a number of elements or ]")
        if not digits.isdecimal() or len(digits) > 9 or int(digits) < 1:
            raise SchemaError(f"an array's bound must be a whole number above 0, not {digits!r}", self.path)
        self.want("]")
        return int(digits)

    def core(self) -> Type:
        if self.take("{"):
            return self.struct()
        name = self.word("a type")
        if name == "enum" and self.take("("):
            return self.enum()
        if name in SCALARS:
            return SCALARS[name]
        hint = did_you_mean(name, SCALARS) or f"; expected one of {', '.join(SCALARS)}"
        raise SchemaError(f"unknown type {name!r}{hint}", self.path)

    def enum(self) -> Enum:
        labels = [self.word("a label")]
        while self.take(","):
            labels.append(self.word("a label"))
        self.want(")")
        return Enum(*labels)

    def struct(self) -> Struct:
        fields: dict[str, Field] = {}
        while not self.take("}"):
            if fields:
                self.want(",")
            name = self.word("an attribute's name or }")
            if name in fields:
                raise SchemaError(f"attribute {name!r} occurs twice in {self.text!r}", self.path)
            self.want(":")
            fields[name] = Field(name, *self.field_type())
        return Struct(tuple(fields.values()))

    def take(self, mark: str) -> bool:
        token = _TOKEN.match(self.text, self.at)
        if token is None or token["mark"] != mark:
            return False
        self.at = token.end()
        return True

    def want(self, mark: str) -> None:
        if not self.take(mark):
            self.fail(f"{mark!r}")

    def word(self, what: str) -> str:
        token = _TOKEN.match(self.text, self.at)
        if token is None or token["mark"]:
            self.fail(what)
        self.at = token.end()
        return token["word"] or token["quoted"][1:-1].replace('""', '"')

    def fail(self, what: str) -> NoReturn:
        rest = self.text[self.at :].strip()
        next_text = f"found {rest[:20]!r}" if rest else "the text ends"
        raise SchemaError(f"expected {what} in type {self.text!r}, but {next_text}", self.path)


def _quoted(word: str) -> str:
    """Return a label or name, quoted if it would not parse back otherwise."""
    return word if re.fullmatch(r"\w+", word) else '"' + word.replace('"', '""') + '"'
