"""Attributes that services offer and consumers request.

An attribute is a name, a family of types, and the values that may occur. Types are compared by family, because a
consumer that needs a number can use an `int32` as well as a `float64`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.filters import sets
from tidegate.filters.satisfiable import constraint_sets
from tidegate.filters.sets import ALL, Cuts, ValueSet
from tidegate.model import Schema
from tidegate.model.types import INTEGER_RANGES, Array, Enum, Scalar, Struct, Type

FAMILIES = ("number", "text", "bool", "time", "object", "list")
"""Families of types; types of one family compare with each other."""

_FAMILY = {
    "bool": "bool",
    "int": "number",
    "float": "number",
    "char": "text",
    "string": "text",
    "enum": "text",
    "time": "time",
    "struct": "object",
    "array": "list",
}

AttributeKey = tuple[str, str]
"""Name and family, which are hashed (definition 1)."""


@dataclass(frozen=True, slots=True)
class ServiceAttribute:
    """An attribute that a service offers."""

    name: str
    """Path of the field: `pos.x` inside a struct."""
    family: str
    allowed: Cuts | None = ALL
    """Values that type and constraint allow; None: no set expresses them."""

    @property
    def key(self) -> AttributeKey:
        """Name and family."""
        return self.name, self.family


@dataclass(frozen=True, slots=True)
class WantedAttribute:
    """An attribute that a consumer requests."""

    name: str
    family: str | None = None
    """None: any type."""
    values: Cuts | None = None
    """Values that the service's constraint must allow; None: no condition."""

    def fits(self, offered: ServiceAttribute) -> bool:
        """Return True if an attribute with a matching name has the type and allows the values."""
        if self.family not in (None, offered.family):
            return False
        if self.values is None:
            return True
        return offered.allowed is not None and is_within(self.values, offered.allowed)


def is_within(wanted: Cuts, allowed: Cuts) -> bool:
    """Return True if all requested values are allowed; False if the values do not compare.

    >>> is_within(sets.between(10, 20), sets.related(">", 0)), is_within(sets.points(["a"]), sets.between(1, 5))
    (True, False)
    """
    try:
        return sets.is_subset(wanted, allowed)
    except TypeError:
        return False


def family_of(kind: Type) -> str:
    """Return the family of a type.

    >>> family_of(Scalar("int32")), family_of(Enum("CAR"))
    ('number', 'text')
    """
    return _FAMILY[kind.kind]


def attributes_of(schema: Schema) -> tuple[ServiceAttribute, ...]:
    """Return the attributes of a schema; fields of structs by their paths.

    >>> [attribute.name for attribute in attributes_of(Schema({"vid": "string", "pos": {"x": "float64"}}))]
    ['vid', 'pos', 'pos.x']
    """
    constraints = {path.parts: values for path, (values, _) in constraint_sets(schema).items()}
    # A constraint that no set expresses is in the schema, but not in `constraints`.
    unsaid = {name for name in schema.constraints if (name,) not in constraints and _parts(name) not in constraints}
    return tuple(_walk(schema.root, (), constraints, unsaid))


def _parts(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))


def _walk(
    struct: Struct, above: tuple[str, ...], constraints: Mapping[tuple[str | int, ...], ValueSet], unsaid: set[str]
) -> Iterator[ServiceAttribute]:
    for field in struct:
        parts = (*above, field.name)
        name = ".".join(parts)
        allowed = None if name in unsaid else _allowed(field.type, constraints.get(parts))
        yield ServiceAttribute(name, family_of(field.type), allowed)
        if isinstance(field.type, Struct):
            yield from _walk(field.type, parts, constraints, unsaid)


def _allowed(kind: Type, constraint: ValueSet | None) -> Cuts | None:
    domain = ALL
    if isinstance(kind, Scalar) and kind.name in INTEGER_RANGES:
        domain = sets.between(*INTEGER_RANGES[kind.name])
    if isinstance(kind, Enum):
        domain = sets.between(0, len(kind.labels) - 1)
    if isinstance(kind, Struct | Array):
        return ALL
    if constraint is not None:
        if constraint.tests or len(constraint.cuts) != 1:
            return None
        (cuts,) = constraint.cuts.values()
        domain = sets.intersect(domain, cuts)
    if isinstance(kind, Enum):
        labels = [label for n, label in enumerate(kind.labels) if sets.holds(domain, n)]
        return sets.points(labels)
    return domain


def value_range(low: Any, high: Any) -> Cuts:
    """Return the values from `low` to `high`, both included; None means no bound on that side."""
    begin = ALL if low is None else sets.related(">=", low)
    return sets.intersect(begin, ALL if high is None else sets.related("<=", high))
