"""Files below folders that the operator has opened to definitions of others.

A path is checked twice: when a definition states it, and whenever a file is
opened. A symbolic link that leads out of its folder is refused both times, also
one that is planted in between.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import BinaryIO

from tidegate.errors import SourceError

Opener = Callable[[Path], BinaryIO]
"""Opens a file for reading. Raises an `OSError`, or a `SourceError` where it may not be opened."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def open_any(path: Path) -> BinaryIO:
    """Open any file: for definitions of the operator."""
    return path.open("rb")


@dataclass(frozen=True, slots=True)
class Confinement:
    """The folders below which a definition may read."""

    roots: tuple[Path, ...]
    """Absolute; each may itself be a symbolic link, which the operator has set."""
    private: tuple[Path, ...] = ()
    """Folders and files that no root opens, such as the data folder with its keys, unless the root is inside of it."""

    def problem(self, stated: str) -> str | None:
        """Why a definition may not state a path; None: it may. Patterns such as `*.csv` are allowed."""
        form = _form_problem(stated)
        if form is not None:
            return form
        roots = self._stated_roots(stated)
        fixed = Path(stated)
        while has_magic(str(fixed)):
            fixed = fixed.parent
        if not roots or self._root_of(_resolved(fixed), roots) is None:
            return f"{stated!r} is not below a folder that is open to you; the operator opens some under roots"
        return None

    def opener(self, stated: str) -> Opener:
        """Give a function that opens just files which resolve below the roots that a stated path lies in."""
        roots = self._stated_roots(stated) if _form_problem(stated) is None else ()

        def open_below(path: Path) -> BinaryIO:
            resolved = _resolved(path)
            root = self._root_of(resolved, roots)
            if root is None:
                raise SourceError(
                    f"{str(path)!r} leads out of the folders that the profile opens under roots, and is not read"
                )
            return _open_in(root, resolved, path)

        return open_below

    def _stated_roots(self, stated: str) -> tuple[Path, ...]:
        """The resolved roots that a path lies in as it is written."""
        path = Path(os.path.normpath(stated))
        return tuple(
            _resolved(root) for root in self.roots if path.is_relative_to(root) or path.is_relative_to(_resolved(root))
        )

    def _root_of(self, resolved: Path, roots: Sequence[Path]) -> Path | None:
        for root in roots:
            if resolved.is_relative_to(root) and not self._is_private(resolved, root):
                return root
        return None

    def _is_private(self, resolved: Path, root: Path) -> bool:
        folders = [_resolved(each) for each in self.private]
        return any(resolved.is_relative_to(each) and each not in root.parents for each in folders)


def _form_problem(stated: str) -> str | None:
    if _SCHEME.match(stated):
        return f"expected the path of a file, not the URL {stated!r}"
    if not stated.startswith("/") or "\0" in stated:
        return f"expected an absolute path, not {stated!r}"
    if ".." in stated.split("/"):
        return f"expected a path without '..', not {stated!r}"
    return None


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _open_in(root: Path, resolved: Path, path: Path) -> BinaryIO:
    """Open a file step by step below a root, following no symbolic link: one that is planted meanwhile is an error."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    current = os.open(root, flags | os.O_DIRECTORY)
    try:
        *folders, name = resolved.relative_to(root).parts or (".",)
        for folder in folders:
            inner = os.open(folder, flags | os.O_DIRECTORY, dir_fd=current)
            os.close(current)
            current = inner
        # Without O_NONBLOCK a named pipe would hold the thread until somebody writes.
        found = os.open(name, flags | os.O_NONBLOCK, dir_fd=current)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise SourceError(f"{str(path)!r} has become a symbolic link, and is not read") from error
        raise
    finally:
        os.close(current)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise SourceError(f"{str(path)!r} is no regular file, and is not read")
    os.set_blocking(found, True)
    return os.fdopen(found, "rb")
