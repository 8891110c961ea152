"""A producer with a thread that hears what became of what was sent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer


class SenderClosed(Exception):  # noqa: N818 - no error: whoever sends takes another
    """The producer was let go."""


class Sent:
    """Records on their way: `done` is set when the fate of all is known."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.done = Event()
        self.end = 0
        """Behind the last of them."""
        self.error: KafkaError | None = None
        """What became of the first that was refused."""

    def give_up(self) -> None:
        """Nothing more will be heard of some of them."""
        self._left = -1
        self.done.set()

    @property
    def arrived(self) -> bool:
        """Say whether all have."""
        return self._left == 0 and self.error is None

    def heard(self, error: KafkaError | None, message: Message) -> None:
        """One record has arrived, or has not."""
        if error is not None:
            self.error = self.error or error
        else:
            self.end = max(self.end, (message.offset() or 0) + 1)
        if self._left > 0:
            self._left -= 1
            if not self._left:
                self.done.set()


class Sender:
    """Sends what any thread gives it."""

    def __init__(self, producer: Producer, timeout_s: float) -> None:
        self._producer, self._timeout_s = producer, timeout_s
        self._lock = Lock()
        self._closed = False
        self._stopping = Event()
        self._listener = Thread(target=self._listen, name="tidegate-kafka-sender", daemon=True)
        self._listener.start()

    def send(self, topic: str, number: int | None, key: bytes | None, records: Sequence[bytes]) -> Sent:
        """Hand records to the producer, in order; to a partition by its number, else by a key."""
        sent = Sent(len(records))
        partition = -1 if number is None else number  # -1: by the key
        until = time.monotonic() + self._timeout_s
        with self._lock:
            if self._closed:
                raise SenderClosed
            for record in records:
                while not self._produced(topic, record, key, partition, sent):
                    if time.monotonic() > until:
                        sent.give_up()
                        return sent
        return sent

    def _produced(self, topic: str, record: bytes, key: bytes | None, partition: int, sent: Sent) -> bool:
        """Hand one record to the producer; false where it must be tried again."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            self._producer.produce(topic, record, key, partition, on_delivery=sent.heard)
        except BufferError:  # more has been sent than the brokers take
            time.sleep(0.005)
            return False
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                raise
            # The partition is there: it was asked for. The producer has not heard of it yet.
            self._producer.list_topics(topic, timeout=self._timeout_s)
            time.sleep(0.005)
            return False
        return True

    def _listen(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(0.1)

    def close(self) -> None:
        """Wait for what is on its way."""
        with self._lock:
            self._closed = True
        # First the thread: what is heard is counted by one at a time.
        self._stopping.set()
        self._listener.join()
        self._producer.flush(self._timeout_s)
