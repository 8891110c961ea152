"""Keeps the files of a data folder private to their owner, independent of the umask of the shell.

Every process that writes into a data folder sets its umask, which its child processes and the JVM inherit. At start-up
Tidegate removes the access of others to files of an older version. A folder that a cluster shares stays accessible to
its group, as Spark's executors may run as another user.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.cli.output.logging import logger

OWN_FILES = (
    *("log", "checkpoints", "states", "sources", "space", "audit"),
    *("registry.sqlite", "registry.sqlite-wal", "registry.sqlite-shm", "registry.sqlite-journal"),
    *("lock", "ingest.lock", "mask.key", "secrets.key"),
)
"""All files and folders that Tidegate writes into a data folder. Other files there are left alone."""

PRIVATE_MASK = 0o077
GROUP_MASK = 0o007
"""The mask of a folder that a cluster shares."""


def mask(*, shared: bool) -> int:
    """Return the permission bits that no file in a data folder may have."""
    return GROUP_MASK if shared else PRIVATE_MASK


def restrict_new_files(*, shared: bool) -> None:
    """Set the umask, so that this process and its children create files that others can't read."""
    os.umask(mask(shared=shared))


@contextmanager
def private_umask() -> Iterator[None]:
    """Create files that only the owner can read, until the end of the block."""
    before = os.umask(PRIVATE_MASK)
    try:
        yield
    finally:
        os.umask(before)


def tighten(folder: Path, *, shared: bool) -> None:
    """Remove the access of others to all files of Tidegate in a folder, and to the folder if it has no other files.

    Logs a warning, and leaves the file, if a file belongs to another user.
    """
    if not folder.is_dir():
        return
    bits, failed = mask(shared=shared), []
    folders = [folder] if _has_only_own_files(folder) else []
    for path in (*folders, *_below(folder)):
        try:
            mode = stat.S_IMODE(path.lstat().st_mode)
            if mode & bits and not path.is_symlink():
                path.chmod(mode & ~bits)
        except FileNotFoundError:
            continue  # an expired segment, or a temporary file of SQLite
        except OSError:
            failed.append(path)
    if failed:
        detail = "others on this machine may read it; run Tidegate as its owner, or change its permissions"
        logger("tidegate.home").warning("can't protect the data folder", path=str(failed[0]), problem=detail)


def open_to_others(folder: Path, *, shared: bool = False) -> list[Path]:
    """Return the files that others can read or write; none if the folder itself keeps others out."""
    bits = mask(shared=shared)
    if not folder.is_dir() or not folder.stat().st_mode & bits:
        return []
    return [path for name in OWN_FILES if (path := folder / name).exists() and path.stat().st_mode & bits]


def _has_only_own_files(folder: Path) -> bool:
    """Return True if a folder has no files of others: `--data .` must not close a whole project folder."""
    return all(path.name in OWN_FILES or path.name.startswith(("mask.", "secrets.")) for path in folder.iterdir())


def _below(folder: Path) -> Iterator[Path]:
    for name in OWN_FILES:
        path = folder / name
        if not path.exists() or path.is_symlink():
            continue
        yield path
        if path.is_dir():
            for parent, folders, files in os.walk(path):
                yield from (Path(parent, name) for name in (*folders, *files))
