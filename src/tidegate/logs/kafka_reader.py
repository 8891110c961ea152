"""A consumer that stands somewhere in a topic: what it has fetched, and how far it was read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message


class Misplaced(Exception):  # noqa: N818 - no error: whoever reads looks again where the topic begins and ends
    """The topic has nothing where the reader stands: it has expired, or the topic is another."""


class Fetched(NamedTuple):
    """A record, or where the end of a partition is."""

    partition: int
    offset: int
    record: bytes | None
    """None: the end."""


class Reader:
    """Reads all partitions of a topic, each from an offset on."""

    def __init__(self, consumer: Consumer, topic: str, generation: str) -> None:
        self._consumer, self._topic, self.generation = consumer, topic, generation
        self.offsets: dict[int, int] = {}
        """Behind the last record of each partition that was taken."""
        self._placed_for: Mapping[int, int] | None = None
        self._fetched: deque[Fetched] = deque()
        self._records = 0
        """How many of those fetched are records."""

    def is_at(self, wanted: Mapping[int, int]) -> bool:
        """Say whether it stands where it is wanted, or was placed for that and has not moved."""
        return wanted in (self.offsets, self._placed_for)

    def go(self, offsets: Mapping[int, int], wanted: Mapping[int, int] | None = None) -> None:
        """Stand elsewhere; what was wanted may name fewer partitions."""
        from confluent_kafka import TopicPartition

        self._placed_for = wanted
        self._fetched.clear()
        self._records = 0
        self.offsets = dict(offsets)
        self._consumer.assign([TopicPartition(self._topic, number, at) for number, at in offsets.items()])

    def wait(self, timeout_s: float) -> bool:
        """Return as soon as a record can be taken: true; else false."""
        until = time.monotonic() + timeout_s
        while not self._records:
            left = until - time.monotonic()
            if left <= 0:
                return False
            self.fetch(left)
        return True

    def fetch(self, timeout_s: float) -> None:
        """Wait for one thing to come: a record, or the end of a partition."""
        message = self._consumer.poll(timeout_s)
        if message is not None:
            self._add(message)

    def take(self, most: int) -> list[Fetched]:
        """The next records of those that are here, at most so many."""
        if self._records < most:
            # With no time to wait: else it waits for as many as it was asked for.
            for message in self._consumer.consume(most - self._records, 0):
                self._add(message)
        taken: list[Fetched] = []
        while self._fetched and len(taken) < most:
            each = self._fetched.popleft()
            self._placed_for = None
            if each.record is None:
                self.offsets[each.partition] = each.offset
            else:
                self.offsets[each.partition] = each.offset + 1
                self._records -= 1
                taken.append(each)
        return taken

    def _add(self, message: Message) -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        number, offset = message.partition(), message.offset()
        if error is None:
            if number is not None and offset is not None:
                # A record without a value is none of ours; it is passed by like an end.
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
            raise Misplaced
        # All else, a broker that is away above all, the client mends by trying again; whoever waits has a deadline.

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()
