"""The list of files of a backup, with sizes and checksums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from tidegate.errors import EnvironmentProblem

NAME = "manifest.json"
FORMAT = 1
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """What a backup has. It is written last: a folder without one is no complete backup."""

    created_at: str
    tidegate: str
    """The version of Tidegate."""
    log: Literal["files", "kafka"]
    has_keys: bool
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Size and SHA-256 by path in the backup."""
    format: int = FORMAT

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(size for size, _ in self.files.values())

    def write(self, folder: Path) -> None:
        """Write the manifest into the folder of the backup."""
        draft = folder / f"{NAME}.new"
        draft.write_text(json.dumps(asdict(self), indent=1))
        draft.replace(folder / NAME)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a backup. Raises an `EnvironmentProblem` if there is none that this version reads."""
    try:
        document = json.loads((folder / NAME).read_text())
        files = {str(name): (int(size), str(digest)) for name, (size, digest) in document.pop("files").items()}
        manifest = Manifest(**document, files=files)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise EnvironmentProblem(
            f"{str(folder)!r} has no backup: expected a folder that `tidegate backup` made"
        ) from None
    if manifest.format != FORMAT:
        raise EnvironmentProblem(
            f"the backup in {str(folder)!r} has format {manifest.format}; this version of Tidegate reads {FORMAT}"
        )
    return manifest


def check_files(folder: Path, manifest: Manifest) -> None:
    """Raise an `EnvironmentProblem` if a file of a backup is missing, damaged, or outside of it."""
    for name, (size, digest) in manifest.files.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or path.is_symlink() or not path.is_file():
            raise EnvironmentProblem(f"the backup in {str(folder)!r} is not complete: it has no file {name!r}")
        if path.stat().st_size != size or digest_of(path) != digest:
            raise EnvironmentProblem(
                f"the backup in {str(folder)!r} is damaged: {name!r} has changed since it was made"
            )


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(_CHUNK_BYTES):
            digest.update(data)
    return digest.hexdigest()
