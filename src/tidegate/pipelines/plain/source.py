"""A stream of the embedded log as a streaming source in Python.

Spark pickles it into processes of its own: one beside the driver asks for
offsets, and workers read. So this module imports little.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tidegate.logs.files import Partition

STREAM, SEEN = "stream", "seen"
"""In an offset, beside the partitions: the stream that it is of, and when the batch up to it was found, as text of
microseconds. The connector passes over both."""

BATCH_BYTES = 8 * 1024 * 1024
"""How much of a partition is read at once, at most: a batch is held in memory."""

_ROWS = 10_000
"""Records in one Arrow batch."""

_SCHEMA = StructType(
    [
        StructField("partition", StringType(), nullable=False),
        StructField("position", LongType(), nullable=False),
        StructField("arrived", LongType(), nullable=False),
        StructField("value", StringType(), nullable=False),
    ]
)
_ARROW = pyarrow.schema(
    [
        pyarrow.field("partition", pyarrow.string(), nullable=False),
        pyarrow.field("position", pyarrow.int64(), nullable=False),
        pyarrow.field("arrived", pyarrow.int64(), nullable=False),
        pyarrow.field("value", pyarrow.string(), nullable=False),
    ]
)


class PlainSource(DataSource):
    """The columns of the connector's `LogSource`, and its options `path` and `start`."""

    @classmethod
    def name(cls) -> str:
        """What a reader's `format` is."""
        return "tidegate-plain"

    def schema(self) -> StructType:
        """Partition, position, when it was read, and the record."""
        return _SCHEMA

    def streamReader(self, schema: StructType) -> PlainReader:  # noqa: ARG002, N802 - Spark's
        """What reads the stream."""
        return PlainReader(Path(self.options["path"]), json.loads(self.options.get("start", "{}")))


@dataclass
class Piece(InputPartition):
    """What one task reads."""

    partition: str
    begin: int
    end: int
    seen_micros: int


class PlainReader(DataSourceStreamReader):
    """Offsets are one byte position for each partition, as the connector has them, and the stream's name."""

    def __init__(self, folder: Path, start: Mapping[str, int]) -> None:
        """`start`: where to begin; partitions that it does not name are read from their oldest record on."""
        self._folder, self._start = folder, dict(start)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        return self._offset({name: self._begin(name, {}) for name in self._partitions()})

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """How far the next batch goes: to the end, or as far as the limit lets it."""
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        ends = {}
        for name in self._partitions():
            begin, partition = self._begin(name, start), Partition(self._folder / name)
            end = max(begin, partition.end())
            ends[name] = end if most is None or end - begin <= most else _cut(partition, begin + most, end)
        # As it was where nothing is new: another text would be another offset, and make a batch.
        return self._offset(ends) if ends != positions(start) else dict(start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What a batch may take."""
        return ReadMaxBytes(BATCH_BYTES)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Piece]:
        """One task for each partition that has something new."""
        seen = int(end.get(SEEN, _now_micros()))
        pieces = [Piece(name, self._begin(name, start), at, seen) for name, at in positions(end).items()]
        return [piece for piece in pieces if piece.begin < piece.end]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read the records of a piece; what has expired meanwhile is passed over."""
        assert isinstance(partition, Piece)
        found, at = Partition(self._folder / partition.partition), partition.begin
        while at < partition.end:
            read = found.read(at, _ROWS)
            if not read.records:
                return
            places = read.start + _starts(read.records)
            count = int(numpy.searchsorted(places, partition.end))
            if count:
                yield _batch(partition, places[:count], read.records[:count])
            at = int(places[-1]) + len(read.records[-1]) + 1

    def _partitions(self) -> list[str]:
        with os.scandir(self._folder) as found:
            return sorted(each.name for each in found if each.is_dir())

    def _begin(self, name: str, known: Mapping[str, Any]) -> int:
        """Where to read on; a partition that is new is read from where the service starts in it."""
        found = known.get(name, self._start.get(name))
        return Partition(self._folder / name).begin() if found is None else int(found)

    def _offset(self, positions: Mapping[str, int]) -> dict[str, Any]:
        return {**positions, STREAM: self._folder.name, SEEN: str(_now_micros())}


def positions(offset: Mapping[str, Any]) -> dict[str, int]:
    """The byte position of each partition in an offset."""
    return {name: at for name, at in offset.items() if name not in (STREAM, SEEN)}


def _cut(partition: Partition, at: int, end: int) -> int:
    """The end of the record that an offset is in."""
    segment = next((each for each in reversed(partition.segments(anew=True)) if each.base <= at), None)
    if segment is None:
        return end  # all of it has expired
    with open(segment.path, "rb") as file:
        file.seek(at - segment.base)
        file.readline()
        return min(end, segment.base + file.tell())


def _starts(records: list[bytes]) -> numpy.ndarray[Any, numpy.dtype[numpy.int64]]:
    """Where each record begins, counted from the first."""
    lengths = numpy.fromiter(map(len, records), numpy.int64, len(records)) + 1
    return numpy.cumsum(lengths) - lengths


def _batch(
    piece: Piece, places: numpy.ndarray[Any, numpy.dtype[numpy.int64]], records: list[bytes]
) -> pyarrow.RecordBatch:
    count = len(records)
    ends = numpy.zeros(count + 1, numpy.int32)
    numpy.cumsum([len(record) for record in records], out=ends[1:])
    # By buffers: bytes that are no UTF-8 come to Spark as they are, as the connector hands them on.
    values = pyarrow.StringArray.from_buffers(count, pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(records)))
    columns = [
        pyarrow.repeat(piece.partition, count),
        pyarrow.array(places),
        # When the batch was found, not when it is read: what Spark does between the two is latency too.
        pyarrow.repeat(pyarrow.scalar(piece.seen_micros, pyarrow.int64()), count),
        values,
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=_ARROW)


def _now_micros() -> int:
    return time.time_ns() // 1_000
