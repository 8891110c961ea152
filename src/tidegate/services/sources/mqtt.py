"""Events of MQTT topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.services.findings import Spot
from tidegate.services.sources.declaration import CONNECTION, SourceDeclaration, refuse_beside_connection


@dataclass(frozen=True)
class Mqtt:
    """Events of MQTT topics, QoS 1; the topic may have wildcards."""

    topic: str
    broker: str = "localhost:1883"
    username: str | None = None
    password_env: str | None = None
    """The environment variable that holds the password."""
    connection: str | None = None
    """A connection of the profile, instead of all but the topic."""


def _read(spot: Spot) -> Mqtt:
    if not isinstance(spot.value, Mapping):
        return Mqtt(spot.text("a topic, such as fleet/+/gps"))
    pairs = spot.entries(("topic", "broker", "username", "password_env", "connection"), "a topic")
    topic = pairs.get("topic", spot.at("topic", None)).text("a topic, such as fleet/+/gps")
    if "connection" in pairs:
        refuse_beside_connection(pairs, ("broker", "username", "password_env"))
        return Mqtt(topic, connection=pairs["connection"].text(CONNECTION))
    settings = {key: setting.text("text") for key, setting in pairs.items() if key != "topic"}
    return Mqtt(topic, **settings)


DECLARATION = SourceDeclaration("mqtt", Mqtt, _read, "topic", has_connection=True, address_fields=("broker", "topic"))
