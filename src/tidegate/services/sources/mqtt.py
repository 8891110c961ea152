"""Events of MQTT topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.services.findings import Spot
from tidegate.services.sources.declaration import CONNECTION, SourceDeclaration, refuse_beside_connection
from tidegate.services.sources.event_format import KEYS, TEXT_FORMATS, EventFormat, TextFormat, read_event_format


@dataclass(frozen=True)
class Mqtt(EventFormat):
    """Events of MQTT topics, QoS 1; the topic may have wildcards."""

    topic: str
    broker: str = "localhost:1883"
    username: str | None = None
    password_env: str | None = None
    """The environment variable that holds the password."""
    connection: str | None = None
    """A connection of the profile, instead of the broker and its user."""
    format: TextFormat = "json"
    """What a message contains. As JSON it may also be an array of events."""


def _read(spot: Spot) -> Mqtt:
    if not isinstance(spot.value, Mapping):
        return Mqtt(spot.text("a topic, such as fleet/+/gps"))
    spots = spot.entries(("topic", *_BROKER, "connection", "format", *KEYS), "a topic")
    topic = spots.get("topic", spot.at("topic", None)).text("a topic, such as fleet/+/gps")
    settings: dict[str, Any] = read_event_format(spots)
    if "format" in spots:
        settings["format"] = spots["format"].choice(TEXT_FORMATS)
    if "connection" in spots:
        refuse_beside_connection(spots, _BROKER)
        return Mqtt(topic, connection=spots["connection"].text(CONNECTION), **settings)
    settings |= {key: spots[key].text("text") for key in _BROKER if key in spots}
    return Mqtt(topic, **settings)


_BROKER = ("broker", "username", "password_env")

DECLARATION = SourceDeclaration("mqtt", Mqtt, _read, "topic", has_connection=True, address_fields=("broker", "topic"))
