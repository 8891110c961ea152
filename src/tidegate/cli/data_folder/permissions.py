"""Who else on this machine may read a data folder: nobody, whatever the umask of the shell is.

Every process that writes into one sets its umask, which its children and the JVM inherit. What an older version left
open is tightened when a Tidegate starts. A folder that a cluster shares stays open to its group: Spark's executors may
run as another user.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tidegate.cli.output.logging import logger

OURS = (
    *("log", "checkpoints", "sources", "space", "audit"),
    *("registry.sqlite", "registry.sqlite-wal", "registry.sqlite-shm", "registry.sqlite-journal"),
    *("lock", "ingest.lock", "mask.key", "secrets.key"),
)
"""Everything that Tidegate writes into a data folder. What else is in there belongs to somebody else."""

PRIVATE = 0o077
GROUP = 0o007
"""Of a folder that a cluster shares."""


def mask(*, shared: bool) -> int:
    """Return the permission bits that nothing in a data folder has."""
    return GROUP if shared else PRIVATE


def restrict_new_files(*, shared: bool) -> None:
    """Let this process, and all that it starts, create files that others can't read."""
    os.umask(mask(shared=shared))


def tighten(folder: Path, *, shared: bool) -> None:
    """Take what others may do from all that Tidegate has written in a folder; the folder itself, if it has it alone.

    A file that belongs to another user is left, with a warning: its owner may have meant it so.
    """
    if not folder.is_dir():
        return
    bits, failed = mask(shared=shared), []
    places = [folder] if _is_ours_alone(folder) else []
    for path in (*places, *_below(folder)):
        try:
            mode = stat.S_IMODE(path.lstat().st_mode)
            if mode & bits and not path.is_symlink():
                path.chmod(mode & ~bits)
        except FileNotFoundError:
            continue  # a segment that expired, or a file of SQLite's
        except OSError:
            failed.append(path)
    if failed:
        detail = "others on this machine may read it; run Tidegate as its owner, or change its permissions"
        logger("tidegate.home").warning("can't protect the data folder", path=str(failed[0]), problem=detail)


def open_to_others(folder: Path, *, shared: bool = False) -> list[Path]:
    """Return what others could read or write in a data folder; nothing, if the folder keeps them out."""
    bits = mask(shared=shared)
    if not folder.is_dir() or not folder.stat().st_mode & bits:
        return []
    return [each for name in OURS if (each := folder / name).exists() and each.stat().st_mode & bits]


def _is_ours_alone(folder: Path) -> bool:
    """Return whether a folder holds nothing but ours: `--data .` in somebody's project must not close that."""
    return all(each.name in OURS or each.name.startswith(("mask.", "secrets.")) for each in folder.iterdir())


def _below(folder: Path) -> Iterator[Path]:
    for name in OURS:
        path = folder / name
        if not path.exists() or path.is_symlink():
            continue
        yield path
        if path.is_dir():
            for parent, folders, files in os.walk(path):
                yield from (Path(parent, each) for each in (*folders, *files))
