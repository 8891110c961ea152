"""The key `tls` of a profile, and its options: the TLS files of the gateway and of its links to other brokers."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.cli.profile.entries import read_entries
from tidegate.errors import EnvironmentProblem
from tidegate.gateway.settings import TlsSettings

_SERVER_KEYS = ("cert", "key", "client_ca", "client_auth", "crl")
_CLIENT_KEYS = ("ca", "cert", "key")


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The TLS files of the connections that a gateway opens to other brokers."""

    ca: Path | None = None
    """Authorities to trust; None for those of this machine."""
    cert: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Load the files and return a new TLS context. Raises a `ClientError` if a file can't be used."""
        from tidegate.client.tls import client_context

        pair = None if self.cert is None or self.key is None else (self.cert, self.key)
        return client_context(True if self.ca is None else self.ca, pair)


@dataclass(frozen=True, slots=True)
class TlsProfile:
    """The TLS settings of a profile."""

    server: TlsSettings | None = None
    client: ClientTls | None = None


def read_tls(document: Any, path: str) -> TlsProfile:
    """Read `tls` of the profile at `path`; files are relative to its folder. Does not open them."""
    if document is None:
        return TlsProfile()
    entries, folder = read_entries(document, (*_SERVER_KEYS, "client"), f"{path}: tls"), Path(path).parent
    client = None if entries.get("client") is None else _client(entries["client"], f"{path}: tls.client", folder)
    if not entries.keys() - {"client"}:
        return TlsProfile(None, client)
    files = {
        name: _file(entries.get(name), f"{path}: tls.{name}", folder) for name in _SERVER_KEYS if name != "client_auth"
    }
    server = _server(files, entries.get("client_auth"), f"{path}: tls")
    return TlsProfile(server, client)


def with_options(tls: TlsProfile, cert: str | None, key: str | None, client_ca: str | None) -> TlsProfile:
    """Return the settings with the files of the command line in place of the profile's."""
    if cert is None and key is None and client_ca is None:
        return tls
    before = tls.server
    files: dict[str, Path | None] = {"cert": None, "key": None, "client_ca": None, "crl": None}
    if before is not None:
        files = {"cert": before.cert, "key": before.key, "client_ca": before.client_ca, "crl": before.crl}
    overrides = {"cert": cert, "key": key, "client_ca": client_ca}
    files |= {name: Path(path) for name, path in overrides.items() if path is not None}
    if files["cert"] is None or files["key"] is None:
        raise EnvironmentProblem("expected both --tls-cert and --tls-key: a certificate needs its key")
    return TlsProfile(_server(files, None if before is None else before.client_auth, "tls"), tls.client)


def _server(files: Mapping[str, Path | None], client_auth: Any, where: str) -> TlsSettings:
    cert, key, client_ca, crl = (files[name] for name in ("cert", "key", "client_ca", "crl"))
    if cert is None or key is None:
        missing = "cert" if cert is None else "key"
        raise EnvironmentProblem(f"{where}.{missing}: expected the path of a PEM file: both cert and key are needed")
    if client_auth not in (None, "optional", "required"):
        raise EnvironmentProblem(f"{where}.client_auth: expected optional or required, not {client_auth!r}")
    if client_ca is None and (client_auth == "required" or crl is not None):
        name = "crl" if client_auth != "required" else "client_auth"
        raise EnvironmentProblem(
            f"{where}.{name}: expected client_ca too: the authorities that sign client certificates"
        )
    return TlsSettings(cert, key, client_ca, client_auth or "optional", crl)


def _client(document: Any, where: str, folder: Path) -> ClientTls:
    entries = read_entries(document, _CLIENT_KEYS, where)
    ca, cert, key = (_file(entries.get(name), f"{where}.{name}", folder) for name in _CLIENT_KEYS)
    if (cert is None) != (key is None):
        raise EnvironmentProblem(f"{where}: expected both cert and key, or neither")
    return ClientTls(ca, cert, key)


def _file(value: Any, where: str, folder: Path) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise EnvironmentProblem(f"{where}: expected the path of a PEM file, not {value!r}")
    return folder / value
