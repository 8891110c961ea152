"""A consumer at one position in a topic, with the records it has fetched ahead."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message


class OffsetUnavailable(Exception):  # noqa: N818 - control flow: the caller reads the topic's metadata and tries again
    """The topic has no record at the reader's position: the record has expired, or the topic was replaced."""


class Fetched(NamedTuple):
    """A record, or the end of a partition."""

    partition: int
    offset: int
    record: bytes | None
    """None: the end of the partition."""


class Reader:
    """Reads all partitions of a topic, each from its own offset. Used by one thread at a time."""

    def __init__(self, consumer: Consumer, topic: str, generation: str) -> None:
        self._consumer, self._topic, self.generation = consumer, topic, generation
        self.offsets: dict[int, int] = {}
        """By partition, the offset after the last record taken."""
        self._sought_for: Mapping[int, int] | None = None
        self._fetched: deque[Fetched] = deque()
        self._records = 0
        """Number of records in `_fetched`."""

    def is_at(self, offsets: Mapping[int, int]) -> bool:
        """True if the next read starts at these offsets, which may leave out partitions not read before."""
        return offsets in (self.offsets, self._sought_for)

    def seek(self, offsets: Mapping[int, int], requested: Mapping[int, int] | None = None) -> None:
        """Continue at other offsets. `requested` are the offsets of the cursor, which may name fewer partitions."""
        from confluent_kafka import TopicPartition

        self._sought_for = requested
        self._fetched.clear()
        self._records = 0
        self.offsets = dict(offsets)
        self._consumer.assign([TopicPartition(self._topic, number, offset) for number, offset in offsets.items()])

    def wait(self, timeout_s: float) -> bool:
        """Return True as soon as a record can be taken, or False after the timeout."""
        deadline = time.monotonic() + timeout_s
        while not self._records:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            self.fetch(left_s)
        return True

    def fetch(self, timeout_s: float) -> None:
        """Wait for one message: a record, or the end of a partition. Raises OffsetUnavailable."""
        message = self._consumer.poll(timeout_s)
        if message is not None:
            self._add(message)

    def take(self, max_records: int) -> list[Fetched]:
        """Return the next records that are already here, without waiting. Raises OffsetUnavailable."""
        if self._records < max_records:
            # Timeout 0: with a timeout, `consume` waits until it has the full number.
            for message in self._consumer.consume(max_records - self._records, 0):
                self._add(message)
        taken: list[Fetched] = []
        while self._fetched and len(taken) < max_records:
            fetched = self._fetched.popleft()
            self._sought_for = None
            if fetched.record is None:
                self.offsets[fetched.partition] = fetched.offset
            else:
                self.offsets[fetched.partition] = fetched.offset + 1
                self._records -= 1
                taken.append(fetched)
        return taken

    def _add(self, message: Message) -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        number, offset = message.partition(), message.offset()
        if error is None:
            if number is not None and offset is not None:
                # A record without a value is not ours; skip it like the end of a partition.
                value = message.value()
                self._fetched.append(Fetched(number, offset if value is not None else offset + 1, value))
                self._records += value is not None
        elif error.code() == KafkaError._PARTITION_EOF:
            if number is not None and offset is not None:
                self._fetched.append(Fetched(number, offset, None))
        elif error.code() in (
            KafkaError._AUTO_OFFSET_RESET,
            KafkaError.OFFSET_OUT_OF_RANGE,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError.UNKNOWN_TOPIC_ID,
            KafkaError._UNKNOWN_TOPIC,
            KafkaError._UNKNOWN_PARTITION,
        ):
            raise OffsetUnavailable
        # The client retries after all other errors, such as a lost broker; callers have their own deadline.

    def close(self) -> None:
        """Close the consumer and its connections."""
        self._consumer.close()
