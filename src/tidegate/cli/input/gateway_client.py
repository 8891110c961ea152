"""Connects commands to a gateway, with the options `--ca`, `--cert` and `--cert-key` that they share."""

from __future__ import annotations

import functools
import inspect
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from tidegate.errors import EnvironmentProblem

if TYPE_CHECKING:
    from tidegate import Client

_OPTIONS: dict[str, Any] = {
    "ca": Annotated[
        str | None,
        typer.Option("--ca", envvar="TIDEGATE_CA", help="Authorities to trust for an https gateway, a PEM file."),
    ],
    "cert": Annotated[
        str | None,
        typer.Option("--cert", envvar="TIDEGATE_CERT", help="The client certificate to send, a PEM file."),
    ],
    "cert_key": Annotated[
        str | None,
        typer.Option(
            "--cert-key", envvar="TIDEGATE_CERT_KEY", help="The private key of --cert, if it is in another file."
        ),
    ],
}


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The TLS options of a command, from the command line or the environment."""

    ca: str | None = None
    cert: str | None = None
    cert_key: str | None = None

    def __post_init__(self) -> None:
        if self.cert_key is not None and self.cert is None:
            raise EnvironmentProblem("--cert-key: expected --cert too, the certificate of the key")


_TLS: ContextVar[TlsOptions] = ContextVar("tls_options", default=TlsOptions())  # noqa: B039 - a frozen value
"""The options of the command that runs: set around it, so that commands need not pass them on."""


def connect(url: str, key: str | None, certificate: Path | None = None) -> Client:
    """Return a client of a gateway; it connects at its first call, and the caller closes it.

    `certificate` is the file with the gateway's certificate, if the lock of its data folder names one.
    """
    from tidegate import Client

    return Client(url, key=key, verify=verification(url, certificate))


def verification(url: str, certificate: Path | None = None) -> ssl.SSLContext | bool:
    """Return the TLS context for a gateway, or True if its URL is not https.

    A `certificate` is pinned unless `--ca` is used. Raises a `ClientError` if a file can't be used.
    """
    from tidegate.client.tls import client_context, pinned_context

    if not url.startswith("https:"):
        return True
    tls = _TLS.get()
    cert = None if tls.cert is None else (tls.cert, tls.cert_key or tls.cert)
    if certificate is not None and tls.ca is None:
        return client_context(pinned_context(certificate), cert)
    return client_context(True if tls.ca is None else tls.ca, cert)


def add_tls_options(app: typer.Typer) -> None:
    """Add the TLS options to each command that connects to a gateway: those that take a URL and a key."""
    for command in app.registered_commands:
        if command.callback is not None and {"url", "key"} <= inspect.signature(command.callback).parameters.keys():
            command.callback = _with_tls_options(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_tls_options(group.typer_instance)


def _with_tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def wrapped(*args: Any, **arguments: Any) -> Any:
        _TLS.set(TlsOptions(**{name: arguments.pop(name) for name in _OPTIONS}))
        return command(*args, **arguments)

    hints = get_type_hints(command, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints.get(parameter.name, parameter.annotation))
        for parameter in inspect.signature(command).parameters.values()
    ]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]
    wrapped.__signature__ = inspect.Signature([*parameters, *added])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {**hints, **_OPTIONS}
    return wrapped
