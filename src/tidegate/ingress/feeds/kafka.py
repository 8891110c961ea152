"""Feeds a raw stream from a Kafka topic, each record once.

The feed does not use the offsets of a consumer group. It resumes from what the raw stream holds (`resume_position`), so
no crash can happen between appending a record and committing its offset.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from threading import Event

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from tidegate.errors import SourceError
from tidegate.ingress.connections import KafkaConnection
from tidegate.ingress.feeds.feed import FeedRequest, Report
from tidegate.ingress.feeds.payloads import PayloadDecoder, with_numbers
from tidegate.ingress.feeds.resume_position import SAVE_INTERVAL_S, ResumePosition
from tidegate.ingress.raw_streams import Input, RawStreamWriter
from tidegate.logs.clock import Clock, SystemClock
from tidegate.services.definitions import Kafka

MAX_BATCH_RECORDS = 2_000
REQUEST_TIMEOUT_S = 10.0
"""Timeout for questions about a topic: its partitions and their offsets."""
PARTITION_POLL_INTERVAL_S = 30.0
"""How often the feed looks for new partitions of the topic."""
POLL_TIMEOUT_S = 0.1
"""How often an idle feed checks `stop`."""

_log = logging.getLogger(__name__)


def make_feed(request: FeedRequest) -> KafkaFeed:
    """Build the feed of a stream with a Kafka source."""
    source, context, connection = request.stream.source, request.context, None
    assert isinstance(source, Kafka)
    if source.connection is not None:
        connection = context.resources.connection(source.connection, KafkaConnection)
    else:
        request.need_operator()
    return KafkaFeed(source, request.writer, context.state, context.clock, request.report, connection)


class KafkaFeed:
    """Appends the records of a topic.

    The id of an event is `topic:partition:offset`, and `topic:partition/2:offset` that of the second event of a record.
    """

    def __init__(
        self,
        source: Kafka,
        writer: RawStreamWriter,
        state: Path | None = None,
        clock: Clock | None = None,
        report: Report = _log.warning,
        connection: KafkaConnection | None = None,
    ) -> None:
        """`connection` is the one that the source names; None: the source states its brokers itself."""
        if not source.topic:
            raise SourceError("topic: expected the name of a topic, not ''")
        self._topic, self._writer, self._clock, self._report = source.topic, writer, clock or SystemClock(), report
        self._connection = connection or KafkaConnection(source.brokers)
        self._decoder = PayloadDecoder(writer.stream.schema, source, source.format)
        self._has_one_event = source.format == "json"
        self._position = ResumePosition(writer, f"{self._connection.brokers}/{source.topic}", state)

    def run(self, stop: Event) -> None:
        """Append until `stop` is set. Waits for brokers that are away for a time; raises SourceError otherwise."""
        self._next_offsets: dict[str, int] = self._position.load()
        self._initial_ends: dict[str, int] = {}
        self._refusal: KafkaError | None = None
        consumer = Consumer(self._settings(), logger=_log)
        try:
            self._consume(consumer, stop)
        except KafkaException as exc:
            consumer.poll(0)  # calls `error_cb` with errors that have arrived meanwhile
            raise SourceError(f"Kafka at {self._connection.brokers}: {self._refusal or exc.args[0]}") from exc
        finally:
            consumer.close()

    def _settings(self) -> dict[str, object]:
        return {
            "bootstrap.servers": self._connection.brokers,
            **self._connection.security.settings(),
            "group.id": f"tidegate-{self._writer.stream.name}",  # required by the client, and not used
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "error_cb": self._on_error,
        }

    def _on_error(self, error: KafkaError) -> None:
        """Store why a broker refuses the connection: requests only fail with "transport failure"."""
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._refusal = error
        self._report(f"Kafka at {self._connection.brokers}: {error}")

    def _consume(self, consumer: Consumer, stop: Event) -> None:
        last_assign_s = last_save_s = -math.inf
        while not stop.is_set():
            now_s = self._clock.monotonic()
            if now_s - last_assign_s >= PARTITION_POLL_INTERVAL_S:
                self._assign_new_partitions(consumer)
                last_assign_s = now_s
            first = consumer.poll(POLL_TIMEOUT_S)
            if first is not None:
                # `consume` alone would wait until a whole batch is there.
                self._append([first, *consumer.consume(MAX_BATCH_RECORDS - 1, timeout=0)])
            if self._position.stored.remaining and self._is_past_initial_ends():
                self._position.clear_stored()
            if now_s - last_save_s >= SAVE_INTERVAL_S:
                self._position.save(self._next_offsets)
                last_save_s = now_s
        self._position.save(self._next_offsets)

    def _is_past_initial_ends(self) -> bool:
        """True if all records that the topic had at the start have been read."""
        return all(self._next_offsets.get(partition, 0) >= end for partition, end in self._initial_ends.items())

    def _assign_new_partitions(self, consumer: Consumer) -> None:
        topic = self._topic
        metadata = consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        if metadata.error is not None:
            raise SourceError(f"topic {topic!r}: {metadata.error}")
        added = [partition for partition in metadata.partitions if str(partition) not in self._initial_ends]
        assignments = [TopicPartition(topic, partition, self._start_offset(consumer, partition)) for partition in added]
        if assignments:
            consumer.incremental_assign(assignments)

    def _start_offset(self, consumer: Consumer, partition: int) -> int:
        topic, name = self._topic, str(partition)
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=REQUEST_TIMEOUT_S)
        self._initial_ends[name] = high
        start = self._next_offsets.get(name)
        if start is None and self._has_one_event:  # otherwise some events of an earlier record may be missing
            start = self._position.stored.first_missing(f"{topic}:{name}")
        if start is None:
            return OFFSET_BEGINNING
        if start > high:
            raise SourceError(
                f"topic {topic!r} ends at offset {high} of partition {name}, but {start} were read: the topic was "
                "created again, or lost records; delete the raw stream to read the topic from its start"
            )
        if start < low:
            self._report(f"topic {topic!r}, partition {name}: offsets {start} to {low - 1} had expired unread")
        return max(start, low)

    def _append(self, messages: list[Message]) -> None:
        decoded = []
        next_offsets: dict[str, int] = {}
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None  # noqa: PT018 - for the types
            next_offsets[str(partition)] = offset + 1
            events = self._decoder.decode(message.value() or b"")
            decoded += with_numbers(events, f"{message.topic()}:{partition}", offset)
        inputs = self._position.without_stored(Input(event.raw, id_) for event, id_ in decoded if event.reason is None)
        if inputs:
            self._writer.append_inputs(inputs)
        reasons = {id_: event.reason for event, id_ in decoded if event.reason is not None}
        refused = self._position.without_stored(Input(event.raw, id_) for event, id_ in decoded if id_ in reasons)
        self._writer.refuse([self._writer.refusal(raw, reasons[id_] or "", id_) for raw, id_ in refused if id_])
        self._next_offsets.update(next_offsets)
