"""The key `links` of a profile: the signing keys of this broker, and the pinned public keys of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.cli.profile.entries import read_entries
from tidegate.cli.profile.secret_reference import read_secret
from tidegate.errors import EnvironmentProblem

if TYPE_CHECKING:
    from tidegate.federation.link.keys import OriginKey

_KEYS = ("signing_key", "origins")


@dataclass(frozen=True)
class LinkProfile:
    """The link settings of a profile."""

    signing_keys: Path | None = None
    """The file with the private keys that this broker signs with; None for the one in the data folder."""
    origins: Mapping[str, Path] = field(default_factory=dict)
    """The file with the public keys of each pinned broker, by the broker's name."""

    def pinned(self) -> dict[str, tuple[OriginKey, ...]]:
        """Read the pinned public keys. Raises an `EnvironmentProblem` if a file can't be used."""
        from tidegate.cli.profile.secret_files import read_secret_file
        from tidegate.federation.link.keys import read_key_set

        return {
            name: read_key_set(read_secret_file(str(path), f"links.origins.{name}"), str(path), private=False)
            for name, path in self.origins.items()
        }


def read_links(document: Any, path: str) -> LinkProfile:
    """Read `links` of the profile at `path`; files are relative to its folder."""
    if document is None:
        return LinkProfile()
    entries = read_entries(document, _KEYS, f"{path}: links")
    origins = entries.get("origins") or {}
    if not isinstance(origins, Mapping):
        raise EnvironmentProblem(f"{path}: links.origins: expected files by broker, not {origins!r:.60}")
    folder = Path(path).parent
    signing = entries.get("signing_key")
    return LinkProfile(
        None if signing is None else _file(signing, f"{path}: links.signing_key", folder),
        {str(name): _file(file, f"{path}: links.origins.{name}", folder) for name, file in origins.items()},
    )


def _file(reference: Any, where: str, folder: Path) -> Path:
    """Return the path of a `file:` reference. A variable is refused: keys are reloaded when the file changes."""
    secret = read_secret(reference, where, folder)
    if secret.kind != "file":
        raise EnvironmentProblem(f"{where}: expected file:PATH, not an environment variable")
    return Path(secret.place)
