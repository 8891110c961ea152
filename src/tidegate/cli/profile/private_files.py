"""Files of a profile that no definition may read, even if they are below one of its roots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

from tidegate.cli.profile import Profile
from tidegate.cli.profile.secret_reference import SecretReference

_SECRET_FIELDS = ("key", "file")
"""Names of settings whose files hold a private key or a password."""


def private_files(profile: Profile) -> tuple[Path, ...]:
    """Return the file of the profile, which may hold a password, and all files with its secrets and private keys."""
    own = () if profile.path is None else (profile.path.absolute(),)
    return (*own, *dict.fromkeys(_secret_files(profile)))


def _secret_files(value: object) -> Iterator[Path]:
    match value:
        case SecretReference(kind, place):
            if kind == "file":
                yield Path(place)
        case Mapping():
            for item in value.values():
                yield from _secret_files(item)
        case list() | tuple():
            for item in value:
                yield from _secret_files(item)
        case _ if is_dataclass(value):
            for field in fields(value):
                inner = getattr(value, field.name)
                if field.name in _SECRET_FIELDS and isinstance(inner, str | Path):
                    yield Path(inner).absolute()
                else:
                    yield from _secret_files(inner)
