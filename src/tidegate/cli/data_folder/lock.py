"""The lock file of a data folder: one `tidegate up` at a time, and how others reach its gateway."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tidegate.errors import EnvironmentProblem


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """The process that holds the lock of a data folder."""

    process: str
    """Its process id, or `unknown`."""
    has_gateway: bool
    """True if it has a gateway, which is then the only writer of raw streams."""
    url: str | None
    """The gateway's URL; None until it answers requests."""
    certificate: Path | None = None
    """The file with the gateway's certificate; None if it listens without TLS."""


class FolderLock:
    """The lock of a data folder. Its file says how other processes reach the gateway of the process that holds it."""

    def __init__(self, file: TextIO) -> None:
        """`file` is open for appending; `take` takes the lock."""
        self._file = file
        self._announced: tuple[str, ...] = ()
        self.is_held = False

    def take(self) -> bool:
        """Take the lock if it is free. Returns False if another process holds it."""
        if not self.is_held:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            self.is_held = True
            self._write()
        return True

    def announce(self, url: str | None, certificate: Path | None = None) -> None:
        """Write that this process has a gateway: without a URL before it answers requests, then with its URL.

        `certificate` is the file with the gateway's certificate, so that the folder's owner can verify the gateway.
        While another process holds the lock, nothing is written; `take` does it.
        """
        self._announced = (url or "-", *([] if certificate is None else [str(certificate.absolute())]))
        if self.is_held:
            self._write()

    def _write(self) -> None:
        self._file.seek(0)
        self._file.truncate(0)
        self._file.write("\n".join([str(os.getpid()), *self._announced]))
        self._file.flush()


@contextmanager
def hold_lock(folder: Path, *, may_wait: bool = False) -> Iterator[FolderLock]:
    """Hold the lock of a data folder; the kernel releases it however the process ends.

    Raises an `EnvironmentProblem` at once if another process holds it. With `may_wait` the block begins without the
    lock then, and may take it later.
    """
    with (folder / "lock").open("a+") as file:
        lock = FolderLock(file)
        if not lock.take() and not may_wait:
            raise EnvironmentProblem(
                f"a Tidegate runs in {str(folder)!r} already (process {_read(file).process}): "
                "change it with `tidegate apply`, or choose another folder with --data"
            )
        yield lock


def lock_holder(folder: Path) -> RunningProcess | None:
    """Return the process that holds the lock of a data folder; None if there is none."""
    try:
        file = (folder / "lock").open()
    except FileNotFoundError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(file)
        return None


def _read(file: TextIO) -> RunningProcess:
    file.seek(0)
    process, url, certificate, *_ = [*file.read().strip().split("\n"), "", ""]
    return RunningProcess(
        process=process or "unknown",
        has_gateway=bool(url),
        url=url if url not in ("", "-") else None,
        certificate=Path(certificate) if certificate else None,
    )
