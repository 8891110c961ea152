"""The key `roots` of a profile: folders that definitions from the network may read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidegate.errors import EnvironmentProblem
from tidegate.services.trust import Audience, Root


def read_roots(document: Any, path: str) -> tuple[Root, ...]:
    """Read `roots: [PATH, {path: PATH, for: [...]}]` of the profile at `path`; paths are relative to its folder."""
    if document is None:
        return ()
    where = f"{path}: roots"
    if not isinstance(document, list):
        raise EnvironmentProblem(f"{where}: expected a list of folders, such as [/srv/sensors], not {document!r}")
    return tuple(_root(entry, f"{where}[{n}]", Path(path).absolute().parent) for n, entry in enumerate(document))


def _root(document: Any, where: str, folder: Path) -> Root:
    match document:
        case str(place) if place:
            return Root(_folder(place, where, folder))
        case {"path": str(place), **more} if place and more.keys() <= {"for"}:
            return Root(_folder(place, where, folder), read_audience(more.get("for"), f"{where}.for"))
    raise EnvironmentProblem(f"{where}: expected a folder, or {{path: FOLDER, for: [NAME, role:NAME]}}")


def _folder(place: str, where: str, folder: Path) -> Path:
    root = folder / place
    if root.resolve() == Path("/"):
        raise EnvironmentProblem(f"{where}: expected a folder for data, not '/', which contains every file")
    return root


def read_audience(document: Any, where: str) -> Audience:
    """Read `for: [...]`: the callers that may use a resource in addition to admins."""
    if document is None:
        return ()
    names = [document] if isinstance(document, str) else document
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise EnvironmentProblem(f"{where}: expected names of keys, subjects of tokens, or role:NAME, not {document!r}")
    return tuple(names)
