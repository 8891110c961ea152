"""A lock between processes: only one at a time appends to the raw streams of a data folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tidegate.errors import StreamConflict


class WriterLock:
    """A lock on a file. The system releases it when the process ends, even by a crash."""

    def __init__(self, path: Path, name: str) -> None:
        """`name` describes this process in the error that other processes get."""
        self._path, self._name = path, name
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock, or keep it if this object has it. Does not wait: raises StreamConflict if another has it."""
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
        """Release the lock; does nothing if this object does not have it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
