"""MQTT as a raw stream: a message is acknowledged when it is in the log, not before.

At least once: the broker keeps a session for the feed, and sends again what was
not acknowledged. A message whose publisher gave an `_id` can be told apart then.
Driven by hand (no thread of paho's), so that messages come in batches, and a log
that is slow slows the broker, not our memory.
"""

from __future__ import annotations

import json
import logging
import selectors
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from socket import IPPROTO_TCP, TCP_NODELAY, socket
from ssl import SSLSocket
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import orjson
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tidegate.errors import SourceError
from tidegate.logs.intake import Input, Intake
from tidegate.logs.kafka_security import Tls
from tidegate.pipelines.resources import MqttConnection
from tidegate.services.definitions import Mqtt

UNACKNOWLEDGED = 1_000
"""How many messages the broker sends ahead of their acknowledgement; also the largest batch."""
SESSION_S = 7 * 24 * 3600
"""How long the broker keeps what comes while the feed is away."""
KEEPALIVE_S = 30
CONNECT_S = 10.0
TURN_S = 0.1
"""How often a quiet feed looks whether it should stop."""

_UNSUPPORTED_VERSION = 132

_log = logging.getLogger(__name__)


class MqttFeed:
    """Appends the messages of a topic, which may have wildcards: a JSON object each, or an array of objects.

    The topic of a message becomes its attribute `topic` where the schema has one.
    """

    def __init__(
        self,
        source: Mqtt,
        intake: Intake,
        env: Mapping[str, str] | None = None,
        report: Callable[[str], None] = _log.warning,
        connection: MqttConnection | None = None,
    ) -> None:
        """`connection` is the one that the source names; None: the source says itself which broker it is."""
        self._topic, self._intake, self._report = _checked(source.topic), intake, report
        self._connection = connection or _own_connection(source, env or {})
        tls = self._connection.tls
        self.host, self.port = _address(self._connection.broker, 1883 if tls is None else 8883)
        self._version = MQTTProtocolVersion.MQTTv5
        self._names_topic = intake.stream.schema.root.get("topic") is not None

    @property
    def client_id(self) -> str:
        """Who we are to the broker: the same after a restart, another for another log, stream or topic."""
        name = self._intake.stream.name
        generation = self._intake.log.begin(name).generation
        return f"tidegate-{name}-{generation}-{zlib.crc32(self._topic.encode()):08x}"

    def run(self, stop: Event) -> None:
        """Append until stopped; a broker that can't be reached, or is lost, is an error."""
        session = _Session(self._client(), self._topic)
        try:
            session.connect(self.host, self.port, stop)
        except _OldBrokerError:
            self._report(f"{self.host}:{self.port} speaks no MQTT 5; with 3.1.1 it sends ahead as it is set to")
            self._version = MQTTProtocolVersion.MQTTv311
            session = _Session(self._client(), self._topic)
            session.connect(self.host, self.port, stop)
        try:
            while not stop.is_set():
                self._keep(session, session.turn())
        finally:
            session.close()

    def _keep(self, session: _Session, messages: list[paho.MQTTMessage]) -> None:
        inputs = [each for message in messages for each in self._inputs(message)]
        if inputs:
            self._intake.take(inputs)
        session.acknowledge(messages)

    def _inputs(self, message: paho.MQTTMessage) -> list[Input]:
        raw = bytes(message.payload)
        items = [raw]
        if raw.lstrip()[:1] == b"[":
            try:
                orjson.loads(raw)
                items = [json.dumps(item, ensure_ascii=False).encode() for item in json.loads(raw)]
            except ValueError:
                pass  # the intake will say why
        if self._names_topic:
            items = [_with_topic(item, message.topic) for item in items]
        return [Input(item) for item in items]

    def _client(self) -> paho.Client:
        old = self._version != MQTTProtocolVersion.MQTTv5
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            self.client_id,
            protocol=self._version,
            manual_ack=True,
            reconnect_on_failure=False,
            clean_session=False if old else None,
        )
        client.connect_timeout = CONNECT_S
        connection = self._connection
        if connection.username is not None:
            password = None if connection.password is None else connection.password.reveal()
            client.username_pw_set(connection.username, password)
        if connection.tls is not None:
            _use_tls(client, connection.tls)
        return client


@dataclass(frozen=True, slots=True)
class _Password:
    """A password that `password_env` names."""

    value: str = field(repr=False)

    def reveal(self) -> str:
        return self.value


def _own_connection(source: Mqtt, env: Mapping[str, str]) -> MqttConnection:
    if source.password_env is None:
        return MqttConnection(source.broker, source.username)
    password = env.get(source.password_env)
    if password is None:
        raise SourceError(f"password_env: the environment has no {source.password_env}")
    return MqttConnection(source.broker, source.username, _Password(password))


def _use_tls(client: paho.Client, tls: Tls) -> None:
    """Encrypt, check the broker's certificate and name, and show our own certificate if there is one."""
    try:
        client.tls_set(ca_certs=tls.ca, certfile=tls.cert, keyfile=tls.key)
    except (OSError, ValueError) as exc:  # SSL's errors are OSErrors
        files = ", ".join(each for each in (tls.ca, tls.cert, tls.key) if each is not None)
        raise SourceError(f"can't use the certificates of the MQTT connection ({files}): {exc}") from exc


