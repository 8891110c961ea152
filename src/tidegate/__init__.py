"""Tidegate turns sensor streams into services.

Importing this package does no work: each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.client import AsyncClient, Client
    from tidegate.errors import (
        BreakingChange,
        ClientError,
        CursorError,
        DefinitionError,
        EventError,
        ExpressionError,
        FilterError,
        FilterNotNative,
        FilterParameterError,
        FilterSyntaxError,
        FilterTypeError,
        LogError,
        MatcherError,
        MissingDependency,
        NotRegistered,
        RegistryError,
        SchemaError,
        SemanticsUnavailable,
        SpaceError,
        TidegateError,
        UnsatisfiableFilter,
        VersionConflict,
    )
    from tidegate.filters import Filter
    from tidegate.matching import Matcher
    from tidegate.model import Array, Enum, Optional, Schema
    from tidegate.semantics import Space

__version__ = "0.2.0"

_HOMES = {
    "Array": "tidegate.model",
    "AsyncClient": "tidegate.client",
    "BreakingChange": "tidegate.errors",
    "Client": "tidegate.client",
    "ClientError": "tidegate.errors",
    "DefinitionError": "tidegate.errors",
    "Enum": "tidegate.model",
    "EventError": "tidegate.errors",
    "ExpressionError": "tidegate.errors",
    "Filter": "tidegate.filters",
    "FilterError": "tidegate.errors",
    "FilterNotNative": "tidegate.errors",
    "FilterParameterError": "tidegate.errors",
    "FilterSyntaxError": "tidegate.errors",
    "FilterTypeError": "tidegate.errors",
    "Matcher": "tidegate.matching",
    "CursorError": "tidegate.errors",
    "LogError": "tidegate.errors",
    "MatcherError": "tidegate.errors",
    "MissingDependency": "tidegate.errors",
    "NotRegistered": "tidegate.errors",
    "Optional": "tidegate.model",
    "RegistryError": "tidegate.errors",
    "Schema": "tidegate.model",
    "SchemaError": "tidegate.errors",
    "SemanticsUnavailable": "tidegate.errors",
    "Space": "tidegate.semantics",
    "SpaceError": "tidegate.errors",
    "TidegateError": "tidegate.errors",
    "UnsatisfiableFilter": "tidegate.errors",
    "VersionConflict": "tidegate.errors",
}

_EXTRAS = {"AsyncClient": "client", "Client": "client", "Matcher": "matching", "Space": "arrow"}
"""Names that need more than the base installation, and the extra that installs it."""

__all__ = [
    "Array",
    "AsyncClient",
    "BreakingChange",
    "Client",
    "ClientError",
    "CursorError",
    "DefinitionError",
    "Enum",
    "EventError",
    "ExpressionError",
    "Filter",
    "FilterError",
    "FilterNotNative",
    "FilterParameterError",
    "FilterSyntaxError",
    "FilterTypeError",
    "LogError",
    "Matcher",
    "MatcherError",
    "MissingDependency",
    "NotRegistered",
    "Optional",
    "RegistryError",
    "Schema",
    "SchemaError",
    "SemanticsUnavailable",
    "Space",
    "SpaceError",
    "TidegateError",
    "UnsatisfiableFilter",
    "VersionConflict",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    from importlib import import_module

    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as exc:
        if name not in _EXTRAS:
            raise
        from tidegate.errors import MissingDependency

        raise MissingDependency(str(exc.name), _EXTRAS[name]) from exc
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
