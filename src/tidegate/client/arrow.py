"""Reads Arrow streams. The only module of the client that needs pyarrow, at first use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from tidegate.errors import MissingDependency

if TYPE_CHECKING:
    import pyarrow as pa


def need_pyarrow() -> None:
    """Raise MissingDependency if pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as error:
        raise MissingDependency("pyarrow", "arrow") from error


def read_batches(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow stream."""
    import pyarrow as pa

    with pa.ipc.open_stream(file) as reader:
        yield from reader


def read_table(file: BinaryIO) -> pa.Table:
    """Return an Arrow stream as a table."""
    import pyarrow as pa

    with pa.ipc.open_stream(file) as reader:
        return reader.read_all()
