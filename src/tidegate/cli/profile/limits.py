"""The key `limits` of a profile: limits of connections and requests to the gateway."""

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
_DURATIONS = ("head_timeout", "body_timeout", "idle_timeout")
_SIZES = ("decoded_bytes",)
KEYS = (*_COUNTS, *_DURATIONS, *_SIZES)


def read_limits(document: Any, path: str) -> LimitSettings:
    """Read `limits` of the profile at `path`. Raises an `EnvironmentProblem` that names the key."""
    if document is None:
        return LimitSettings()
    if not isinstance(document, Mapping):
        raise EnvironmentProblem(f"{path}: limits: expected a map with {', '.join(KEYS)}, not {document!r}")
    settings: dict[str, Any] = {}
    for key, value in document.items():
        where = f"{path}: limits.{key}"
        if key in _COUNTS:
            settings[key] = _count(value, where)
        elif key in _DURATIONS:
            settings[f"{key}_s"] = _seconds(value, where)
        elif key in _SIZES:
            settings[key] = _size_bytes(value, where)
        else:
            hint = did_you_mean(str(key), KEYS) or f"; expected {', '.join(KEYS)}"
            raise EnvironmentProblem(f"{path}: limits: unknown key {key!r}{hint}")
    return LimitSettings(**settings)


def _count(value: Any, where: str) -> int:
    if type(value) is not int or value < 1:
        raise EnvironmentProblem(f"{where}: expected a whole number above 0, not {value!r}")
    return value


def _seconds(value: Any, where: str) -> float:
    duration_s = units.seconds(value) if isinstance(value, str) else None
    if not duration_s:
        raise EnvironmentProblem(f"{where}: expected a length of time such as 10s, not {value!r}")
    return duration_s


def _size_bytes(value: Any, where: str) -> int:
    size = units.size_bytes(value) if isinstance(value, str) else value if type(value) is int else None
    if size is None or size < 1:
        raise EnvironmentProblem(f"{where}: expected a size such as 64MB, or a number of bytes, not {value!r}")
    return size
