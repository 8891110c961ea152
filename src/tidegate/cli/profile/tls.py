"""A profile's `tls`, with what the command line says: the files of the gateway's TLS and of its own connections."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.errors import EnvironmentProblem, did_you_mean
from tidegate.gateway.settings import TlsSettings

_SERVER = ("cert", "key", "client_ca", "client_auth", "crl")
_CLIENT = ("ca", "cert", "key")

TlsCert = Annotated[
    str | None, typer.Option("--tls-cert", help="Serve https with this certificate (chain), a PEM file.")
]
TlsKey = Annotated[str | None, typer.Option("--tls-key", help="The private key of --tls-cert, a PEM file.")]
TlsClientCa = Annotated[
    str | None,
    typer.Option("--tls-client-ca", help="Authorities whose client certificates are believed, a PEM file."),
]


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The files of connections that a gateway makes to other brokers."""

    ca: Path | None = None
    """Authorities to trust; None: those of this machine."""
    cert: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Load the files as they are now. Raises ClientError where one can't be used."""
        from tidegate.client.tls import client_context

        pair = None if self.cert is None or self.key is None else (self.cert, self.key)
        return client_context(True if self.ca is None else self.ca, pair)


@dataclass(frozen=True, slots=True)
class Tls:
    """What a profile says of TLS."""

    server: TlsSettings | None = None
    client: ClientTls | None = None


def read_tls(document: Any, path: str) -> Tls:
    """Read the `tls:` of the profile at `path`; the files in it are relative to its folder."""
    if document is None:
        return Tls()
    found, folder = _entries(document, (*_SERVER, "client"), f"{path}: tls"), Path(path).parent
    client = None if found.get("client") is None else _client(found["client"], f"{path}: tls.client", folder)
    if not found.keys() - {"client"}:
        return Tls(None, client)
    files = {name: _file(found.get(name), f"{path}: tls.{name}", folder) for name in _SERVER if name != "client_auth"}
    server = _server(files, found.get("client_auth"), f"{path}: tls")
    return Tls(server, client)


def with_options(tls: Tls, cert: str | None, key: str | None, client_ca: str | None) -> Tls:
    """The same with what the command line names in place of the profile's files."""
    if cert is None and key is None and client_ca is None:
        return tls
    before = tls.server
    files: dict[str, Path | None] = {"cert": None, "key": None, "client_ca": None, "crl": None}
    if before is not None:
        files = {"cert": before.cert, "key": before.key, "client_ca": before.client_ca, "crl": before.crl}
    given = {"cert": cert, "key": key, "client_ca": client_ca}
    files |= {name: Path(path) for name, path in given.items() if path is not None}
    if files["cert"] is None or files["key"] is None:
        raise EnvironmentProblem("expected both --tls-cert and --tls-key: a certificate is served with its key")
    return Tls(_server(files, None if before is None else before.client_auth, "tls"), tls.client)


def _server(files: Mapping[str, Path | None], client_auth: Any, where: str) -> TlsSettings:
    cert, key, client_ca, crl = (files[name] for name in ("cert", "key", "client_ca", "crl"))
    if cert is None or key is None:
        missing = "cert" if cert is None else "key"
        raise EnvironmentProblem(f"{where}.{missing}: expected the path of a PEM file: both cert and key are needed")
    if client_auth not in (None, "optional", "required"):
        raise EnvironmentProblem(f"{where}.client_auth: expected optional or required, not {client_auth!r}")
    if client_ca is None and (client_auth == "required" or crl is not None):
        name = "crl" if client_auth != "required" else "client_auth"
        raise EnvironmentProblem(f"{where}.{name}: expected client_ca too: whose certificates are to be believed?")
    return TlsSettings(cert, key, client_ca, client_auth or "optional", crl)


def _client(document: Any, where: str, folder: Path) -> ClientTls:
    found = _entries(document, _CLIENT, where)
    ca, cert, key = (_file(found.get(name), f"{where}.{name}", folder) for name in _CLIENT)
    if (cert is None) != (key is None):
        raise EnvironmentProblem(f"{where}: expected both cert and key, or neither")
    return ClientTls(ca, cert, key)


def _entries(document: Any, known: tuple[str, ...], where: str) -> dict[str, Any]:
    if not isinstance(document, Mapping):
        raise EnvironmentProblem(f"{where}: expected a map with {', '.join(known)}, not {document!r}")
    for key in document:
        if key not in known:
            hint = did_you_mean(str(key), known) or f"; expected {', '.join(known)}"
            raise EnvironmentProblem(f"{where}: unknown key {key!r}{hint}")
    return {key: value for key, value in document.items() if value is not None}


def _file(value: Any, where: str, folder: Path) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise EnvironmentProblem(f"{where}: expected the path of a PEM file, not {value!r}")
    return folder / value
