"""`KafkaLog`: the contract of a log, on topics."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tidegate.errors import CursorError, LogError
from tidegate.logs.cursor import Cursor
from tidegate.logs.kafka.cluster import KafkaCluster
from tidegate.logs.kafka.reader import OffsetUnavailable, Reader
from tidegate.logs.kafka.reader_pool import ReaderPool
from tidegate.logs.kafka.sender import SenderSlot
from tidegate.logs.kafka.topics import Topic, Topics, TopicSettings, partition_number
from tidegate.logs.log import (
    Gap,
    Read,
    RetentionLimits,
    another_generation,
    beyond_end,
    need_names,
    need_records,
    no_partition,
)
from tidegate.logs.marks import is_repeat

_REPORT_GRACE_S = 5.0
"""How much longer than the producer's own timeout an append waits for the delivery reports."""


class KafkaLog:
    """Streams as topics. Thread-safe; connects when first used."""

    def __init__(
        self,
        brokers: str,
        *,
        prefix: str = "",
        keyed_partitions: int | None = None,
        replication: int = -1,
        record_bytes: int = 1_000_000,
        readers: int = 16,
        timeout_s: float = 10.0,
        check_s: float = 1.0,
        topic_settings: Mapping[str, str] | None = None,
        client_settings: Mapping[str, str] | None = None,
    ) -> None:
        """Raises MissingDependency if Kafka's client is not installed.

        `prefix` precedes the name of every topic, for a cluster that others use too. `keyed_partitions` is the number
        of partitions of a topic whose partitions are keys; None: as many as the keys that it is created with.
        `replication` -1 is the cluster's default. `record_bytes` is the longest record, a little less than the
        brokers' `message.max.bytes`. `readers` is the number of idle consumers that are kept for the next read; each
        has threads and connections. `check_s` is how long the metadata of a topic is cached. `topic_settings` are for
        topics that are created, `client_settings` for every client, above all for security.
        """
        self._brokers, self._max_record_bytes = brokers, record_bytes
        self._cluster = KafkaCluster(brokers, timeout_s, client_settings or {})
        # The broker sets the append time of a record, as the writer does in the log of files.
        config = {"message.timestamp.type": "LogAppendTime", **(topic_settings or {})}
        settings = TopicSettings(prefix, keyed_partitions, replication, config)
        self._topics = Topics(self._cluster, settings, check_s, self._release)
        self._readers = ReaderPool(self._cluster, readers)
        self._sender = SenderSlot(self._cluster, record_bytes)

    # Streams -------------------------------------------------------------------

    def topic(self, stream: str) -> str:
        """Return the name of a stream's topic."""
        return self._topics.name(stream)

    def create(self, stream: str, partitions: Sequence[str] = ("0",)) -> None:
        """Create a topic, or add partitions to it; does nothing if all exist."""
        self._topics.create(stream, partitions)

    def streams(self) -> list[str]:
        """Return the names of all streams."""
        return self._topics.streams()

    def partitions(self, stream: str) -> list[str]:
        """Return Kafka's partition numbers, as text."""
        return list(self._topics.get(stream).numbers)

    def delete(self, stream: str) -> None:
        """Delete a topic and all its records."""
        self._topics.delete(stream)

    def close(self) -> None:
        """Wait until queued records are stored, and close all connections."""
        self._topics.clear()
        self._cluster.close()
        self._readers.drop()
        self._sender.drop()

    def _release(self, topic: Topic) -> None:
        """Close the clients of a topic that was deleted or replaced."""
        self._readers.drop(topic.generation)
        self._sender.drop()  # its sequence numbers would not fit a new topic of the same name

    # Writing -------------------------------------------------------------------

    def append(self, stream: str, partition: str, records: Sequence[bytes]) -> int:
        """Append records, and return the offset after the last when all in-sync replicas have them."""
        need_records(records)
        for n, record in enumerate(records):
            if len(record) > self._max_record_bytes:
                raise LogError(f"record {n}: {len(record)} bytes; expected at most {self._max_record_bytes}")
        topic = self._topics.get(stream)
        number = partition_number(partition)
        if number is not None and number >= topic.partitions:
            topic = self._topics.get(stream, refresh=True)
            if number >= topic.partitions:
                raise no_partition(stream, partition, topic.numbers)
        if number is None:
            need_names([partition])
        if not records:
            return self.end(stream).offsets.get(partition, 0)
        key = partition.encode() if number is None else None
        sender, delivery = self._sender.send(topic.name, number, key, records)
        delivery.done.wait(self._cluster.timeout_s + _REPORT_GRACE_S)
        if not delivery.succeeded:
            self._sender.drop(sender)  # an idempotent producer can't be used after an error
            self._topics.get(stream, refresh=True)  # raises if the topic was deleted meanwhile
            raise self._cluster.unreachable() if delivery.error is None else self._cluster.error(delivery.error)
        return delivery.end

    # Reading -------------------------------------------------------------------

    def begin(self, stream: str) -> Cursor:
        """Return the cursor before the oldest record."""
        topic = self._topics.get(stream)
        return topic.cursor(self._topics.offsets(topic, "earliest"))

    def end(self, stream: str) -> Cursor:
        """Return the cursor after the newest record."""
        topic = self._topics.get(stream)
        return topic.cursor(self._topics.offsets(topic, "latest"))

    def since(self, stream: str, micros: int) -> Cursor:
        """Return the cursor at the first record that was appended at or after a time, cut to milliseconds."""
        topic = self._topics.get(stream)
        offsets = self._topics.offsets(topic, max(0, micros // 1_000))
        ends = self._topics.offsets(topic, "latest")
        return topic.cursor({number: offset if offset >= 0 else ends[number] for number, offset in offsets.items()})

    def read(self, stream: str, cursor: Cursor, max_records: int = 1_000) -> Read:
        """Read records from a cursor, without repeats that the cursor's marks exclude."""
        deadline = time.monotonic() + self._cluster.timeout_s
        while True:
            try:
                with self._reader_at(stream, cursor) as (topic, reader, gaps):
                    return self._read(topic, reader, cursor, max_records, gaps, deadline)
            except OffsetUnavailable:
                self._check_topic(stream, deadline)

    def _read(
        self, topic: Topic, reader: Reader, cursor: Cursor, max_records: int, gaps: Sequence[Gap], deadline: float
    ) -> Read:
        records: list[bytes] = []
        places: list[tuple[str, int]] = []
        marks = dict(cursor.marks)
        while max_records > 0 and not records:
            for partition, offset, record in reader.take(max_records):
                if record is not None and not is_repeat(record, marks):
                    records.append(record)
                    places.append((str(partition), offset))
            if records or reader.wait(0.0):
                continue
            # The consumer has nothing: either the reader is at the end, or records are still being fetched.
            ends = self._topics.offsets(topic, "latest")
            if all(reader.offsets[number] >= end for number, end in ends.items()):
                break
            if time.monotonic() > deadline:
                raise self._cluster.unreachable()
            reader.fetch(0.1)
        offsets = {str(number): offset for number, offset in reader.offsets.items()}
        return Read(tuple(records), tuple(places), Cursor(cursor.generation, offsets, marks), tuple(gaps))

    def wait(self, stream: str, cursor: Cursor, timeout_s: float) -> bool:
        """Wait for a record after a cursor. The broker answers a pending fetch when a record is appended."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                with self._reader_at(stream, cursor) as (_, reader, gaps):
                    # Return to the top now and then: the topic may be deleted, or have more partitions.
                    left_s = max(0.0, deadline - time.monotonic())
                    if gaps or reader.wait(min(left_s, max(self._topics.check_s, 0.05))):
                        return True
            except OffsetUnavailable:
                self._check_topic(stream, deadline + self._cluster.timeout_s)
            if time.monotonic() >= deadline:
                return False

    @contextmanager
    def _reader_at(self, stream: str, cursor: Cursor) -> Iterator[tuple[Topic, Reader, list[Gap]]]:
        """Lend a reader at a cursor to the block; the gaps are records of the cursor that have expired."""
        topic = self._topics.get(stream)
        if not cursor.offsets.keys() <= topic.numbers.keys():
            topic = self._topics.get(stream, refresh=True)
        if cursor.generation != topic.generation:
            raise another_generation(stream)
        for name in cursor.offsets.keys() - topic.numbers.keys():
            raise CursorError(f"the cursor has a partition {name!r} that {stream!r} does not have")
        requested = {topic.numbers[name]: offset for name, offset in cursor.offsets.items()}
        reader = self._readers.take(topic, requested)
        try:
            if reader.is_at(requested) and len(reader.offsets) == topic.partitions:
                yield topic, reader, []
            else:
                yield topic, reader, self._seek(stream, topic, reader, requested)
        except BaseException:
            reader.close()
            raise
        self._readers.give_back(reader)

    def _seek(self, stream: str, topic: Topic, reader: Reader, requested: Mapping[int, int]) -> list[Gap]:
        """Move a reader to the requested offsets, or to the oldest records where those have expired."""
        begins = self._topics.offsets(topic, "earliest")
        ends = self._topics.offsets(topic, "latest")
        gaps = []
        offsets = {}
        for number, begin in begins.items():
            offset = requested.get(number, begin)
            if offset < begin:
                gaps.append(Gap(str(number), offset, begin))
            elif offset > ends[number]:
                raise beyond_end(stream, str(number), offset, ends[number])
            offsets[number] = max(offset, begin)
        reader.seek(offsets, None if gaps else requested)
        return gaps

    def _check_topic(self, stream: str, deadline: float) -> None:
        """Read the metadata of a topic whose reader found no record at its offset. Raises after the deadline."""
        self._topics.get(stream, refresh=True)
        if time.monotonic() > deadline:
            raise self._cluster.unreachable()

    # RetentionLimits -----------------------------------------------------------------

    def expire(self, stream: str, retention: RetentionLimits) -> int:
        """Set the retention of the topic, and return 0: the brokers delete old segments in their own time."""
        self._topics.set_retention(stream, retention)
        return 0
