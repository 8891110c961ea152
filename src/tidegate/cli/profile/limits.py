"""A profile's `limits`: how much one peer may ask of the gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.errors import EnvironmentProblem, did_you_mean
from tidegate.gateway.settings import LimitSettings
from tidegate.model import units

_COUNTS = (
    "connections",
    "connections_per_address",
    "headers",
    "events",
    "heavy_calls",
    "heavy_waiting",
    "sign_in_failures",
)
_TIMES = ("head_timeout", "body_timeout", "idle_timeout")
_SIZES = ("decoded_bytes",)
KEYS = (*_COUNTS, *_TIMES, *_SIZES)


def read_limits(document: Any, path: str) -> LimitSettings:
    """Read what a profile says of limits; `path` is the profile's, for messages."""
    if document is None:
        return LimitSettings()
    if not isinstance(document, Mapping):
        raise EnvironmentProblem(f"{path}: limits: expected a map with {', '.join(KEYS)}, not {document!r}")
    found: dict[str, Any] = {}
    for key, value in document.items():
        where = f"{path}: limits.{key}"
        if key in _COUNTS:
            found[key] = _count(value, where)
        elif key in _TIMES:
            found[f"{key}_s"] = _seconds(value, where)
        elif key in _SIZES:
            found[key] = _size_bytes(value, where)
        else:
            hint = did_you_mean(str(key), KEYS) or f"; expected {', '.join(KEYS)}"
            raise EnvironmentProblem(f"{path}: limits: unknown key {key!r}{hint}")
    return LimitSettings(**found)


def _count(value: Any, where: str) -> int:
    if type(value) is not int or value < 1:
        raise EnvironmentProblem(f"{where}: expected a whole number above 0, not {value!r}")
    return value


def _seconds(value: Any, where: str) -> float:
    found = units.seconds(value) if isinstance(value, str) else None
    if not found:
        raise EnvironmentProblem(f"{where}: expected a length of time such as 10s, not {value!r}")
    return found


def _size_bytes(value: Any, where: str) -> int:
    found = units.size_bytes(value) if isinstance(value, str) else value if type(value) is int else None
    if found is None or found < 1:
        raise EnvironmentProblem(f"{where}: expected a size such as 64MB, or a number of bytes, not {value!r}")
    return found
