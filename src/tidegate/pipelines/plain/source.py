"""A streaming source in Python for a stream of the embedded log.

Spark pickles it, and runs it in Python processes: one next to the driver determines offsets, and workers read. So this
module imports little.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tidegate.logs.files import Partition

STREAM, SEEN, BEHIND = "stream", "seen", "behind"
"""Keys of an offset next to the partitions: the stream, the time at which the end of the batch was determined, as a
text of microseconds, and the partitions whose end the batch does not reach. The connector ignores them."""

SILENT_BATCH_MICROS = 1_000_000
"""How long after the last batch the ticks of a silent stream make another one."""

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Bytes of a partition per batch: a batch is kept in memory."""

_ROWS = 10_000
"""Records per Arrow batch."""

_Numbers = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

_SCHEMA = StructType(
    [
        StructField("partition", StringType(), nullable=False),
        StructField("position", LongType(), nullable=False),
        StructField("arrived", LongType(), nullable=False),
        StructField("value", StringType()),
        StructField("tick", IntegerType()),
        StructField("caught_up", LongType()),
    ]
)
_ARROW = pyarrow.schema(
    [
        pyarrow.field("partition", pyarrow.string(), nullable=False),
        pyarrow.field("position", pyarrow.int64(), nullable=False),
        pyarrow.field("arrived", pyarrow.int64(), nullable=False),
        pyarrow.field("value", pyarrow.string()),
        pyarrow.field("tick", pyarrow.int32()),
        pyarrow.field("caught_up", pyarrow.int64()),
    ]
)


class PlainSource(DataSource):
    """Has the columns of the connector's `LogSource`, and its options `path`, `start` and `ticks`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format` of a reader."""
        return "tidegate-plain"

    def schema(self) -> StructType:
        """Return the columns of the connector's source: those of a record, and those of a tick."""
        return _SCHEMA

    def streamReader(self, schema: StructType) -> PlainReader:  # noqa: ARG002, N802 - Spark's
        """Return the reader of the stream."""
        ticks = int(self.options.get("ticks", "0"))
        return PlainReader(Path(self.options["path"]), json.loads(self.options.get("start", "{}")), ticks)


@dataclass
class PartitionRange(InputPartition):
    """The part of a partition that one task reads."""

    partition: str
    start: int
    end: int
    seen_micros: int
    caught_up: bool = False
    """Whether the stream had nothing more when the end was determined."""


