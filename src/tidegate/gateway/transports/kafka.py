"""Push delivery to Kafka: an event is a record. At least once; each record has the id of its event as a header."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import orjson

from tidegate.delivery.push.transport import Outcome, PendingEvent
from tidegate.errors import MissingDependency, SourceError
from tidegate.gateway.transports.topics import TIMEOUT_S, OpenConnection, TopicTransport
from tidegate.ingress.connections import KafkaConnection
from tidegate.subscriptions import SubscriptionRecord
from tidegate.subscriptions.topics import KafkaTopic, TopicTarget

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from tidegate.gateway.transports.push import TransportRequest

_REFUSALS = ("MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_RECORD")
"""Errors of a record that the cluster will never take."""

_log = logging.getLogger(__name__)


def make_transport(request: TransportRequest) -> KafkaTransport:
    """Build the transport of Kafka topics; see `push.TransportFactory`."""
    return KafkaTransport(request.connections)


class KafkaTransport(TopicTransport[KafkaConnection]):
    """Has one idempotent producer per connection, so that a retry inside the client repeats no record."""

    def __init__(self, connections: Mapping[str, OpenConnection[Any]]) -> None:
        super().__init__(KafkaConnection, connections)
        self._producers: dict[str, Producer] = {}
        self._lock = Lock()

    def check(self, name: str, connection: KafkaConnection, target: TopicTarget) -> None:
        """Raise SourceError if the cluster can't be reached, or does not have the topic."""
        from confluent_kafka import KafkaException

        try:
            topic = self._producer(name, connection).list_topics(target.topic, timeout=TIMEOUT_S).topics[target.topic]
        except KafkaException as error:
            raise SourceError(f"the Kafka connection {name!r} does not answer: {error.args[0]}") from error
        if topic.error is not None:
            raise SourceError(f"topic {target.topic!r} of {name!r}: {topic.error}")

    def deliver(
        self, name: str, connection: KafkaConnection, subscription: SubscriptionRecord, events: Sequence[PendingEvent]
    ) -> Outcome:
        """Produce records, and wait until all replicas in sync have them."""
        from confluent_kafka import KafkaException

        target = subscription.push_target
        assert isinstance(target, KafkaTopic)
        errors: list[Any] = []
        confirmed: list[None] = []

        def on_delivery(error: Any, _: Any) -> None:
            errors.append(error) if error is not None else confirmed.append(None)

        try:
            producer = self._producer(name, connection)
            for event in events:
                id_, key = _id_and_key(event.data, target.key)
                kind = b"application/json" if subscription.format == "plain" else b"application/cloudevents+json"
                headers: dict[str, str | bytes | None] = {"content-type": kind}
                if id_ is not None:
                    headers["id"] = id_
                producer.produce(target.topic, event.data, key, headers=headers, on_delivery=on_delivery)
            deadline_s = time.monotonic() + 2 * TIMEOUT_S
            while len(errors) + len(confirmed) < len(events) and time.monotonic() < deadline_s:
                producer.poll(0.05)
        except BufferError:
            return Outcome("failed", f"too many records wait for {name!r}")
        except (KafkaException, MissingDependency) as error:
            return self._outcome(name, error.args[0])
        if errors:
            return self._outcome(name, errors[0])
        return Outcome("taken") if len(confirmed) == len(events) else Outcome("failed", "no answer in time")

    def _outcome(self, name: str, error: Any) -> Outcome:
        if hasattr(error, "fatal") and error.fatal():  # the producer is unusable: the next attempt makes a new one
            with self._lock:
                self._producers.pop(name, None)
        is_refused = hasattr(error, "name") and error.name() in _REFUSALS
        return Outcome("refused" if is_refused else "failed", f"Kafka: {error}")

    def _producer(self, name: str, connection: KafkaConnection) -> Producer:
        try:
            from confluent_kafka import Producer
        except ModuleNotFoundError as error:
            raise MissingDependency("confluent-kafka", "kafka") from error
        with self._lock:
            if name not in self._producers:
                settings = {
                    "bootstrap.servers": connection.brokers,
                    **connection.security.settings(),
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "message.timeout.ms": int(TIMEOUT_S * 1000),
                    "allow.auto.create.topics": False,
                }
                self._producers[name] = Producer(settings, logger=_log)
            return self._producers[name]

    def disconnect(self) -> None:
        """Drop all producers. Records that are not confirmed are sent again after the next start."""
        with self._lock:
            producers, self._producers = self._producers, {}
        for producer in producers.values():
            producer.flush(1.0)


def _id_and_key(data: bytes, key: str | None) -> tuple[bytes | None, bytes | None]:
    """Return id and key of an encoded event; an attribute that is not there or not shown is no key."""
    event = orjson.loads(data)
    is_envelope = "specversion" in event
    id_ = event.get("id" if is_envelope else "_id")
    value = None if key is None else (event["data"] if is_envelope else event).get(key)
    return (None if id_ is None else str(id_).encode()), (None if value is None else _text(value))


def _text(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else orjson.dumps(value)
