"""The key `registry` of a profile: a PostgreSQL database, with its password in the profile or outside."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tidegate.errors import EnvironmentProblem

_EXPECTED = (
    "expected postgresql://user:password@host:port/database, or {url: 'postgresql://user@host/database', "
    "password: {env: NAME}} or {file: PATH}, with tls: {ca, cert, key, mode} in addition"
)
MODES = ("verify-full", "verify-ca", "require")
"""How the server is verified: by its name and authority, by its authority only, or not at all."""
_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")


@dataclass(frozen=True, slots=True)
class DatabaseTls:
    """TLS settings of the connection to PostgreSQL; files are PEM."""

    mode: str = "verify-full"
    ca: Path | None = None
    """The authorities to trust; None for those of this machine."""
    cert: Path | None = None
    key: Path | None = None

    def added_to(self, url: str) -> str:
        """Return a URL with these settings as parameters of libpq.

        >>> DatabaseTls().added_to("postgresql://tidegate@head/city")
        'postgresql://tidegate@head/city?sslmode=verify-full&sslrootcert=system'
        """
        parameters = {"sslmode": self.mode}
        if self.ca is not None or self.mode != "require":
            parameters["sslrootcert"] = "system" if self.ca is None else str(self.ca.absolute())
        if self.cert is not None and self.key is not None:
            parameters |= {"sslcert": str(self.cert.absolute()), "sslkey": str(self.key.absolute())}
        return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"


@dataclass(frozen=True, slots=True)
class Database:
    """The URL of the database, and where its password is. `repr` leaves out the URL, which may hold the password."""

    url: str = field(repr=False)
    env: str | None = None
    """The environment variable with the password."""
    file: Path | None = None
    """The file with the password."""
    tls: DatabaseTls | None = None
    """None: as the URL says, or the default of PostgreSQL, which accepts a server without TLS."""

    def address(self) -> str:
        """Return the URL with the password, which is read at each call.

        Raises an `EnvironmentProblem` if the password can't be read.

        >>> Database("postgresql://tidegate@head/city").address()
        'postgresql://tidegate@head/city'
        """
        url = self.url if self.tls is None else self.tls.added_to(self.url)
        password = self._password()
        if password is None:
            return url
        scheme, _, rest = url.partition("://")
        user, _, place = rest.partition("@")
        return f"{scheme}://{user}:{quote(password, safe='')}@{place}"

    def _password(self) -> str | None:
        if self.env is not None:
            password = os.environ.get(self.env)
            if password is None:
                raise EnvironmentProblem(
                    f"the registry's password: the environment variable {self.env!r} is not set; set it"
                )
            return password
        if self.file is None:
            return None  # it is in the URL, or libpq finds it: PGPASSWORD, ~/.pgpass
        try:
            return self.file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise EnvironmentProblem(f"the registry's password: can't read {str(self.file)!r}: {reason}") from error


def read_database(document: Any, path: str) -> Database:
    """Read `registry` of the profile at `path`. Error messages do not show the URL, which may hold the password."""
    url, password, tls = document, None, None
    if isinstance(document, Mapping) and document.keys() <= {"url", "password", "tls"}:
        url, password, tls = document.get("url"), document.get("password"), document.get("tls")
    if not isinstance(url, str) or not _is_database(url):
        raise EnvironmentProblem(f"{path}: registry: {_EXPECTED}")
    encrypted = None if tls is None else _tls(tls, url, path)
    if password is None:
        return Database(url, tls=encrypted)
    user, at, _ = urlsplit(url).netloc.rpartition("@")
    if not at or ":" in user:
        raise EnvironmentProblem(
            f"{path}: registry: with a password key, expected a url with a user and without a password"
        )
    match password:
        case {"env": str(name), **more} if not more:
            return Database(url, env=name, tls=encrypted)
        case {"file": str(name), **more} if not more:
            return Database(url, file=Path(path).parent / name, tls=encrypted)
        case str() if password.startswith("env:") and len(password) > 4:
            return Database(url, env=password[4:], tls=encrypted)
        case str() if password.startswith("file:") and len(password) > 5:
            return Database(url, file=Path(path).parent / password[5:], tls=encrypted)
    raise EnvironmentProblem(f"{path}: registry: password: expected {{env: NAME}} or {{file: PATH}}")


def _tls(document: Any, url: str, path: str) -> DatabaseTls:
    where, folder = f"{path}: registry.tls", Path(path).parent
    if "ssl" in urlsplit(url).query:
        raise EnvironmentProblem(f"{where}: the url has TLS parameters too; remove them from the url")
    if document is True:
        return DatabaseTls()
    if not isinstance(document, Mapping) or not document.keys() <= {"ca", "cert", "key", "mode"}:
        raise EnvironmentProblem(f"{where}: expected true, or a map with ca, cert, key, mode, not {document!r}")
    mode = document.get("mode", "verify-full")
    if mode not in MODES:
        raise EnvironmentProblem(f"{where}.mode: expected one of {', '.join(MODES)}, not {mode!r}")
    files: dict[str, Path] = {}
    for name in ("ca", "cert", "key"):
        if document.get(name) is not None:
            files[name] = folder / str(document[name])
            if not files[name].is_file():
                raise EnvironmentProblem(f"{where}.{name}: there is no file {str(files[name])!r}")
    if ("cert" in files) != ("key" in files):
        raise EnvironmentProblem(f"{where}: expected both cert and key, or neither")
    if mode == "verify-ca" and "ca" not in files:
        raise EnvironmentProblem(f"{where}.ca: expected the path of a PEM file: mode verify-ca needs an authority")
    return DatabaseTls(mode, **files)


def _is_database(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in _SCHEMES and "://" in url
