"""What services need of a log on Spark's side: to read streams, to write outputs, and to know how far they came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
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
        """Why no service over them can run in real-time mode; empty where they can."""

    def scan(
        self,
        stream: str,
        service: str,
        *,
        start: Mapping[str, int] | None = None,
        marks: str | None = None,
        ticks: int = 0,
    ) -> DataFrame:
        """A stream as a streaming frame, from an offset for each partition on.

        `service` is whose metrics count what is read. `marks` names the stream
        beside which the reader notes how far it has come. `ticks` is how many
        state partitions get ticks, in real-time mode.
        """

    def start(
        self,
        write: DataStreamWriter,
        checkpoint: Path,
        service: Service,
        plan: Plan,
        *,
        since_micros: int,
        floor: Mapping[str, int],
    ) -> StreamingQuery:
        """Start a query that writes a service's events, each once.

        `checkpoint` is where Spark keeps how far the query is. `since_micros` is
        when it last did: what was written later may come again. `floor` is where
        the output ended when this version of the service began.
        """

    def resume(self, output: str, stream: str, partitions: Sequence[str]) -> dict[str, int]:
        """Where to go on reading a stream, as an output made of it tells; without those of which it tells nothing."""

    def metrics(self, service: str) -> dict[str, Any]:
        """What the tasks of a service have done: counts since the start, latencies since the last call."""

    def forget(self, service: str) -> None:
        """Begin to count anew for a service of this name."""

    def release(self, service: Service) -> None:
        """Let go of what a service that was stopped had open."""


def source_name(stream: str) -> str:
    """Return the name under which checkpoints keep the offsets of a stream; no other stream has the same.

    >>> source_name("gps_taxi-a")
    'stream_gps_5f_taxi_2d_a'
    """
    return "stream_" + "".join(each if each.isascii() and each.isalnum() else f"_{ord(each):x}_" for each in stream)
