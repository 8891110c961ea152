"""One process at a time appends to the raw streams of a folder: the rule of one writer a partition, held by a lock."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tidegate.errors import StreamConflict


class SoleWriter:
    """A lock on a file, taken when it is first needed and kept until the process ends, however it does."""

    def __init__(self, path: Path, name: str) -> None:
        """`name` is what others are told of whoever holds it."""
        self._path, self._name = path, name
        self._file: int | None = None

    def need(self) -> None:
        """Be the one; a `StreamConflict` where another is."""
        if self._file is not None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 1_000, 0).decode("utf-8", "replace") or "another process"
            os.close(file)
            raise StreamConflict(
                f"raw streams in files have one writer, which is {holder}: send to it, or let the log be Kafka, where "
                "every gateway may write"
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, self._name.encode(), 0)
        self._file = file

    def close(self) -> None:
        """Let another be the one."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
