"""The typed tree of an expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.expressions.overloads import Overload
from tidegate.model.types import Type


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal value."""

    value: Any
    type: Type | None
    """None: the value is null."""


@dataclass(frozen=True, slots=True)
class AttributePath:
    """The value at a path into the event."""

    parts: tuple[str | int, ...]
    """Names of attributes, and indexes of arrays."""
    type: Type
    required: bool
    """True if every event of the schema has the value."""


@dataclass(frozen=True, slots=True)
class Cast:
    """A value converted to another type."""

    argument: ExpressionNode
    type: Type


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function or operator, with arguments that already have the types of its overload."""

    overload: Overload
    arguments: tuple[ExpressionNode, ...]
    type: Type


ExpressionNode = Constant | AttributePath | Cast | FunctionCall


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that was checked against a schema."""

    text: str
    root: ExpressionNode
    type: Type
    """The type of the result."""
    required: bool
    """True if the result is never null."""

    @property
    def attribute(self) -> str | None:
        """The top-level attribute that the expression selects unchanged; None if it computes or selects a part."""
        root = self.root
        return str(root.parts[0]) if isinstance(root, AttributePath) and len(root.parts) == 1 else None
