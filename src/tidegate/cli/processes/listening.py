"""The address that a gateway listens on, and what must be set up before it may listen there."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from datetime import UTC, datetime

from tidegate.cli.data_folder.home import Home
from tidegate.errors import EnvironmentProblem

HOST = "127.0.0.1"
PORT = 8080


def gateway_url(host: str, port: int, *, is_secure: bool = False) -> str:
    """Return the URL of a gateway; an IPv6 address is put in brackets."""
    scheme = "https" if is_secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def find_port(host: str, port: int) -> int:
    """Return a port that can be bound: `port` itself, or any free one for 0.

    Raises an `EnvironmentProblem` if the port is in use, or the host is not an address. The port is not reserved:
    another process may take it before the gateway does.
    """
    is_loopback(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise EnvironmentProblem(
                f"can't listen on {gateway_url(host, port)}: {error.strerror}; choose another with --port, or --port 0"
            ) from error
        bound_port: int = probe.getsockname()[1]
        return bound_port


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address. Raises an `EnvironmentProblem` for other text."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError as error:
        raise EnvironmentProblem(f"--host: expected an address such as {HOST}, not {host!r}") from error


def allowed_origins(home: Home, host: str, origins: Sequence[str] | None) -> tuple[str, ...]:
    """Return the CORS origins of a gateway that listens on `host`; raises if one is invalid or too wide."""
    from tidegate.gateway.auth.origins import checked

    return checked(origins or (), needs_keys=home.profile.access.requires(is_loopback=is_loopback(host)))


def require_keys(home: Home, host: str) -> None:
    """Raise an `EnvironmentProblem` if a gateway on `host` would be open to the network.

    Beyond loopback a caller must be able to authenticate: with an API key of the registry, a token of the profile's
    issuer, or a client certificate.
    """
    access = home.profile.access
    if is_loopback(host):
        return
    if not access.requires(is_loopback=False):
        raise EnvironmentProblem(
            f"--host {host}: the profile says access: {{required: false}}, and without keys a gateway answers this "
            f"machine alone; listen on {HOST}, or set access: {{required: true}}"
        )
    if access.oidc is not None or access.certificates:
        return
    registry = home.registry()
    try:
        usable = [key for key in registry.keys().values() if key.problem(datetime.now(UTC)) is None]
    finally:
        registry.close()
    if not usable:
        raise EnvironmentProblem(
            f"--host {host}: anyone who reaches this machine could read and write everything; create an API key first: "
            f"tidegate keys create NAME --role admin --data {home.folder}"
        )
