"""How commands reach a gateway over TLS: the options `--ca`, `--cert` and `--cert-key`, which all of them share."""

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
        typer.Option("--cert", envvar="TIDEGATE_CERT", help="The client certificate to show, a PEM file."),
    ],
    "cert_key": Annotated[
        str | None,
        typer.Option("--cert-key", envvar="TIDEGATE_CERT_KEY", help="The key of --cert, where it is in another file."),
    ],
}


@dataclass(frozen=True, slots=True)
class Connecting:
    """What was said on the command line, or by the environment, of the TLS to a gateway."""

    ca: str | None = None
    cert: str | None = None
    cert_key: str | None = None

    def __post_init__(self) -> None:
        if self.cert_key is not None and self.cert is None:
            raise EnvironmentProblem("--cert-key: expected --cert too: a key is shown with its certificate")


_CHOSEN: ContextVar[Connecting] = ContextVar("connecting", default=Connecting())  # noqa: B039 - a frozen value


def connect(url: str, key: str | None, certificate: Path | None = None) -> Client:
    """A client for a gateway. `certificate` is the one that it shows, where its folder says so."""
    from tidegate import Client

    return Client(url, key=key, verify=verification(url, certificate))


def verification(url: str, certificate: Path | None = None) -> ssl.SSLContext | bool:
    """The TLS context for a gateway, or True where its URL is without TLS."""
    from tidegate.client.tls import client_context, pinned_context

    if not url.startswith("https:"):
        return True
    chosen = _CHOSEN.get()
    cert = None if chosen.cert is None else (chosen.cert, chosen.cert_key or chosen.cert)
    if certificate is not None and chosen.ca is None:
        return client_context(pinned_context(certificate), cert)
    return client_context(True if chosen.ca is None else chosen.ca, cert)


def add_tls_options(app: typer.Typer) -> None:
    """Give the options of TLS to each command that reaches a gateway, which are those that take a key."""
    for command in app.registered_commands:
        if command.callback is not None and {"url", "key"} <= inspect.signature(command.callback).parameters.keys():
            command.callback = _with_tls_options(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_tls_options(group.typer_instance)


def _with_tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def wrapped(*args: Any, **given: Any) -> Any:
        _CHOSEN.set(Connecting(**{name: given.pop(name) for name in _OPTIONS}))
        return command(*args, **given)

    hints = get_type_hints(command, include_extras=True)
    before = inspect.signature(command).parameters.values()
    own = [each.replace(annotation=hints.get(each.name, each.annotation)) for each in before]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=each)
        for name, each in _OPTIONS.items()
    ]
    wrapped.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {**hints, **_OPTIONS}
    return wrapped
