"""A Kafka topic as a raw stream, each record once.

Positions are ours, not a consumer group's: what the raw stream holds decides
where to go on (`resume.py`), so that no crash lies between the two.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from threading import Event

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from tidegate.errors import SourceError
from tidegate.logs.clock import Clock, SystemClock
from tidegate.logs.intake import Input, Intake
from tidegate.pipelines.resources import KafkaConnection
from tidegate.pipelines.sources.resume import EVERY_S, Resume
from tidegate.services.definitions import Kafka

BATCH = 2_000
ANSWER_S = 10.0
"""How long a broker may take to tell what a topic has."""
LOOK_S = 30.0
"""How often the topic is looked at for new partitions."""
TURN_S = 0.1
"""How often a quiet feed looks whether it should stop."""

_log = logging.getLogger(__name__)


class KafkaFeed:
    """Appends the records of a topic; an id is `topic:partition:offset`."""

    def __init__(
        self,
        source: Kafka,
        intake: Intake,
        state: Path | None = None,
        clock: Clock | None = None,
        report: Callable[[str], None] = _log.warning,
        connection: KafkaConnection | None = None,
    ) -> None:
        if not source.topic:
            raise SourceError("topic: expected the name of a topic, not ''")
        self._source, self._intake, self._clock, self._report = source, intake, clock or SystemClock(), report
        self._connection = connection or KafkaConnection(source.brokers)
        self._resume = Resume(intake, f"{self._connection.brokers}/{source.topic}", state)

    def run(self, stop: Event) -> None:
        """Append until stopped; brokers that come back are found again, all else is an error."""
        self._position: dict[str, int] = self._resume.load()
        self._ends: dict[str, int] = {}
        self._refusal: KafkaError | None = None
        consumer = Consumer(self._settings(), logger=_log)
        try:
            self._follow(consumer, stop)
        except KafkaException as exc:
            consumer.poll(0)  # serves the errors that were reported meanwhile
            raise SourceError(f"Kafka at {self._connection.brokers}: {self._refusal or exc.args[0]}") from exc
        finally:
            consumer.close()

    def _settings(self) -> dict[str, object]:
        return {
            "bootstrap.servers": self._connection.brokers,
            **self._connection.security.settings(),
            "group.id": f"tidegate-{self._intake.stream.name}",  # asked for, and not used
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "error_cb": self._on_error,
        }

    def _on_error(self, error: KafkaError) -> None:
        """Note why a broker does not let us in: what is asked of it only fails with "transport failure"."""
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._refusal = error
        self._report(f"Kafka at {self._connection.brokers}: {error}")

    def _follow(self, consumer: Consumer, stop: Event) -> None:
        looked = saved = -math.inf
        while not stop.is_set():
            now = self._clock.monotonic()
            if now - looked >= LOOK_S:
                self._assign(consumer)
                looked = now
            first = consumer.poll(TURN_S)
            if first is not None:
                # What is there already; `consume` alone would wait for a whole batch.
                self._keep([first, *consumer.consume(BATCH - 1, timeout=0)])
            if self._resume.seen.left and all(self._position.get(p, 0) >= end for p, end in self._ends.items()):
                self._resume.caught_up()
            if now - saved >= EVERY_S:
                self._resume.save(self._position)
                saved = now
        self._resume.save(self._position)

    def _assign(self, consumer: Consumer) -> None:
        """Read partitions that are not read yet, each from where the raw stream is."""
        topic = self._source.topic
        found = consumer.list_topics(topic, timeout=ANSWER_S).topics[topic]
        if found.error is not None:
            raise SourceError(f"topic {topic!r}: {found.error}")
        fresh = [partition for partition in found.partitions if str(partition) not in self._ends]
        places = [TopicPartition(topic, partition, self._start(consumer, partition)) for partition in fresh]
        if places:
            consumer.incremental_assign(places)

    def _start(self, consumer: Consumer, partition: int) -> int:
        topic, name = self._source.topic, str(partition)
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)
        self._ends[name] = high
        start = self._position.get(name, self._resume.seen.first_missing(f"{topic}:{name}"))
        if start is None:
            return OFFSET_BEGINNING
        if start > high:
            raise SourceError(
                f"topic {topic!r} ends at offset {high} of partition {name}, but {start} were read: it was made anew, "
                "or lost records; delete the raw stream to begin anew"
            )
        if start < low:
            self._report(f"topic {topic!r}, partition {name}: offsets {start} to {low - 1} had expired unread")
        return max(start, low)

    def _keep(self, messages: list[Message]) -> None:
        inputs = []
        ahead: dict[str, int] = {}
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None  # noqa: PT018 - for the types
            ahead[str(partition)] = offset + 1
            inputs.append(Input(message.value() or b"", f"{message.topic()}:{partition}:{offset}"))
        inputs = self._resume.fresh(inputs)
        if inputs:
            self._intake.take(inputs)
        self._position.update(ahead)
