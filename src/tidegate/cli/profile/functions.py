"""The key `functions` of a profile: Python functions that definitions may name, also those from the network."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from tidegate.errors import EnvironmentProblem
from tidegate.services.operators.custom import FUNCTION_NAME, IMPORT_PATH

GROUP = "tidegate.functions"
"""The entry-point group in which an installed package registers functions."""


def read_functions(document: Any, path: str) -> dict[str, str]:
    """Read `functions: {NAME: 'module:function'}` of the profile at `path`. Does not import the modules."""
    if document is None:
        return {}
    where = f"{path}: functions"
    if not isinstance(document, Mapping):
        raise EnvironmentProblem(f"{where}: expected a map such as {{speedup: 'city.functions:speedup'}}")
    for name, target in document.items():
        if not isinstance(name, str) or not FUNCTION_NAME.fullmatch(name):
            raise EnvironmentProblem(
                f"{where}: expected a name of letters, digits, _ . and -, the first a letter, not {name!r}"
            )
        if not isinstance(target, str) or not IMPORT_PATH.fullmatch(target):
            raise EnvironmentProblem(f"{where}.{name}: expected module:function, not {target!r}")
    return dict(document)


def registered_functions(of_profile: Mapping[str, str]) -> dict[str, str]:
    """Return the import path of every function: those of the profile, and those of installed packages.

    Reads the entry points of packages without importing them. The profile's functions take precedence.
    """
    installed = {
        entry.name: entry.value.partition("[")[0].strip()
        for entry in entry_points(group=GROUP)
        if FUNCTION_NAME.fullmatch(entry.name) and IMPORT_PATH.fullmatch(entry.value.partition("[")[0].strip())
    }
    return {**installed, **of_profile}
