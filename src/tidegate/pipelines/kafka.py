"""Reads and writes the Kafka topics of the log in Spark, through the connector."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidegate.errors import LogError
from tidegate.logs import Cursor, KafkaLog, Mark
from tidegate.pipelines.connector import attach
from tidegate.pipelines.planner import Plan
from tidegate.pipelines.streams import source_name
from tidegate.services.definitions import Service

FORMAT = "tidegate.KafkaSource"

LOOK_BACK = 100, 1_000, 10_000
"""How many records at the end of each output partition are searched for the last position of each source, if its reader
has stored none: the next number is used until all sources are found."""


class KafkaStreams:
    """Reads and writes the streams of a `KafkaLog`."""

    obstacle = ""

    def __init__(
        self, spark: SparkSession, log: KafkaLog, brokers: str, *, client_settings: Mapping[str, str] | None = None
    ) -> None:
        """`client_settings` are settings of Kafka's Java clients, such as security; `log` has its own client."""
        self._spark, self._log = spark, log
        self._groups: dict[str, str] = {}
        """By service, the consumer group in which its readers store offsets; empty: they do not."""
        attach.register_state_functions(spark)
        settings = {"bootstrap.servers": brokers, **(client_settings or {})}
        for name in settings:
            if "\n" in name or "=" in name:
                raise LogError(f"bad setting {name!r} of Kafka's clients; expected a name without = in one line")
        self._settings = "\n".join(f"{name}={_one_line(value)}" for name, value in settings.items())
        # Spark shows and logs the options of a frame, and settings may be secret: they stay in the driver's JVM.
        self._cluster: str = self._java("KafkaClients.remember")(self._settings)

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
        """Return a streaming frame of a topic that starts at the given offset of each partition.

        The reader stores its offsets in Kafka, in the consumer group of the output `marks`, if there is one; and with
        each offset, where the output and its quarantine ended then.
        """
        reader = (
            self._spark.readStream.name(source_name(stream, reading))
            .format(FORMAT)
            .option("cluster", self._cluster)
            .option("topic", self._log.topic(stream))
            .option("stream", stream)
            .option("service", service)
            .option("start", json.dumps(dict(start or {})))
            .option("ticks", ticks)
        )
        group = None if marks is None else self._group(marks)
        if marks is None or group is None:
            return reader.load()
        topics = [marks, *({f"{marks}.quarantine"} & set(self._log.streams()))]
        outputs = " ".join(map(self._log.topic, topics))
        noting = reader.option("group", group).option("outputs", outputs).option("sources", self._sources(inputs))
        return noting.load()

    def retained(self, stream: str) -> DataFrame:
        """Return all records that a stream holds now as a batch frame, with the columns of `scan`."""
        topic = self._log.topic(stream)
        reader = self._spark.read.format(FORMAT).option("cluster", self._cluster)
        return reader.option("topic", topic).option("stream", stream).load()

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
        """Start a query that writes a service's events to its topics."""
        if plan.stages:
            self._java("Metrics.start")(service.name)
        noted = None if plan.keyed or plan.mode != "real-time" else service.name
        return attach.start(write, checkpoint, self._writer(service, plan.identity, since_micros, floor, noted))

    def resume(self, output: str, stream: str, partitions: Sequence[str]) -> dict[str, int]:
        """Return where to resume each partition, by the last records of the output and the stored offsets."""
        group = self._group(output)
        if group is None:
            return {}
        noted = json.loads(self._java("KafkaClients.noted")(self._settings, group, self._log.topic(stream)))
        positions: dict[str, int] = {name: noted[name] for name in partitions if name in noted}
        # A stored offset is exact. The last record of an output is not: one of the quarantine may be missing before it.
        unknown = [name for name in partitions if name not in positions]
        marks = self._marks(output, {f"{stream}/{name}" for name in unknown}) if unknown else {}
        for name in unknown:
            mark = marks.get(f"{stream}/{name}")
            if mark is not None:
                # Read that record again: perhaps not all of its results were written.
                positions[name] = mark if isinstance(mark, int) else mark[0]
        return positions

    def stored_offsets(self, service: Service) -> Mapping[str, int]:
        """Return the offsets that the readers of a service have stored in its consumer group."""
        group = self._groups.get(service.name, "")
        stored: dict[str, int] = {}
        for stream in service.inputs if group else ():
            offsets = json.loads(self._java("KafkaClients.noted")(self._settings, group, self._log.topic(stream)))
            stored |= {f"{stream}/{name}": offset for name, offset in offsets.items()}
        return stored

    def metrics(self, service: str) -> dict[str, Any]:
        """Return the metrics of a service's tasks; expired unread records are counted in records, not bytes."""
        return json.loads(self._java("Metrics.snapshot")(service))  # type: ignore[no-any-return]

    def forget(self, service: str) -> None:
        """Reset the counts of a service."""
        self._java("Metrics.forget")(service)

    def release(self, service: Service) -> None:
        """Wait until all records that a stopped service has sent are acknowledged, and close its consumers."""
        for stream in (service.name, service.quarantine):
            self._java("KafkaServiceWriter.release")(self._settings, stream, self._log.topic(stream))

    # Last positions in outputs -------------------------------------------------------

    def _group(self, output: str) -> str | None:
        """Return the consumer group in which readers store offsets; another one if the output is created again.

        None: there is no output.
        """
        if output not in self._log.streams():
            return None
        return f"tidegate.{self._log.topic(output)}.{self._log.end(output).generation}"

    def _sources(self, inputs: Sequence[str]) -> str:
        """Return the partitions of all inputs, as the connector's `OutputPlan` reads them."""
        return "".join(
            f"{self._log.topic(stream)} {stream}.{name}\n" for stream in inputs for name in self._log.partitions(stream)
        )

    def _marks(self, output: str, sources: Set[str]) -> Mapping[str, Mark]:
        """Return the last position of each source in an output, for sources within `LOOK_BACK` records of its end."""
        begin, end = self._log.begin(output).offsets, self._log.end(output)
        marks: Mapping[str, Mark] = {}
        for many in LOOK_BACK:
            back = {name: max(begin[name], at - many) for name, at in end.offsets.items()}
            marks = self._read(output, Cursor(end.generation, back)).marks
            if sources <= marks.keys() or back == begin:
                break
        return marks

    def _read(self, output: str, cursor: Cursor) -> Cursor:
        """Read to the end of an output. The returned cursor has the marks of all sources on the way."""
        while (read := self._log.read(output, cursor, 10_000)).records:
            cursor = read.cursor
        return read.cursor

    # Java -----------------------------------------------------------------------------

    def _writer(
        self, service: Service, identity: str, since_micros: int, floor: Mapping[str, int], noted: str | None
    ) -> Any:
        """`noted` is the output beside which the query's readers note how far they are; None: they do not."""
        output, quarantine = self._log.topic(service.name), self._log.topic(service.quarantine)
        group = (None if noted is None else self._group(noted)) or ""
        if noted != service.quarantine:
            self._groups[service.name] = group
        ends, sources = json.dumps(dict(floor)), self._sources(service.inputs)
        return self._java("KafkaServiceWriter")(
            self._settings, service.name, output, quarantine, identity, since_micros, ends, group, sources
        )

    def _java(self, name: str) -> Any:
        return attach.java(self._spark, name)


def _one_line(value: str) -> str:
    r"""Escape a value for `KafkaClients.with`, which reads one setting per line; certificates have many lines.

    >>> print(_one_line("a\\\nb"))
    a\\\nb
    """
    return value.replace("\\", "\\\\").replace("\n", "\\n")
