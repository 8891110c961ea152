"""Push delivery to MQTT: an event is a message with QoS 1. At least once; the payload has the id of the event."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any

from tidegate.delivery.push.transport import Outcome, PendingEvent
from tidegate.errors import MissingDependency, SourceError, TidegateError
from tidegate.gateway.transports.topics import TIMEOUT_S, OpenConnection, TopicTransport
from tidegate.ingress.connections import MqttConnection
from tidegate.subscriptions import SubscriptionRecord
from tidegate.subscriptions.topics import MqttTopic, TopicTarget

if TYPE_CHECKING:
    from tidegate.gateway.transports.push import TransportRequest

_REFUSALS = (149, 153)
"""Reason codes of a message that the broker will never take: too large, or of a wrong format."""
_KEEPALIVE_S = 30


def make_transport(request: TransportRequest) -> MqttTransport:
    """Build the transport of MQTT topics; see `push.TransportFactory`."""
    return MqttTransport(request.connections)


class MqttTransport(TopicTransport[MqttConnection]):
    """Has one client per connection. After a failure the next attempt connects again."""

    def __init__(self, connections: Mapping[str, OpenConnection[Any]]) -> None:
        super().__init__(MqttConnection, connections)
        self._publishers: dict[str, _Publisher] = {}
        self._lock = Lock()

    def check(self, name: str, connection: MqttConnection, target: TopicTarget) -> None:  # noqa: ARG002
        """Raise SourceError if the broker can't be reached or refuses us. A topic needs no creation."""
        self._publisher(name, connection)

    def deliver(
        self, name: str, connection: MqttConnection, subscription: SubscriptionRecord, events: Sequence[PendingEvent]
    ) -> Outcome:
        """Publish messages, and wait until the broker has confirmed them."""
        target = subscription.push_target
        assert isinstance(target, MqttTopic)
        try:
            publisher = self._publisher(name, connection)
        except TidegateError as error:
            return Outcome("failed", str(error))
        kind = "application/json" if subscription.format == "plain" else "application/cloudevents+json"
        outcome = publisher.publish(target, [event.data for event in events], kind)
        if outcome.kind == "failed":
            with self._lock:
                if self._publishers.get(name) is publisher:
                    del self._publishers[name]
            publisher.close()
        return outcome

    def _publisher(self, name: str, connection: MqttConnection) -> _Publisher:
        with self._lock:
            publisher = self._publishers.get(name)
            if publisher is None:
                publisher = self._publishers[name] = _Publisher(connection)
        try:
            publisher.connect()
        except TidegateError:
            with self._lock:
                if self._publishers.get(name) is publisher:
                    del self._publishers[name]
            publisher.close()
            raise
        return publisher

    def disconnect(self) -> None:
        """Close all connections. Messages that are not confirmed are sent again after the next start."""
        with self._lock:
            publishers, self._publishers = self._publishers, {}
        for publisher in publishers.values():
            publisher.close()


class _Publisher:
    """One connection to a broker, for several threads."""

    def __init__(self, connection: MqttConnection) -> None:
        self._connection = connection
        self._client: Any = None
        self._is_v5 = True
        self._answers: list[tuple[int, str]] = []
        """Reason code and text of the broker's answer to our connection; empty: there is none yet."""
        self._is_lost = False
        self._confirmed: dict[int, tuple[int, str]] = {}
        """Reason code and text of each message that the broker has answered, by its number."""
        self._changed = Condition()
        self._connecting = Lock()

    def connect(self) -> None:
        """Connect unless that is done. Raises SourceError or MissingDependency."""
        with self._connecting:
            if self._client is not None:
                return
            try:
                from paho.mqtt.enums import MQTTProtocolVersion

                from tidegate.ingress.feeds.mqtt import UNSUPPORTED_VERSION
            except ModuleNotFoundError as error:
                raise MissingDependency("paho-mqtt", "mqtt") from error
            code, text = self._open(MQTTProtocolVersion.MQTTv5)
            if code == UNSUPPORTED_VERSION:
                self._is_v5 = False
                code, text = self._open(MQTTProtocolVersion.MQTTv311)
            if code:
                raise SourceError(f"the MQTT broker refuses us: {text}")

    def _open(self, version: Any) -> tuple[int, str]:
        from tidegate.ingress.feeds.mqtt import broker_address, new_client

        connection = self._connection
        host, port = broker_address(connection.broker, 1883 if connection.tls is None else 8883)
        client = new_client(connection, f"tidegate-push-{secrets.token_hex(8)}", version, keeps_session=False)
        client.on_connect, client.on_publish, client.on_disconnect = self._on_connect, self._on_publish, self._on_lost
        client.max_inflight_messages_set(1_000)
        self._answers = []
        try:
            client.connect(host, port, _KEEPALIVE_S)
        except OSError as error:
            raise SourceError(f"can't reach the MQTT broker {host}:{port}: {error}") from error
        client.loop_start()
        with self._changed:
            self._changed.wait_for(lambda: bool(self._answers), TIMEOUT_S)
            answer = self._answers.pop() if self._answers else None
        if answer is None or answer[0]:
            client.disconnect()
            client.loop_stop()
        else:
            self._client, self._is_lost = client, not client.is_connected()
        if answer is None:
            raise SourceError(f"the MQTT broker {host}:{port} does not answer")
        return answer

    def publish(self, target: MqttTopic, payloads: Sequence[bytes], content_type: str) -> Outcome:
        """Publish messages, and wait for all answers."""
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = None
        if self._is_v5:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.ContentType = content_type
        numbers: list[int] = []
        if self._is_lost:
            return Outcome("failed", "the MQTT broker is lost")
        try:
            for payload in payloads:
                sent = self._client.publish(target.topic, payload, 1, target.retain, properties)
                if sent.rc:
                    return Outcome("failed", "the MQTT broker is lost")
                numbers.append(sent.mid)
        except (ValueError, RuntimeError) as error:
            return Outcome("failed", f"MQTT: {error}")
        with self._changed:
            is_answered = self._changed.wait_for(
                lambda: self._is_lost or all(number in self._confirmed for number in numbers), TIMEOUT_S
            )
            answers = [self._confirmed.pop(number, None) for number in numbers]
        if None in answers:
            return Outcome("failed", "the MQTT broker is lost" if is_answered else "no answer in time")
        failures = [answer for answer in answers if answer is not None and answer[0] >= 128]
        if not failures:
            return Outcome("taken")
        code, text = failures[0]
        return Outcome("refused" if code in _REFUSALS else "failed", f"the MQTT broker refuses a message: {text}")

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()

    def _on_connect(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        with self._changed:
            self._answers = [((reason.value if reason.is_failure else 0), str(reason))]
            self._changed.notify_all()

    def _on_publish(self, _client: Any, _data: Any, number: int, reason: Any, _properties: Any) -> None:
        with self._changed:
            self._confirmed[number] = reason.value, str(reason)
            self._changed.notify_all()

    def _on_lost(self, client: Any, *_: Any) -> None:
        with self._changed:
            self._is_lost = self._is_lost or client is self._client
            self._changed.notify_all()
