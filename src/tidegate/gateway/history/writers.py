"""Writes record batches as an Arrow IPC stream or a Parquet file, piece by piece."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
MEDIA_TYPES = {"arrow": ARROW, "parquet": PARQUET}
"""By the name in the parameter `format`."""

ROW_GROUP_BYTES = 16 << 20
"""A row group of a Parquet file is written when its rows have about this size in Arrow; it is held until then."""
ROW_GROUP_ROWS = 100_000


def history_media_type(accept: str, format_: str | None) -> str | None:
    """Return the media type of the history that a request asks for, by its format or Accept; None: it asks for none."""
    if format_ in MEDIA_TYPES:
        return MEDIA_TYPES[format_]
    accepted = [item.partition(";")[0].strip().lower() for item in accept.split(",")]
    return next((name for name in accepted if name in MEDIA_TYPES.values()), None) if format_ is None else None


class HistoryWriter(Protocol):
    """Turns record batches into the bytes of a response."""

    def write(self, batch: pa.RecordBatch) -> bytes:
        """Return the bytes to send now; may be empty."""

    def close(self) -> bytes:
        """Return the last bytes."""


def writer_of(media_type: str, schema: pa.Schema) -> HistoryWriter:
    """Return the writer of a media type."""
    return ArrowWriter(schema) if media_type == ARROW else ParquetWriter(schema)


class ArrowWriter:
    """Writes an Arrow IPC stream."""

    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow as pa

        self._sink = _Pieces()
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def write(self, batch: pa.RecordBatch) -> bytes:
        """Return the bytes of a batch, with those of the schema before the first one."""
        self._writer.write_batch(batch)
        return self._sink.take()

    def close(self) -> bytes:
        """Return the end of the stream."""
        self._writer.close()
        return self._sink.take()


class ParquetWriter:
    """Writes a Parquet file with compressed row groups."""

    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._sink, self._schema = _Pieces(), schema
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd")
        self._held: list[Any] = []

    def write(self, batch: pa.RecordBatch) -> bytes:
        """Hold a batch; return the bytes of a row group once it is large enough."""
        if batch.num_rows:
            self._held.append(batch)
        rows, size = sum(held.num_rows for held in self._held), sum(held.nbytes for held in self._held)
        if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            self._write_group()
        return self._sink.take()

    def close(self) -> bytes:
        """Return the last row group and the footer."""
        self._write_group()
        self._writer.close()
        return self._sink.take()

    def _write_group(self) -> None:
        import pyarrow as pa

        if self._held:
            table = pa.Table.from_batches(self._held, self._schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._held = []


class _Pieces(io.RawIOBase):
    """A file that is only appended to, and whose content is taken away piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        self._size += len(self._pieces[-1])
        return len(self._pieces[-1])

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
