"""Reads compressed files as streams: in bounded memory, with a limit on what a file may expand to."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import IO, Any, BinaryIO

from tidegate.errors import MissingDependency, SourceError
from tidegate.ingress.feeds.file_formats import FilePosition, FileRecord, Reader, RecordShape

MIN_EXPANDED_BYTES = 1 << 30
"""Every compressed file may expand to this size."""
MAX_EXPANSION = 250
"""The largest ratio of expanded to compressed size of a larger file. CSV and JSON of sensors have 5 to 50."""
_CHUNK_BYTES = 128 << 10


class StoppedError(Exception):
    """The feed is being stopped."""


def _open_zstd(file: BinaryIO) -> Any:
    try:
        import pyarrow as pa
    except ModuleNotFoundError as exc:
        raise MissingDependency("pyarrow", "arrow") from exc
    # Without a copy of the file object, Arrow would close the file when a stream is dropped.
    return pa.CompressedInputStream(pa.PythonFile(_KeptOpen(file), mode="r"), "zstd")


_CODECS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    ".bz2": lambda file: bz2.BZ2File(file),
    ".zst": _open_zstd,
}
SUFFIXES = tuple(_CODECS)
"""The endings of compressed files."""


def uncompressed_name(path: Path) -> tuple[Path, str | None]:
    """Return the path without the ending of a compressed file, and that ending if there is one."""
    suffix = path.suffix.lower()
    return (path.with_suffix(""), suffix) if suffix in _CODECS else (path, None)


def compressed_reader(read: Reader, suffix: str, size: int, stop: Event) -> Reader:
    """Return a reader of the compressed form of a format.

    Its positions count records, with offset 0. It decompresses a file from its start and skips the records before the
    position. `size` is that of the file. Raises SourceError for a damaged file, after the records before the damage,
    and StoppedError when `stop` is set.
    """

    def read_compressed(
        file: IO[bytes], position: FilePosition, shape: RecordShape, final: bool
    ) -> Iterator[FileRecord]:
        with io.BufferedReader(_Decompressed(file, suffix, size, stop), _CHUNK_BYTES) as stream:
            for record in read(stream, FilePosition(), shape, final):
                if record.position.records > position.records:
                    yield record._replace(position=FilePosition(record.position.records))

    return read_compressed


class _Decompressed(io.RawIOBase):
    """The content of a compressed file. Seeking backwards begins again."""

    def __init__(self, file: IO[bytes], suffix: str, size: int, stop: Event) -> None:
        self._file, self._open, self._stop = file, _CODECS[suffix], stop
        self._limit = max(MIN_EXPANDED_BYTES, size * MAX_EXPANSION)
        self._restart()

    def _restart(self) -> None:
        self._file.seek(0)
        self._stream, self._offset = self._open(self._file), 0  # type: ignore[arg-type]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("only from the start")
        if offset < self._offset:
            self._restart()
        while self._offset < offset and self._read(min(_CHUNK_BYTES, offset - self._offset)):
            pass
        return self._offset

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, size: int) -> bytes:
        if self._stop.is_set():
            raise StoppedError
        try:
            data: bytes = self._stream.read(size)
        except (EOFError, OSError, ValueError, zlib.error) as exc:  # Arrow's errors are OSError and ValueError
            raise SourceError(f"the compressed file is damaged or incomplete: {exc}") from exc
        self._offset += len(data)
        if self._offset > self._limit:
            raise SourceError(
                f"the file expands to more than {self._limit} bytes; decompress it before, if that is right"
            )
        return data


class _KeptOpen:
    """A file that the reader of it can't close."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.read = file.read

    def close(self) -> None:
        """Keep the file open."""
