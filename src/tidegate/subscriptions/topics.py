"""Topics of Kafka and MQTT as push targets. The profile lists the connections, and the topics that are open."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from tidegate.errors import did_you_mean
from tidegate.subscriptions.push_target import BadValue, PushTarget

MAX_BATCH = 1_000
"""Maximum number of events that are sent before the broker has confirmed them."""
DEFAULT_BATCH = 100
MAX_TOPIC = 249
"""Maximum number of characters of a topic: Kafka's limit, also for MQTT."""

_NAME = {"type": "string", "maxLength": 200}
_BATCH = {"type": "integer", "minimum": 1, "maximum": MAX_BATCH, "default": DEFAULT_BATCH}
_KAFKA_TOPIC = re.compile(rf"(?!\.{{1,2}}$)[A-Za-z0-9._-]{{1,{MAX_TOPIC}}}")


class TopicTarget(PushTarget):
    """A topic of a broker that the profile names as a connection."""

    __slots__ = ()

    connection: str
    """The name of a connection of the profile."""
    topic: str

    @property
    def address(self) -> str:
        """Connection and topic."""
        return f"{self.connection}/{self.topic}"

    @classmethod
    def parse(cls, value: Any, previous: PushTarget | None) -> Self:
        """Return the target that a document describes. Raises `BadValue`."""
        if not isinstance(value, Mapping):
            raise BadValue(f"expected an object with a connection and a topic, not {value!r:.60}")
        for name in value:
            if name not in cls.fields:
                hint = did_you_mean(name, cls.fields) or f"; expected {', '.join(cls.fields)}"
                raise BadValue(f"unknown field {name!r}{hint}", f".{name}")
        known = cls.known_fields(previous) | dict(value)
        connection = known.get("connection")
        if not isinstance(connection, str) or not connection or len(connection) > 200:
            raise BadValue(f"expected the name of a connection of the profile, not {connection!r:.60}", ".connection")
        batch = known.get("batch", DEFAULT_BATCH)
        if type(batch) is not int or not 1 <= batch <= MAX_BATCH:
            raise BadValue(f"expected a whole number from 1 to {MAX_BATCH:,}, not {batch!r:.60}", ".batch")
        if not isinstance(known.get("handshake", True), bool):
            raise BadValue(f"expected true or false, not {known['handshake']!r:.60}", ".handshake")
        return cls.from_fields(connection, known, batch)

    @classmethod
    @abstractmethod
    def from_fields(cls, connection: str, fields: Mapping[str, Any], batch: int) -> Self:
        """Return the target with these fields. Raises `BadValue` for a topic that the broker can't have."""

    @classmethod
    def known_fields(cls, previous: PushTarget | None) -> dict[str, Any]:
        """Return the fields of a previous target of this kind, as a document has them."""
        return previous.describe() if isinstance(previous, cls) else {}


@dataclass(frozen=True, slots=True)
class KafkaTopic(TopicTarget):
    """The gateway sends each event as a record of a Kafka topic."""

    kind: ClassVar[str] = "kafka"
    fields: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "connection": {**_NAME, "description": "A connection of the profile."},
        "topic": {"type": "string", "maxLength": MAX_TOPIC},
        "key": {"type": ["string", "null"], "description": "The attribute whose value is the key of a record."},
        "batch": _BATCH,
        "handshake": {"type": "boolean", "default": True, "description": "Check that the topic exists."},
    }
    required_fields: ClassVar[tuple[str, ...]] = ("connection", "topic")
    shown_fields: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "connection": {"type": "string"},
        "topic": {"type": "string"},
        "key": {"type": ["string", "null"]},
        "batch": {"type": "integer", "minimum": 0},
    }

    connection: str
    topic: str
    key: str | None = None
    """The attribute whose value is the key of a record; None: records have no key."""
    batch: int = DEFAULT_BATCH
    secrets: tuple[str, ...] = ()

    def with_secrets(self, secrets: tuple[str, ...]) -> KafkaTopic:
        """Return the target with other secrets; messages are not signed with them."""
        return replace(self, secrets=secrets)

    @classmethod
    def from_fields(cls, connection: str, fields: Mapping[str, Any], batch: int) -> KafkaTopic:
        """Return the target with these fields. Raises `BadValue`."""
        topic, key = fields.get("topic"), fields.get("key")
        if not isinstance(topic, str) or _KAFKA_TOPIC.fullmatch(topic) is None:
            raise BadValue(f"expected the name of a topic: letters, digits, . _ and -, not {topic!r:.60}", ".topic")
        if key is not None and (not isinstance(key, str) or not key):
            raise BadValue(f"expected the name of an attribute, not {key!r:.60}", ".key")
        return cls(connection, topic, key, batch)

    def describe(self, *, show_secret: bool = False, show_address: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return the target as JSON values for the API."""
        shown = (self.connection, self.topic, self.key) if show_address else ("…", "…", None)
        return {"connection": shown[0], "topic": shown[1], "key": shown[2], "batch": self.batch}


@dataclass(frozen=True, slots=True)
class MqttTopic(TopicTarget):
    """The gateway publishes each event as a message of an MQTT topic, QoS 1."""

    kind: ClassVar[str] = "mqtt"
    fields: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "connection": {**_NAME, "description": "A connection of the profile."},
        "topic": {"type": "string", "maxLength": MAX_TOPIC, "description": "Without wildcards."},
        "retain": {"type": "boolean", "default": False, "description": "The broker keeps the latest message."},
        "batch": _BATCH,
        "handshake": {"type": "boolean", "default": True, "description": "Check that the broker answers."},
    }
    required_fields: ClassVar[tuple[str, ...]] = ("connection", "topic")
    shown_fields: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "connection": {"type": "string"},
        "topic": {"type": "string"},
        "retain": {"type": "boolean"},
        "batch": {"type": "integer", "minimum": 0},
    }

    connection: str
    topic: str
    retain: bool = False
    batch: int = DEFAULT_BATCH
    secrets: tuple[str, ...] = ()

    def with_secrets(self, secrets: tuple[str, ...]) -> MqttTopic:
        """Return the target with other secrets; messages are not signed with them."""
        return replace(self, secrets=secrets)

    @classmethod
    def from_fields(cls, connection: str, fields: Mapping[str, Any], batch: int) -> MqttTopic:
        """Return the target with these fields. Raises `BadValue`."""
        topic, retain = fields.get("topic"), fields.get("retain", False)
        is_topic = isinstance(topic, str) and 0 < len(topic) <= MAX_TOPIC and topic.isprintable()
        if not is_topic or topic[0] == "$" or "+" in topic or "#" in topic:  # type: ignore[index,operator]
            raise BadValue(f"expected a topic without wildcards, such as city/alerts, not {topic!r:.60}", ".topic")
        if not isinstance(retain, bool):
            raise BadValue(f"expected true or false, not {retain!r:.60}", ".retain")
        return cls(connection, str(topic), retain, batch)

    def describe(self, *, show_secret: bool = False, show_address: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return the target as JSON values for the API."""
        shown = (self.connection, self.topic) if show_address else ("…", "…")
        return {"connection": shown[0], "topic": shown[1], "retain": self.retain, "batch": self.batch}


def is_open(topic: str, patterns: Collection[str]) -> bool:
    """Return True if a topic is one of the open ones: a name, or a prefix that ends in *.

    >>> is_open("city/alerts", ["city/*"]), is_open("raw", ["city/*", "alerts"])
    (True, False)
    """
    return any(topic.startswith(p[:-1]) if p.endswith("*") else topic == p for p in patterns)
