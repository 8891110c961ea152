"""A registry in PostgreSQL as a profile names it, with its password in the profile or outside."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from tidegate.errors import EnvironmentProblem

_EXPECTED = (
    "expected postgresql://user:password@host:port/database, or {url: 'postgresql://user@host/database', "
    "password: {env: NAME}} or {file: PATH}"
)
_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")


@dataclass(frozen=True, slots=True)
class Database:
    """Where it is, and where its password is. Never shown whole: the URL may hold the password."""

    url: str = field(repr=False)
    env: str | None = None
    """The environment variable with the password."""
    file: Path | None = None
    """The file with the password."""

    def address(self) -> str:
        """The URL with its password, which is read now.

        >>> Database("postgresql://tidegate@head/city").address()
        'postgresql://tidegate@head/city'
        """
        password = self._password()
        if password is None:
            return self.url
        scheme, _, rest = self.url.partition("://")
        user, _, place = rest.partition("@")
        return f"{scheme}://{user}:{quote(password, safe='')}@{place}"

    def _password(self) -> str | None:
        if self.env is not None:
            found = os.environ.get(self.env)
            if found is None:
                raise EnvironmentProblem(f"the registry's password: the environment has no {self.env!r}")
            return found
        if self.file is None:
            return None  # in the URL, or where PostgreSQL's own clients look: PGPASSWORD, ~/.pgpass
        try:
            return self.file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise EnvironmentProblem(f"the registry's password: can't read {str(self.file)!r}: {reason}") from error


def read_database(document: Any, path: str) -> Database:
    """Read the `registry:` of a profile. What is wrong with a URL is not shown: it may be the password."""
    url, password = document, None
    if isinstance(document, Mapping) and document.keys() <= {"url", "password"}:
        url, password = document.get("url"), document.get("password")
    if not isinstance(url, str) or not _is_database(url):
        raise EnvironmentProblem(f"{path}: registry: {_EXPECTED}")
    if password is None:
        return Database(url)
    user, at, _ = urlsplit(url).netloc.rpartition("@")
    if not at or ":" in user:
        raise EnvironmentProblem(f"{path}: registry: beside password expected a url with a user and without a password")
    match password:
        case {"env": str(name), **more} if not more:
            return Database(url, env=name)
        case {"file": str(name), **more} if not more:
            return Database(url, file=Path(path).parent / name)
    raise EnvironmentProblem(f"{path}: registry: password: expected {{env: NAME}} or {{file: PATH}}")


def _is_database(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in _SCHEMES and "://" in url
