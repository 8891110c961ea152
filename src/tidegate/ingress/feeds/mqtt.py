"""Feeds a raw stream from MQTT topics. A message is acknowledged after it was appended to the log.

Delivery is at least once: the broker keeps a session for the feed, and sends messages without an acknowledgement again.
If publishers set `_id`, readers recognise such duplicates. The feed runs paho's network loop itself, without paho's
thread, so messages are appended in batches, and a slow log slows the broker down instead of filling our memory.
"""

from __future__ import annotations

import json
import logging
import secrets
import selectors
import time
import zlib
from collections.abc import Iterator, Mapping
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
from tidegate.ingress.connections import MqttConnection
from tidegate.ingress.feeds.feed import FeedRequest, Report
from tidegate.ingress.feeds.payloads import Decoded, PayloadDecoder
from tidegate.ingress.raw_streams import Input, RawStreamWriter
from tidegate.logs.kafka_security import Tls
from tidegate.services.definitions import Mqtt

MAX_UNACKNOWLEDGED = 1_000
"""Messages that the broker may send before it gets acknowledgements; also the largest batch."""
SESSION_EXPIRY_S = 7 * 24 * 3600
"""How long the broker keeps messages for a feed that is not connected."""
KEEPALIVE_S = 30
CONNECT_TIMEOUT_S = 10.0
POLL_TIMEOUT_S = 0.1
"""How often an idle feed checks `stop`."""

UNSUPPORTED_VERSION = 132

_log = logging.getLogger(__name__)


def make_feed(request: FeedRequest) -> MqttFeed:
    """Build the feed of a stream with an MQTT source."""
    source, context, connection = request.stream.source, request.context, None
    assert isinstance(source, Mqtt)
    if source.connection is not None:
        connection = context.resources.connection(source.connection, MqttConnection)
    else:
        request.need_operator()
    return MqttFeed(source, request.writer, context.env, request.report, connection)


class MqttFeed:
    """Appends the messages of a topic filter, which may have wildcards.

    A message is a JSON object or an array of them, or what the format of the source says.

    If the schema has an attribute `topic`, it is set to the topic of the message.
    """

    def __init__(
        self,
        source: Mqtt,
        writer: RawStreamWriter,
        env: Mapping[str, str] | None = None,
        report: Report = _log.warning,
        connection: MqttConnection | None = None,
    ) -> None:
        """`connection` is the one that the source names; None: the source states its broker itself."""
        self._topic, self._writer, self._report = _checked(source.topic), writer, report
        self._connection = connection or own_connection(source, env or {})
        tls = self._connection.tls
        self.host, self.port = broker_address(self._connection.broker, 1883 if tls is None else 8883)
        self._version = MQTTProtocolVersion.MQTTv5
        self._decoder = PayloadDecoder(writer.stream.schema, source, source.format)
        self._may_be_array = source.format == "json"
        self._names_topic = writer.stream.schema.root.get("topic") is not None

    @property
    def client_id(self) -> str:
        """The MQTT client id: stable across restarts, and different for each log, stream and topic."""
        name = self._writer.stream.name
        generation = self._writer.log.begin(name).generation
        return f"tidegate-{name}-{generation}-{zlib.crc32(self._topic.encode()):08x}"

    def run(self, stop: Event) -> None:
        """Append until `stop` is set. Raises SourceError if the broker can't be reached or the connection is lost."""
        session = _Session(self._client(), self._topic)
        try:
            session.connect(self.host, self.port, stop)
        except _OldBrokerError:
            self._report(
                f"{self.host}:{self.port} has no MQTT 5; with 3.1.1 its own settings limit unacknowledged messages"
            )
            self._version = MQTTProtocolVersion.MQTTv311
            session = _Session(self._client(), self._topic)
            session.connect(self.host, self.port, stop)
        try:
            while not stop.is_set():
                self._append(session, session.receive())
        finally:
            session.close()

    def _append(self, session: _Session, messages: list[paho.MQTTMessage]) -> None:
        decoded = [event for message in messages for event in self._events(message)]
        inputs = [Input(event.raw) for event in decoded if event.reason is None]
        if inputs:
            self._writer.append_inputs(inputs)
        self._writer.refuse([self._writer.refusal(raw, reason) for raw, reason in decoded if reason is not None])
        session.acknowledge(messages)

    def _events(self, message: paho.MQTTMessage) -> list[Decoded]:
        raw = bytes(message.payload)
        items = [raw]
        if self._may_be_array and raw.lstrip()[:1] == b"[":
            try:
                orjson.loads(raw)
                items = [json.dumps(item, ensure_ascii=False).encode() for item in json.loads(raw)]
            except ValueError:
                pass  # the writer quarantines it with the reason
        events = [event for item in items for event in self._decoder.decode(item)]
        if self._names_topic:
            return [
                Decoded(_with_topic(raw, message.topic)) if reason is None else Decoded(raw, reason)
                for raw, reason in events
            ]
        return events

    def _client(self) -> paho.Client:
        return new_client(self._connection, self.client_id, self._version, keeps_session=True)


