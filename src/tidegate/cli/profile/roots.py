"""A profile's `roots`: folders that definitions which come over the network may read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidegate.errors import EnvironmentProblem
from tidegate.services.trust import Audience, Root


def read_roots(document: Any, path: str) -> tuple[Root, ...]:
    """Read `roots: [PATH, {path: PATH, for: [...]}]`; relative paths are relative to the profile, at `path`."""
    if document is None:
        return ()
    where = f"{path}: roots"
    if not isinstance(document, list):
        raise EnvironmentProblem(f"{where}: expected a list of folders, such as [/srv/sensors], not {document!r}")
    return tuple(_root(each, f"{where}[{n}]", Path(path).absolute().parent) for n, each in enumerate(document))


def _root(document: Any, where: str, folder: Path) -> Root:
    match document:
        case str(place) if place:
            return Root(_folder(place, where, folder))
        case {"path": str(place), **more} if place and more.keys() <= {"for"}:
            return Root(_folder(place, where, folder), read_audience(more.get("for"), f"{where}.for"))
    raise EnvironmentProblem(f"{where}: expected a folder, or {{path: FOLDER, for: [NAME, role:NAME]}}")


def _folder(place: str, where: str, folder: Path) -> Path:
    found = folder / place
    if found.resolve() == Path("/"):
        raise EnvironmentProblem(f"{where}: expected a folder for data, not '/': it would open every file")
    return found


def read_audience(document: Any, where: str) -> Audience:
    """Read `for: [...]`: who may use something beside admins."""
    if document is None:
        return ()
    names = [document] if isinstance(document, str) else document
    if not isinstance(names, list) or not names or not all(isinstance(each, str) and each for each in names):
        raise EnvironmentProblem(f"{where}: expected names of keys, subjects of tokens, or role:NAME, not {document!r}")
    return tuple(names)
