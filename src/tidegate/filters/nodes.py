"""The syntax tree of a filter: one frozen class per kind of predicate.

Positions in the text are carried for messages and never compared: two trees
are equal when they say the same. The same classes serve before and after
typing; typing replaces parameters and named terms, types the paths, and gives
literals the type of the field they meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal as Choice

from tidegate.model.types import Type

Span = tuple[int, int]
NOWHERE: Span = (0, 0)


def _span() -> Span:
    return field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Path:
    """A field: names and indexes, and its type once a schema has given one."""

    parts: tuple[str | int, ...]
    type: Type | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Literal:
    """A value in the text. A `time` is microseconds since 1970 UTC."""

    value: bool | int | float | str
    kind: Choice["bool", "int", "float", "string", "time"]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Param:
    """`%n`: a value that is given beside the text."""

    index: int
    span: Span = _span()


Value = Literal | Param
Operand = Path | Literal | Param
Relation = Choice["=", "<>", "<", "<=", ">", ">="]

FLIPPED: dict[Relation, Relation] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The relation with its sides exchanged."""
OPPOSITE: dict[Relation, Relation] = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""The relation that holds where the other does not."""


@dataclass(frozen=True, slots=True)
class Compare:
    """`field < value` or `field < field`; a value on the left has changed sides."""

    path: Path
    relation: Relation
    other: Operand
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Between:
    """`field BETWEEN low AND high`, both included."""

    path: Path
    low: Value
    high: Value
    negated: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Pattern:
    """`subject LIKE pattern` or `subject MATCH pattern`; at least one is a field."""

    operator: Choice["LIKE", "MATCH"]
    subject: Operand
    pattern: Operand
    negated: bool = False
    star: bool = False
    """`*` and `?` are wildcards of LIKE too; only left True where the pattern is a field."""
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class In:
    """`field IN (value, ...)`."""

    path: Path
    values: tuple[Value, ...]
    negated: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class IsNull:
    """`field IS NULL`: true or false, never unknown."""

    path: Path
    negated: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Area:
    """BOX(west, south, east, north), CIRCLE(lon, lat, metres) or POLYGON(lon lat, ...)."""

    name: Choice["BOX", "CIRCLE", "POLYGON"]
    numbers: tuple[Value, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Inside:
    """`(longitude, latitude) INSIDE area`."""

    longitude: Path
    latitude: Path
    area: Area
    negated: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Bound:
    """How far a STRLIKE may be off: `WITHIN n EDITS` or `SIMILARITY n`."""

    unit: Choice["EDITS", "SIMILARITY"]
    number: Value


@dataclass(frozen=True, slots=True)
class StrLike:
    """`field STRLIKE text`, by edit distance."""

    path: Path
    text: Value
    bound: Bound | None = None
    negated: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Shape:
    """A membership function, or a term of the schema that names one."""

    name: str
    numbers: tuple[Value, ...] = ()
    is_term: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Member:
    """`field IS shape`, an item of a fuzzy group."""

    path: Path
    shape: Shape
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Semantic:
    """`field~ = value~`: likeness of meaning, on one side or on both."""

    path: Path
    value: Value
    soft_path: bool
    soft_value: bool
    negated: bool = False
    span: Span = _span()


ItemPredicate = Member | StrLike | Semantic | Compare | Between | Pattern | In


LEAST_MEMBERSHIP, LEAST_DEGREE, WEIGHT = Literal(0.5, "float"), Literal(0.8, "float"), Literal(1.0, "float")
"""What a fuzzy group takes where its author says nothing: beta, alpha and a weight."""


@dataclass(frozen=True, slots=True)
class Item:
    """One predicate of a fuzzy group, its least membership and its weight."""

    predicate: ItemPredicate
    negated: bool = False
    least: Value = LEAST_MEMBERSHIP
    weight: Value = WEIGHT


@dataclass(frozen=True, slots=True)
class Group:
    """`FUZZY MEAN(item, ...) >= alpha`."""

    mode: Choice["MEAN", "MIN"]
    items: tuple[Item, ...]
    least: Value = LEAST_DEGREE
    negated: bool = False
    span: Span = _span()


Predicate = Compare | Between | Pattern | In | IsNull | Inside | StrLike | Semantic | Group


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a compound; a predicate carries its own."""

    term: Node


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more; of none: every event."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of two or more; of none: no event."""

    terms: tuple[Node, ...]


Node = And | Or | Not | Predicate

EVERYTHING = And(())


@dataclass(frozen=True, slots=True)
class Query:
    """A whole filter: its tree, and what follows it."""

    root: Node = EVERYTHING
    themes: tuple[str, ...] = ()
    threshold: Value | None = None
    is_semantic: bool = False
    """Whether any predicate has a ~."""


def predicates(node: Node) -> Iterator[Predicate]:
    """Walk every predicate of a tree, in the order of the text."""
    pending = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, And | Or):
            pending.extend(reversed(each.terms))
        elif isinstance(each, Not):
            pending.append(each.term)
        else:
            yield each


def paths(predicate: Predicate | ItemPredicate) -> tuple[Path, ...]:
    """Give the fields that a predicate reads."""
    match predicate:
        case Compare(path, _, other):
            return (path, other) if isinstance(other, Path) else (path,)
        case Pattern():
            return tuple(side for side in (predicate.subject, predicate.pattern) if isinstance(side, Path))
        case Inside(longitude, latitude):
            return (longitude, latitude) if longitude != latitude else (longitude,)
        case Group(items=items):
            found: dict[Path, None] = {}
            for item in items:
                found.update(dict.fromkeys(paths(item.predicate)))
            return tuple(found)
    return (predicate.path,)
