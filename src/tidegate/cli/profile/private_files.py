"""Files that a profile names and no definition may read, also where they lie below one of its roots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

from tidegate.cli.profile import Profile
from tidegate.cli.profile.secret_reference import SecretReference

_NAMES = ("key", "file")
"""Fields of settings that are files with a private key or a password."""


def private_files(profile: Profile) -> tuple[Path, ...]:
    """List the profile itself, which may hold a password, and all files that it names for secrets and private keys."""
    own = () if profile.path is None else (profile.path.absolute(),)
    return (*own, *dict.fromkeys(_secret_files(profile)))


def _secret_files(value: object) -> Iterator[Path]:
    match value:
        case SecretReference(kind, place):
            if kind == "file":
                yield Path(place)
        case Mapping():
            for each in value.values():
                yield from _secret_files(each)
        case list() | tuple():
            for each in value:
                yield from _secret_files(each)
        case _ if is_dataclass(value):
            for field in fields(value):
                inner = getattr(value, field.name)
                if field.name in _NAMES and isinstance(inner, str | Path):
                    yield Path(inner).absolute()
                else:
                    yield from _secret_files(inner)