class PlainReader(DataSourceStreamReader):
    """Reads a stream. An offset has the byte position in each partition, as in the connector, and the stream's name."""

    def __init__(self, folder: Path, start: Mapping[str, int], ticks: int = 0) -> None:
        """`start` has first positions by partition; other partitions are read from their oldest record.

        `ticks` is the number of state partitions that get a tick from each partition at the end of every batch.
        """
        self._folder, self._start, self._ticks = folder, dict(start), ticks

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset at which a query without a checkpoint starts."""
        return self._offset({name: self._begin(name, {}) for name in self._partitions()}, (), _now_micros())

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next batch: the end of the stream, unless the limit is reached first."""
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        ends, behind = {}, []
        seen = _now_micros()
        for name in self._partitions():
            begin, partition = self._begin(name, start), Partition(self._folder / name)
            end = max(begin, partition.end())
            ends[name] = (
                end if max_bytes is None or end - begin <= max_bytes else _cut(partition, begin + max_bytes, end)
            )
            if ends[name] < end:
                behind.append(name)
        # Return the same offset if there is no new data: a different text would be a new offset, and start a batch.
        ticks_due = self._ticks > 0 and seen - int(start.get(SEEN, 0)) >= SILENT_BATCH_MICROS
        return self._offset(ends, behind, seen) if ticks_due or ends != positions(start) else dict(start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the largest size of a batch."""
        return ReadMaxBytes(MAX_BATCH_BYTES)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[PartitionRange]:
        """Return one task for each partition with new data; with ticks one for each."""
        seen, behind = int(end.get(SEEN, _now_micros())), str(end.get(BEHIND, "")).split(",")
        ranges = [
            PartitionRange(name, self._begin(name, start), at, seen, name not in behind)
            for name, at in positions(end).items()
        ]
        return [range_ for range_ in ranges if range_.start < range_.end or self._ticks]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the records of a range, without those that have expired meanwhile; then its ticks."""
        assert isinstance(partition, PartitionRange)
        yield from self._records(partition)
        if self._ticks:
            yield _tick_batch(partition, self._ticks)

    def _records(self, partition: PartitionRange) -> Iterator[pyarrow.RecordBatch]:
        log_partition, at = Partition(self._folder / partition.partition), partition.start
        while at < partition.end:
            read = log_partition.read(at, _ROWS)
            if not read.records:
                return
            places = read.start + _starts(read.records)
            count = int(numpy.searchsorted(places, partition.end))
            if count:
                appended = _append_times(log_partition, places[:count], partition.seen_micros)
                yield _batch(partition, places[:count], appended, read.records[:count])
            at = int(places[-1]) + len(read.records[-1]) + 1

    def _partitions(self) -> list[str]:
        with os.scandir(self._folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def _begin(self, name: str, positions: Mapping[str, Any]) -> int:
        """Where to read on; a partition that is new is read from where the service starts in it."""
        position = positions.get(name, self._start.get(name))
        return Partition(self._folder / name).begin() if position is None else int(position)

    def _offset(self, positions: Mapping[str, int], behind: Sequence[str], seen: int) -> dict[str, Any]:
        found = {**positions, STREAM: self._folder.name, SEEN: str(seen)}
        return {**found, BEHIND: ",".join(behind)} if behind else found


def positions(offset: Mapping[str, Any]) -> dict[str, int]:
    """Return the byte position of each partition in an offset."""
    return {name: at for name, at in offset.items() if name not in (STREAM, SEEN, BEHIND)}


def _cut(partition: Partition, at: int, end: int) -> int:
    """Return the end of the record that contains an offset."""
    segments = partition.segments(refresh=True)
    segment = next((segment for segment in reversed(segments) if segment.base <= at), None)
    if segment is None:
        return end  # all of it has expired
    if at >= segment.base + segment.size():  # between two segments
        return min((following.base for following in segments if following.base > at), default=end)
    with open(segment.path, "rb") as file:
        file.seek(at - segment.base)
        file.readline()
        return min(end, segment.base + file.tell())


def _starts(records: list[bytes]) -> _Numbers:
    """Return the offset of each record from the first."""
    lengths = numpy.fromiter(map(len, records), numpy.int64, len(records)) + 1
    return numpy.cumsum(lengths) - lengths


def _append_times(partition: Partition, places: _Numbers, seen_micros: int) -> _Numbers:
    """Return the times at which records were appended, at the earliest; `seen_micros` if they are not known."""
    last = int(places[-1])
    segments = [segment for segment in partition.segments() if segment.base <= last]
    first = max((n for n, segment in enumerate(segments) if segment.base <= places[0]), default=0)
    entries = numpy.array([entry for segment in segments[first:] for entry in segment.times()], numpy.int64)
    if not len(entries):
        return numpy.full(len(places), seen_micros)
    found = numpy.searchsorted(entries[:, 1], places, side="right") - 1
    return numpy.where(found >= 0, numpy.minimum(entries[found, 0], seen_micros), seen_micros)


def _batch(range_: PartitionRange, places: _Numbers, appended: _Numbers, records: list[bytes]) -> pyarrow.RecordBatch:
    count = len(records)
    ends = numpy.zeros(count + 1, numpy.int32)
    numpy.cumsum([len(record) for record in records], out=ends[1:])
    # From buffers: bytes that are not UTF-8 reach Spark unchanged, as with the connector.
    values = pyarrow.StringArray.from_buffers(count, pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(records)))
    columns = [
        pyarrow.repeat(range_.partition, count),
        pyarrow.array(places),
        pyarrow.array(appended),
        values,
        pyarrow.nulls(count, pyarrow.int32()),
        pyarrow.nulls(count, pyarrow.int64()),
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=_ARROW)


def _tick_batch(range_: PartitionRange, count: int) -> pyarrow.RecordBatch:
    """Return a tick for each state partition."""
    columns = [
        pyarrow.repeat(range_.partition, count),
        pyarrow.repeat(pyarrow.scalar(range_.end, pyarrow.int64()), count),
        pyarrow.repeat(pyarrow.scalar(range_.seen_micros, pyarrow.int64()), count),
        pyarrow.nulls(count, pyarrow.string()),
        pyarrow.array(range(count), pyarrow.int32()),
        pyarrow.repeat(pyarrow.scalar(range_.seen_micros if range_.caught_up else None, pyarrow.int64()), count),
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=_ARROW)


def _now_micros() -> int:
    return time.time_ns() // 1_000
