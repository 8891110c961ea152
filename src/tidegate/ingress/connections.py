"""Connections and folders of the profile that feeds use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from tidegate.errors import SourceError, did_you_mean
from tidegate.logs.kafka_security import KafkaSecurity, Tls
from tidegate.model.secrets import Secret
from tidegate.services.definitions import NONE, Origin
from tidegate.services.roots import Confinement, Opener, open_any


@dataclass(frozen=True, slots=True)
class MqttConnection:
    """An MQTT broker."""

    kind: ClassVar[str] = "mqtt"

    broker: str
    """`host` or `host:port`."""
    username: str | None = None
    password: Secret | None = field(default=None, repr=False)
    tls: Tls | None = None
    """None: the connection is not encrypted."""


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """A Kafka cluster."""

    kind: ClassVar[str] = "kafka"

    brokers: str
    """`host:port`, several separated by commas."""
    security: KafkaSecurity = field(default_factory=KafkaSecurity)


@dataclass(frozen=True, slots=True)
class HttpConnection:
    """An HTTP server."""

    kind: ClassVar[str] = "poll"

    url: str
    """The URL that the paths of sources are below."""
    token: Secret | None = field(default=None, repr=False)
    """Sent as `Authorization: Bearer`."""


FeedConnection = MqttConnection | KafkaConnection | HttpConnection
ConnectionType = TypeVar("ConnectionType", MqttConnection, KafkaConnection, HttpConnection)


@dataclass(frozen=True)
class FeedResources:
    """Connections and folders that the profile lists for sources."""

    connections: Mapping[str, object] = field(default_factory=lambda: NONE)
    """By name. Those of other kinds, such as databases, are never returned."""
    files: Confinement = field(default_factory=lambda: Confinement(()))

    def connection(self, name: str, kind: type[ConnectionType]) -> ConnectionType:
        """Return the connection with this name. Raises SourceError if the profile has none of this kind."""
        connection = self.connections.get(name)
        if not isinstance(connection, kind):
            raise SourceError(unknown_connection(name, kind.kind, self.connections))
        return connection

    def opener(self, path: str, origin: Origin) -> Opener:
        """Return the function that opens the files of a definition: any file for the operator, else below the roots."""
        return open_any if origin == "operator" else self.files.opener(path)


def unknown_connection(name: str, kind: str, connections: Mapping[str, object]) -> str:
    """Return the message for a connection that the profile does not list."""
    return (
        f"the profile has no {kind} connection {name!r}{did_you_mean(name, connections)}; add it: "
        f"connections: {{{name}: {{{kind}: {{...}}}}}}"
    )
