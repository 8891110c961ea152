"""Limits the files that remote definitions may read to folders that the operator lists.

A path is checked when a definition is applied, and again whenever a file is opened. Both checks refuse a symbolic link
that leads out of its folder, even if it was created in between.
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
"""Opens a file for reading. Raises `OSError`, or `SourceError` if the file may not be read."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def open_any(path: Path) -> BinaryIO:
    """Open any file. For definitions of the operator."""
    return path.open("rb")


@dataclass(frozen=True, slots=True)
class Confinement:
    """The folders that a definition may read."""

    roots: tuple[Path, ...]
    """Absolute paths. A root may itself be a symbolic link: the operator has created it."""
    private: tuple[Path, ...] = ()
    """Folders and files that may not be read, such as the data folder, unless the root is inside of them."""

    def problem(self, path_text: str) -> str | None:
        """Return why a definition may not use a path; None: it may. Patterns such as `*.csv` are allowed."""
        form = _form_problem(path_text)
        if form is not None:
            return form
        roots = self._roots_around(path_text)
        fixed = Path(path_text)
        while has_magic(str(fixed)):
            fixed = fixed.parent
        if not roots or self._root_of(_resolved(fixed), roots) is None:
            return f"{path_text!r} is not below a folder that is open to you; the operator opens some under roots"
        return None

    def opener(self, path_text: str) -> Opener:
        """Return a function that opens files, but only below the roots that contain the path of the definition."""
        roots = self._roots_around(path_text) if _form_problem(path_text) is None else ()

        def open_below(path: Path) -> BinaryIO:
            resolved = _resolved(path)
            root = self._root_of(resolved, roots)
            if root is None:
                raise SourceError(
                    f"{str(path)!r} leads out of the folders that the profile opens under roots, and is not read"
                )
            return _open_in(root, resolved, path)

        return open_below

    def _roots_around(self, path_text: str) -> tuple[Path, ...]:
        """Return the resolved roots that contain a path, without resolving links in the path."""
        path = Path(os.path.normpath(path_text))
        return tuple(
            _resolved(root) for root in self.roots if path.is_relative_to(root) or path.is_relative_to(_resolved(root))
        )

    def _root_of(self, resolved: Path, roots: Sequence[Path]) -> Path | None:
        for root in roots:
            if resolved.is_relative_to(root) and not self._is_private(resolved, root):
                return root
        return None

    def _is_private(self, resolved: Path, root: Path) -> bool:
        private = [_resolved(path) for path in self.private]
        return any(resolved.is_relative_to(path) and path not in root.parents for path in private)


def _form_problem(path_text: str) -> str | None:
    if _SCHEME.match(path_text):
        return f"expected the path of a file, not the URL {path_text!r}"
    if not path_text.startswith("/") or "\0" in path_text:
        return f"expected an absolute path, not {path_text!r}"
    if ".." in path_text.split("/"):
        return f"expected a path without '..', not {path_text!r}"
    return None


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _open_in(root: Path, resolved: Path, path: Path) -> BinaryIO:
    """Open a file below a root, folder by folder, without following symbolic links.

    A link that was created after `resolved` was computed raises `SourceError`.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    current = os.open(root, flags | os.O_DIRECTORY)
    try:
        *folders, name = resolved.relative_to(root).parts or (".",)
        for folder in folders:
            inner = os.open(folder, flags | os.O_DIRECTORY, dir_fd=current)
            os.close(current)
            current = inner
        # O_NONBLOCK, because opening a named pipe would block the thread until a process writes to it.
        descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=current)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise SourceError(f"{str(path)!r} has become a symbolic link, and is not read") from error
        raise
    finally:
        os.close(current)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SourceError(f"{str(path)!r} is not a regular file")
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")
