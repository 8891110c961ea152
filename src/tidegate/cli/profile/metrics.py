"""The key `metrics` of a profile: a port that serves metrics without a key."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from tidegate.errors import EnvironmentProblem, did_you_mean
from tidegate.gateway.settings import MetricsSettings

_KEYS = ("port", "host")
_EXPECTED = "expected a port, or {port: 9464, host: 127.0.0.1}"


def read_metrics(document: Any, path: str) -> MetricsSettings | None:
    """Read `metrics` of the profile at `path`: a port, or a map with port and host."""
    if document is None:
        return None
    entries = document if isinstance(document, Mapping) else {"port": document}
    for key in entries:
        if key not in _KEYS:
            hint = did_you_mean(str(key), _KEYS) or f"; {_EXPECTED}"
            raise EnvironmentProblem(f"{path}: metrics: unknown key {key!r}{hint}")
    port = entries.get("port")
    if type(port) is not int or not 0 < port < 65536:
        raise EnvironmentProblem(f"{path}: metrics.port: expected a number from 1 to 65535, not {port!r}; {_EXPECTED}")
    host = entries.get("host", "127.0.0.1")
    try:
        ip_address(host if isinstance(host, str) else "")
    except ValueError:
        raise EnvironmentProblem(f"{path}: metrics.host: expected an address such as 127.0.0.1, not {host!r}") from None
    return MetricsSettings(port, host)
