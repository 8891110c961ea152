"""The producer of a log, with a thread that receives delivery reports."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from tidegate.logs.kafka.cluster import POLL_INTERVAL_S, KafkaCluster, logger

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer


class SenderClosed(Exception):  # noqa: N818 - control flow: the caller takes another sender
    """The producer was closed by another thread."""


class Delivery:
    """The delivery reports of one append. Reports come in the thread of the sender."""

    def __init__(self, records: int) -> None:
        self._pending = records
        self.done = Event()
        """Set when all reports have come, or no more will."""
        self.end = 0
        """The offset after the last record."""
        self.error: KafkaError | None = None
        """The first error that was reported."""

    def give_up(self) -> None:
        """Set `done` although some records were not sent."""
        self._pending = -1
        self.done.set()

    @property
    def succeeded(self) -> bool:
        """True if all records were stored."""
        return self._pending == 0 and self.error is None

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Count one record as stored or failed; called by the producer."""
        if error is not None:
            self.error = self.error or error
        else:
            self.end = max(self.end, (message.offset() or 0) + 1)
        if self._pending > 0:
            self._pending -= 1
            if not self._pending:
                self.done.set()


class Sender:
    """Sends records to topics. Thread-safe; records of one call stay together and in order."""

    def __init__(self, producer: Producer, timeout_s: float) -> None:
        self._producer, self._timeout_s = producer, timeout_s
        self._lock = Lock()
        self._closed = False
        self._stopping = Event()
        self._poller = Thread(target=self._poll, name="tidegate-kafka-sender", daemon=True)
        self._poller.start()

    def send(self, topic: str, number: int | None, key: bytes | None, records: Sequence[bytes]) -> Delivery:
        """Queue records for a partition, given by its number or else by a key. Does not wait for the reports.

        Raises SenderClosed if the sender is closed, KafkaException if the producer refuses a record.
        """
        delivery = Delivery(len(records))
        partition = -1 if number is None else number  # -1: by the key
        deadline = time.monotonic() + self._timeout_s
        with self._lock:
            if self._closed:
                raise SenderClosed
            for record in records:
                while not self._queued(topic, record, key, partition, delivery):
                    if time.monotonic() > deadline:
                        delivery.give_up()
                        return delivery
        return delivery

    def _queued(self, topic: str, record: bytes, key: bytes | None, partition: int, delivery: Delivery) -> bool:
        """Queue one record; False if the caller must try again."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            self._producer.produce(topic, record, key, partition, on_delivery=delivery.report)
        except BufferError:  # the queue is full: the brokers are slower than we send
            time.sleep(POLL_INTERVAL_S)
            return False
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                raise
            # The partition exists: the caller has checked. The metadata of the producer is older.
            self._producer.list_topics(topic, timeout=self._timeout_s)
            time.sleep(POLL_INTERVAL_S)
            return False
        return True

    def _poll(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(0.1)

    def close(self) -> None:
        """Wait until all queued records are reported, at most for the timeout."""
        with self._lock:
            self._closed = True
        # The thread ends before `flush`, which reports too: `Delivery.report` is not thread-safe.
        self._stopping.set()
        self._poller.join()
        self._producer.flush(self._timeout_s)


class SenderSlot:
    """The current sender of a log: created when first needed, replaced after an error. Thread-safe."""

    def __init__(self, cluster: KafkaCluster, max_record_bytes: int) -> None:
        self._cluster, self._max_record_bytes = cluster, max_record_bytes
        self._lock = Lock()
        self._sender: Sender | None = None

    def send(
        self, topic: str, number: int | None, key: bytes | None, records: Sequence[bytes]
    ) -> tuple[Sender, Delivery]:
        """Queue records on the current sender; returns it, so that the caller can drop it after an error."""
        while True:
            sender = self._current()
            try:
                with self._cluster.translated_errors():
                    return sender, sender.send(topic, number, key, records)
            except SenderClosed:
                continue  # another thread has dropped it

    def drop(self, sender: Sender | None = None) -> None:
        """Close a sender, or the current one; the next append creates another."""
        with self._lock:
            if sender is None:
                sender, self._sender = self._sender, None
            elif self._sender is sender:
                self._sender = None
        if sender is not None:
            sender.close()

    def _current(self) -> Sender:
        from confluent_kafka import Producer

        with self._lock:
            if self._sender is None:
                settings: dict[str, Any] = {
                    **self._cluster.client_settings,
                    "enable.idempotence": True,
                    "acks": "all",
                    "linger.ms": 0,
                    "message.max.bytes": self._max_record_bytes + 48_000,
                    "message.timeout.ms": int(self._cluster.timeout_s * 1_000),
                    "partitioner": "murmur2_random",  # as in Java and Spark
                }
                self._sender = Sender(Producer(settings, logger=logger), self._cluster.timeout_s)
            return self._sender