def subscribe_once(topic: str, connection: MqttConnection, wait_s: float) -> Iterator[bytes]:
    """Yield the messages that arrive within `wait_s`; the broker keeps no session. Raises SourceError."""
    host, port = broker_address(connection.broker, 1883 if connection.tls is None else 8883)
    client_id = f"tidegate-init-{secrets.token_hex(8)}"
    stop, deadline_s = Event(), time.monotonic() + wait_s
    version = MQTTProtocolVersion.MQTTv5
    session = _Session(new_client(connection, client_id, version, keeps_session=False), _checked(topic), keep=False)
    try:
        session.connect(host, port, stop)
    except _OldBrokerError:
        version = MQTTProtocolVersion.MQTTv311
        session = _Session(new_client(connection, client_id, version, keeps_session=False), topic, keep=False)
        session.connect(host, port, stop)
    try:
        while time.monotonic() < deadline_s:
            messages = session.receive()
            yield from (bytes(message.payload) for message in messages if message.payload)
            session.acknowledge(messages)
    finally:
        session.close()


def new_client(
    connection: MqttConnection, client_id: str, version: MQTTProtocolVersion, *, keeps_session: bool
) -> paho.Client:
    """Return a client that is not connected yet. Raises SourceError if a TLS file can't be used."""
    is_v5 = version == MQTTProtocolVersion.MQTTv5
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id,
        protocol=version,
        manual_ack=True,
        reconnect_on_failure=False,
        clean_session=None if is_v5 else not keeps_session,
    )
    client.connect_timeout = CONNECT_TIMEOUT_S
    if connection.username is not None:
        password = None if connection.password is None else connection.password.reveal()
        client.username_pw_set(connection.username, password)
    if connection.tls is not None:
        _use_tls(client, connection.tls)
    return client


@dataclass(frozen=True, slots=True)
class _Password:
    """The value of the environment variable that `password_env` names."""

    value: str = field(repr=False)

    def reveal(self) -> str:
        return self.value


def own_connection(source: Mqtt, env: Mapping[str, str]) -> MqttConnection:
    """Return the connection that a source states itself. Raises SourceError if its password is not there."""
    if source.password_env is None:
        return MqttConnection(source.broker, source.username)
    password = env.get(source.password_env)
    if password is None:
        raise SourceError(f"password_env: the environment has no {source.password_env}")
    return MqttConnection(source.broker, source.username, _Password(password))


def _use_tls(client: paho.Client, tls: Tls) -> None:
    """Use TLS: verify the certificate and name of the broker, and present our own certificate if there is one."""
    try:
        client.tls_set(ca_certs=tls.ca, certfile=tls.cert, keyfile=tls.key)
    except (OSError, ValueError) as exc:  # ssl.SSLError is an OSError
        files = ", ".join(path for path in (tls.ca, tls.cert, tls.key) if path is not None)
        raise SourceError(f"can't use the certificates of the MQTT connection ({files}): {exc}") from exc


class _OldBrokerError(Exception):
    """The broker does not support MQTT 5."""


