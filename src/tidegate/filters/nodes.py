"""The syntax tree of a filter: one frozen class per kind of predicate.

Nodes carry their positions in the text for messages. Positions are not compared, so trees are equal if they have the
same structure. The same classes are used before and after typing: typing replaces parameters and terms, adds types to
paths, and gives literals the type of the field that they are compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal as Choice

from tidegate.expressions.nodes import ExpressionNode
from tidegate.expressions.parser import UntypedConstant, UntypedNode
from tidegate.model.types import Type

Span = tuple[int, int]
NOWHERE: Span = (0, 0)


def _span() -> Span:
    return field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Path:
    """A field: names and indices, and its type if there is a schema."""

    parts: tuple[str | int, ...]
    type: Type | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ComputedValue(Path):
    """A value that an expression computes from fields: `speed * 3.6`. It has no `parts`."""

    term: UntypedNode = UntypedConstant(None, NOWHERE)
    """The expression; after typing without parameters."""
    root: ExpressionNode | None = field(default=None, compare=False, repr=False)
    """The typed expression; None without a schema."""
    fields: tuple[Path, ...] = field(default=(), repr=False)
    """The fields that the expression reads."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A value in the text. A `time` is in microseconds since 1970 UTC."""

    value: bool | int | float | str
    kind: Choice["bool", "int", "float", "string", "time"]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Param:
    """`%n`: a value that is passed separately from the text."""

    index: int
    span: Span = _span()


Value = Literal | Param
Operand = Path | Literal | Param
Relation = Choice["=", "<>", "<", "<=", ">", ">="]

FLIPPED: dict[Relation, Relation] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The relation after its sides are exchanged."""
OPPOSITE: dict[Relation, Relation] = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""The negation of each relation."""


@dataclass(frozen=True, slots=True)
class Compare:
    """`field < value` or `field < field`; a value on the left was moved to the right."""

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
    """`subject LIKE pattern` or `subject MATCH pattern`; at least one of the two is a field."""

    operator: Choice["LIKE", "MATCH"]
    subject: Operand
    pattern: Operand
    negated: bool = False
    star: bool = False
    """True if `*` and `?` are also wildcards of LIKE; after typing only if the pattern is a field."""
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class In:
    """`field IN (value, ...)`."""

    path: Path
    values: tuple[Operand, ...]
    """Literals and parameters; a field only until the predicate is read completely."""
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
    """The bound of a STRLIKE: `WITHIN n EDITS` or `SIMILARITY n`."""

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
class FuzzyShape:
    """A membership function, or a term of the schema that names one."""

    name: str
    numbers: tuple[Value, ...] = ()
    is_term: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Member:
    """`field IS shape`, an item of a fuzzy group."""

    path: Path
    shape: FuzzyShape
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Semantic:
    """`field~ = value~`: semantic similarity on one side or on both."""

    path: Path
    value: Value
    soft_path: bool
    soft_value: bool
    negated: bool = False
    span: Span = _span()


ItemPredicate = Member | StrLike | Semantic | Compare | Between | Pattern | In


LEAST_MEMBERSHIP, LEAST_DEGREE, WEIGHT = Literal(0.5, "float"), Literal(0.8, "float"), Literal(1.0, "float")
"""Defaults of a fuzzy group: minimum membership (beta), minimum degree (alpha), weight."""


@dataclass(frozen=True, slots=True)
class Item:
    """One predicate of a fuzzy group, its minimum membership and its weight."""

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
    """The negation of a compound; a predicate carries its own negation."""

    term: Node


@dataclass(frozen=True, slots=True)
class And:
    """True if all terms are; without terms it matches every event."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True if any term is; without terms it matches no event."""

    terms: tuple[Node, ...]


Node = And | Or | Not | Predicate

EVERYTHING = And(())


@dataclass(frozen=True, slots=True)
class Query:
    """A whole filter: its tree and the clauses after it."""

    root: Node = EVERYTHING
    themes: tuple[str, ...] = ()
    threshold: Value | None = None
    is_semantic: bool = False
    """True if any predicate has a ~."""


def predicates(node: Node) -> Iterator[Predicate]:
    """Yield every predicate of a tree, in the order of the text."""
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, And | Or):
            pending.extend(reversed(current.terms))
        elif isinstance(current, Not):
            pending.append(current.term)
        else:
            yield current


def paths(predicate: Predicate | ItemPredicate) -> tuple[Path, ...]:
    """Return the fields that a predicate reads, also those that a computed value is computed from."""
    distinct: dict[Path, None] = {}
    for operand in operands(predicate):
        distinct.update(dict.fromkeys(operand.fields if isinstance(operand, ComputedValue) else (operand,)))
    return tuple(distinct)


def operands(predicate: Predicate | ItemPredicate) -> tuple[Path, ...]:
    """Return the fields and computed values that a predicate compares."""
    match predicate:
        case Compare(path, _, other):
            return (path, other) if isinstance(other, Path) else (path,)
        case Pattern():
            return tuple(side for side in (predicate.subject, predicate.pattern) if isinstance(side, Path))
        case Inside(longitude, latitude):
            return (longitude, latitude)
        case Group(items=items):
            return tuple(operand for item in items for operand in operands(item.predicate))
    return (predicate.path,)
