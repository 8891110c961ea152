"""Where checkpoints are: a folder, or a URI that Hadoop's file systems can read, such as `hdfs://` and `s3a://`."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession


class CheckpointFiles(Protocol):
    """The files below one place. All paths are relative to it."""

    @property
    def place(self) -> str:
        """The place, so that operators of all machines understand it."""

    def location(self, path: str) -> str:
        """Return a path as Spark takes it."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""

    def write(self, path: str, content: bytes) -> None:
        """Replace a file, completely or not at all."""

    def entries(self, path: str) -> Mapping[str, int]:
        """Return the names in a folder with the times of their last change in microseconds; empty if it is absent."""

    def delete(self, path: str) -> None:
        """Delete a file or a folder with all that it contains; does nothing if it is absent."""


class LocalFiles:
    """The files below a folder, which may be mounted on several machines."""

    def __init__(self, root: Path, *, is_shared: bool = False) -> None:
        """`is_shared`: all machines see the folder under the same path."""
        self._root, self._is_shared = root, is_shared

    @property
    def place(self) -> str:
        """The folder, with this host before it unless it is the same on all."""
        folder = str(self._root.absolute())
        return folder if self._is_shared else f"{socket.gethostname()}:{folder}"

    def location(self, path: str) -> str:
        """Return the path in the file system."""
        return str(self._root / path)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: str, content: bytes) -> None:
        """Replace a file by renaming a new one."""
        file = self._root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_bytes(content)
        new.replace(file)

    def entries(self, path: str) -> Mapping[str, int]:
        """Return the names in a folder with the times of their last change."""
        folder = self._root / path
        return {each.name: each.stat().st_mtime_ns // 1_000 for each in folder.iterdir()} if folder.is_dir() else {}

    def delete(self, path: str) -> None:
        """Delete a file or a folder."""
        target = self._root / path
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)


class HadoopFiles:
    """The files below a URI, through Hadoop's file systems in the driver's JVM, as Spark reads its checkpoints."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._jvm: Any = spark._jvm
        self._settings = spark._jsc.hadoopConfiguration()
        self._root = uri.rstrip("/")

    @property
    def place(self) -> str:
        """The URI."""
        return self._root

    def location(self, path: str) -> str:
        """Return the URI of a path."""
        return f"{self._root}/{path}"

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        for name in (path, f"{path}.new"):  # a crash between the two steps of `write` leaves only the new one
            file, system = self._open(name)
            if system.exists(file):
                stream = system.open(file)
                try:
                    return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
                finally:
                    stream.close()
        return None

    def write(self, path: str, content: bytes) -> None:
        """Replace a file. Some file systems can't rename over one, so the old one is deleted first."""
        new, system = self._open(f"{path}.new")
        stream = system.create(new, True)
        try:
            stream.write(content)
        finally:
            stream.close()
        file, _ = self._open(path)
        system.delete(file, False)
        if not system.rename(new, file):
            raise OSError(f"can't rename {self.location(path)}.new")

    def entries(self, path: str) -> Mapping[str, int]:
        """Return the names in a folder with the times of their last change."""
        folder, system = self._open(path)
        if not system.exists(folder):
            return {}
        return {each.getPath().getName(): each.getModificationTime() * 1_000 for each in system.listStatus(folder)}

    def delete(self, path: str) -> None:
        """Delete a file or a folder."""
        target, system = self._open(path)
        system.delete(target, True)

    def _open(self, path: str) -> tuple[Any, Any]:
        found = self._jvm.org.apache.hadoop.fs.Path(self.location(path))
        return found, found.getFileSystem(self._settings)
