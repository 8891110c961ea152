"""Reads the maps of a profile, and says which key is unknown."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tidegate.errors import EnvironmentProblem, did_you_mean


def read_entries(document: Any, known: Collection[str], where: str, *, has_secrets: bool = False) -> dict[str, Any]:
    """Return the entries of a map that are not null.

    Raises an `EnvironmentProblem` at `where` if the document is no map, or has a key that is not `known`.
    `has_secrets`: a value that is no map is described by its type only, as it may be a password.
    """
    if not isinstance(document, Mapping):
        value = describe_type(document) if has_secrets else repr(document)
        raise EnvironmentProblem(f"{where}: expected a map with {', '.join(known)}, not {value}")
    for key in document:
        if key not in known:
            hint = did_you_mean(str(key), known) or f"; expected {', '.join(known)}"
            raise EnvironmentProblem(f"{where}: unknown key {key!r}{hint}")
    return {key: value for key, value in document.items() if value is not None}


def describe_type(value: Any) -> str:
    """Describe a value by its type and keys, without its content.

    >>> describe_type({"kafka": {"password": "hush"}}), describe_type(None), describe_type("hush")
    ('a map with kafka', 'nothing', 'str')
    """
    if isinstance(value, Mapping):
        return f"a map with {', '.join(map(str, value)) or 'nothing'}"
    return "nothing" if value is None else type(value).__name__