class _Session:
    """One connection to the broker, and the messages that it has received."""

    def __init__(self, client: paho.Client, topic: str, *, keep: bool = True) -> None:
        """`keep`: the broker keeps the session when it is closed."""
        self._client, self._topic, self._keep = client, topic, keep
        self._is_v5 = client.protocol == MQTTProtocolVersion.MQTTv5
        self._messages: list[paho.MQTTMessage] = []
        self._is_subscribed = False
        self._error: Exception | None = None
        self._selector = selectors.DefaultSelector()
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message

    def connect(self, host: str, port: int, stop: Event) -> None:
        """Connect and subscribe. Raises SourceError, or _OldBrokerError if the broker has no MQTT 5."""
        try:
            if self._is_v5:
                properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
                properties.SessionExpiryInterval = SESSION_EXPIRY_S if self._keep else 0
                properties.ReceiveMaximum = MAX_UNACKNOWLEDGED
                self._client.connect(host, port, KEEPALIVE_S, clean_start=not self._keep, properties=properties)
            else:
                self._client.connect(host, port, KEEPALIVE_S)
        except OSError as exc:
            raise SourceError(f"can't reach the MQTT broker {host}:{port}: {exc}") from exc
        connection = self._client.socket()
        if isinstance(connection, socket):
            connection.setsockopt(
                IPPROTO_TCP, TCP_NODELAY, 1
            )  # acknowledgements are small, and the broker waits for them
            self._selector.register(connection, selectors.EVENT_READ)
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        try:
            while not self._is_subscribed and not stop.is_set():
                self._poll()
                if time.monotonic() > deadline:
                    raise SourceError(f"the MQTT broker {host}:{port} does not answer")
        except BaseException:
            self.close()
            raise

    def receive(self) -> list[paho.MQTTMessage]:
        """Return messages as soon as there are some, or an empty list after POLL_TIMEOUT_S."""
        if not self._messages:  # some may have arrived together with the acknowledgement of our subscription
            self._poll()
        messages, self._messages = self._messages, []
        return messages

    def acknowledge(self, messages: list[paho.MQTTMessage]) -> None:
        """Acknowledge messages that are in the log."""
        for message in messages:
            if message.qos:
                self._client.ack(message.mid, message.qos)

    def close(self) -> None:
        """Disconnect; the broker keeps the session."""
        self._selector.close()
        self._client.disconnect()

    def _poll(self) -> None:
        client, limit = self._client, len(self._messages) + MAX_UNACKNOWLEDGED
        timeout_s = POLL_TIMEOUT_S
        while (self._has_decrypted() or self._selector.select(timeout_s)) and len(self._messages) < limit:
            self._check(client.loop_read())
            timeout_s = 0.0
        if client.want_write():
            self._check(client.loop_write())
        self._check(client.loop_misc())

    def _has_decrypted(self) -> bool:
        """True if TLS has decrypted bytes that are not read yet: a selector does not see them."""
        connection = self._client.socket()
        return isinstance(connection, SSLSocket) and connection.pending() > 0

    def _check(self, code: MQTTErrorCode) -> None:
        """Raise the error of a callback or of paho. The broker resends unacknowledged messages, except with QoS 0."""
        if self._error is not None:
            raise self._error
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS or self._client.socket() is None:
            raise SourceError(f"the MQTT broker is lost: {paho.error_string(code)}")

    def _on_connect(self, _client: Any, _data: Any, flags: Any, reason: ReasonCode, _properties: Any) -> None:
        if reason.value == UNSUPPORTED_VERSION and self._is_v5:
            self._error = _OldBrokerError()
        elif reason.is_failure:
            self._error = SourceError(f"the MQTT broker refuses us: {reason}")
        elif self._is_v5:
            # Retained messages for a new subscription only: otherwise every reconnect would deliver them again.
            self._client.subscribe(self._topic, options=SubscribeOptions(qos=1, retainHandling=1))
        elif flags.session_present:
            self._is_subscribed = True
        else:
            self._client.subscribe(self._topic, qos=1)

    def _on_subscribe(self, _client: Any, _data: Any, _mid: int, reasons: list[ReasonCode], _properties: Any) -> None:
        failed = [str(reason) for reason in reasons if reason.is_failure]
        if failed:
            self._error = SourceError(f"the MQTT broker refuses the topic {self._topic!r}: {failed[0]}")
        self._is_subscribed = True

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
    """Return the topic filter, or raise SourceError: `#` is only valid as the last level, `+` as a whole level."""
    levels = topic.split("/")
    hash_inside = any("#" in level for level in levels[:-1]) or ("#" in levels[-1] and levels[-1] != "#")
    plus_inside = any("+" in level and level != "+" for level in levels)
    if not topic or "\0" in topic or len(topic.encode()) > 65_535 or hash_inside or plus_inside:
        raise SourceError(f"topic: expected one such as fleet/+/gps or fleet/#, not {topic!r:.80}")
    return topic


def broker_address(broker: str, default_port: int) -> tuple[str, int]:
    """Return host and port. Raises SourceError."""
    try:
        parts = urlsplit(f"//{broker}")
        if parts.hostname and not parts.path and "@" not in broker:
            return parts.hostname, parts.port or default_port
    except ValueError:
        pass
    shown = f"not {broker!r}" if "@" not in broker else "without a user and a password before it"
    raise SourceError(f"broker: expected host or host:port, {shown}")