class _OldBrokerError(Exception):
    """The broker does not know MQTT 5."""


class _Session:
    """One connection, and what has come by it."""

    def __init__(self, client: paho.Client, topic: str) -> None:
        self._client, self._topic = client, topic
        self._is_v5 = client.protocol == MQTTProtocolVersion.MQTTv5
        self._messages: list[paho.MQTTMessage] = []
        self._ready = False
        self._refused: Exception | None = None
        self._selector = selectors.DefaultSelector()
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message

    def connect(self, host: str, port: int, stop: Event) -> None:
        """Connect and subscribe."""
        try:
            if self._is_v5:
                properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
                properties.SessionExpiryInterval = SESSION_S
                properties.ReceiveMaximum = UNACKNOWLEDGED
                self._client.connect(host, port, KEEPALIVE_S, clean_start=False, properties=properties)
            else:
                self._client.connect(host, port, KEEPALIVE_S)
        except OSError as exc:
            raise SourceError(f"can't reach the MQTT broker {host}:{port}: {exc}") from exc
        connection = self._client.socket()
        if isinstance(connection, socket):
            connection.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)  # acknowledgements are small, and awaited
            self._selector.register(connection, selectors.EVENT_READ)
        deadline = time.monotonic() + CONNECT_S
        try:
            while not self._ready and not stop.is_set():
                self._turn()
                if time.monotonic() > deadline:
                    raise SourceError(f"the MQTT broker {host}:{port} does not answer")
        except BaseException:
            self.close()
            raise

    def turn(self) -> list[paho.MQTTMessage]:
        """What has come, after a moment at most."""
        if not self._messages:  # some may have come with the answer to our subscription
            self._turn()
        found, self._messages = self._messages, []
        return found

    def acknowledge(self, messages: list[paho.MQTTMessage]) -> None:
        """Tell the broker that messages are kept."""
        for message in messages:
            if message.qos:
                self._client.ack(message.mid, message.qos)

    def close(self) -> None:
        """Leave; the broker keeps the session."""
        self._selector.close()
        self._client.disconnect()

    def _turn(self) -> None:
        client, limit = self._client, len(self._messages) + UNACKNOWLEDGED
        timeout_s = TURN_S
        while (self._has_decrypted() or self._selector.select(timeout_s)) and len(self._messages) < limit:
            self._hold(client.loop_read())
            timeout_s = 0.0
        if client.want_write():
            self._hold(client.loop_write())
        self._hold(client.loop_misc())

    def _has_decrypted(self) -> bool:
        """Whether TLS holds bytes that it has taken from the socket already: a selector does not see them."""
        connection = self._client.socket()
        return isinstance(connection, SSLSocket) and connection.pending() > 0

    def _hold(self, code: MQTTErrorCode) -> None:
        """Raise what went wrong. Messages that came and were not kept come again, unless sent with QoS 0."""
        if self._refused is not None:
            raise self._refused
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS or self._client.socket() is None:
            raise SourceError(f"the MQTT broker is lost: {paho.error_string(code)}")

    def _on_connect(self, _client: Any, _data: Any, flags: Any, reason: ReasonCode, _properties: Any) -> None:
        if reason.value == _UNSUPPORTED_VERSION and self._is_v5:
            self._refused = _OldBrokerError()
        elif reason.is_failure:
            self._refused = SourceError(f"the MQTT broker refuses us: {reason}")
        elif self._is_v5:
            # Retained messages with a new subscription only: else every reconnection would bring them again.
            self._client.subscribe(self._topic, options=SubscribeOptions(qos=1, retainHandling=1))
        elif flags.session_present:
            self._ready = True
        else:
            self._client.subscribe(self._topic, qos=1)

    def _on_subscribe(self, _client: Any, _data: Any, _mid: int, reasons: list[ReasonCode], _properties: Any) -> None:
        failed = [str(reason) for reason in reasons if reason.is_failure]
        if failed:
            self._refused = SourceError(f"the MQTT broker refuses the topic {self._topic!r}: {failed[0]}")
        self._ready = True

    def _on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        self._messages.append(message)


def _with_topic(raw: bytes, topic: str) -> bytes:
    try:
        event = orjson.loads(raw)
    except ValueError:
        return raw
    if not isinstance(event, dict) or "topic" in event:
        return raw
    front = b'{"topic":' + orjson.dumps(topic)
    return front + b"," + raw.strip()[1:] if event else front + b"}"


def _checked(topic: str) -> str:
    """A topic that a broker takes: `#` for the rest, at the end; `+` for one level."""
    levels = topic.split("/")
    hash_inside = any("#" in level for level in levels[:-1]) or ("#" in levels[-1] and levels[-1] != "#")
    plus_inside = any("+" in level and level != "+" for level in levels)
    if not topic or "\0" in topic or len(topic.encode()) > 65_535 or hash_inside or plus_inside:
        raise SourceError(f"topic: expected one such as fleet/+/gps or fleet/#, not {topic!r:.80}")
    return topic


def _address(broker: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{broker}")
        if parts.hostname and not parts.path and "@" not in broker:
            return parts.hostname, parts.port or default_port
    except ValueError:
        pass
    shown = f"not {broker!r}" if "@" not in broker else "without a user and a password before it"
    raise SourceError(f"broker: expected host or host:port, {shown}")
