"""A profile's `functions`: Python functions that definitions may name, also those that come over the network."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from tidegate.errors import EnvironmentProblem
from tidegate.services.pipeline import FUNCTION_NAME, IMPORT_PATH

GROUP = "tidegate.functions"
"""The entry-point group in which an installed package registers functions."""


def read_functions(document: Any, path: str) -> dict[str, str]:
    """Read `functions: {NAME: 'module:function'}`; `path` is the profile's, for messages. Imports nothing."""
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


def registered_functions(own: Mapping[str, str]) -> dict[str, str]:
    """Give the import path of every registered function: a profile's `own`, and those of installed packages.

    Reads what packages state of themselves, and imports none of them. The profile's own win.
    """
    installed = {
        each.name: each.value.partition("[")[0].strip()
        for each in entry_points(group=GROUP)
        if FUNCTION_NAME.fullmatch(each.name) and IMPORT_PATH.fullmatch(each.value.partition("[")[0].strip())
    }
    return {**installed, **own}
