"""The protocol of a log in Spark: reads streams, writes outputs, and returns the offsets at which to resume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidegate.pipelines.planner import Plan
from tidegate.services.definitions import Service


class Streams(Protocol):
    """The streams of one log."""

    @property
    def obstacle(self) -> str:
        """Why no service can run in real-time mode over this log; empty if services can."""

    def scan(
        self,
        stream: str,
        service: str,
        *,
        start: Mapping[str, int] | None = None,
        marks: str | None = None,
        inputs: Sequence[str] = (),
        ticks: int = 0,
        reading: int = 0,
    ) -> DataFrame:
        """Return a streaming frame of a stream, from `start` on: an offset for each partition.

        The metrics of `service` count the records. The reader stores its offsets beside the stream `marks`; `inputs`
        are all streams that the service reads. `ticks` is the number of state partitions that get ticks. A query that
        reads a stream several times numbers its `reading`s.
        """

    def retained(self, stream: str) -> DataFrame:
        """Return all records that a stream holds now as a batch frame, with the columns of `scan`."""

    def start(
        self,
        write: DataStreamWriter,
        checkpoint: str,
        service: Service,
        plan: Plan,
        *,
        since_micros: int,
        floor: Mapping[str, int],
    ) -> StreamingQuery:
        """Start a query that writes a service's events, each once.

        `checkpoint` is the folder of Spark's checkpoint, and `since_micros` the time of its last commit.
        The query computes later results again, and skips those that the output has. `floor` has the end offsets of the
        output when this version of the service began.
        """

    def resume(self, output: str, stream: str, partitions: Sequence[str]) -> dict[str, int]:
        """Return the offset at which to resume each partition of a stream, from the last records of an output.

        Partitions without records in the output are absent.
        """

    def stored_offsets(self, service: Service) -> Mapping[str, int]:
        """Return how far the readers of a service were at their last note, by `stream/partition`.

        Empty if they note nothing that other processes can see.
        """

    def metrics(self, service: str) -> dict[str, Any]:
        """Return the metrics of a service's tasks: counts since the start, latencies since the last call."""

    def forget(self, service: str) -> None:
        """Reset the counts of a service."""

    def release(self, service: Service) -> None:
        """Close the files or connections of a stopped service."""


def reading_name(stream: str, reading: int) -> str:
    """Return the name of a stream that a query reads for the first time (0), or again: no stream has such a name.

    >>> reading_name("gps", 0), reading_name("gps", 1)
    ('gps', 'gps#1')
    """
    return f"{stream}#{reading}" if reading else stream


def source_name(stream: str, reading: int = 0) -> str:
    """Return the name under which checkpoints keep the offsets of a stream; no other stream has the same.

    >>> source_name("gps_taxi-a"), source_name("gps", 1)
    ('stream_gps_5f_taxi_2d_a', 'stream_gps_23_1')
    """
    name = reading_name(stream, reading)
    return "stream_" + "".join(each if each.isascii() and each.isalnum() else f"_{ord(each):x}_" for each in name)
