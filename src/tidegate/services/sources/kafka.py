"""Events of a Kafka topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.services.findings import Spot
from tidegate.services.sources.declaration import CONNECTION, SourceDeclaration, refuse_beside_connection
from tidegate.services.sources.event_format import KEYS, TEXT_FORMATS, EventFormat, TextFormat, read_event_format


@dataclass(frozen=True)
class Kafka(EventFormat):
    """Events of a Kafka topic."""

    topic: str
    brokers: str = "localhost:9092"
    connection: str | None = None
    """A connection of the profile, instead of brokers."""
    format: TextFormat = "json"
    """What the value of a record contains."""


def _read(spot: Spot) -> Kafka:
    if not isinstance(spot.value, Mapping):
        return Kafka(spot.text("a topic"))
    spots = spot.entries(("topic", "brokers", "connection", "format", *KEYS), "a topic")
    topic = spots.get("topic", spot.at("topic", None)).text("a topic")
    settings: dict[str, Any] = read_event_format(spots)
    if "format" in spots:
        settings["format"] = spots["format"].choice(TEXT_FORMATS)
    if "connection" in spots:
        refuse_beside_connection(spots, ("brokers",))
        return Kafka(topic, connection=spots["connection"].text(CONNECTION), **settings)
    if "brokers" in spots:
        settings["brokers"] = spots["brokers"].text("host:port, or several with commas")
    return Kafka(topic, **settings)


DECLARATION = SourceDeclaration(
    "kafka", Kafka, _read, "topic", has_connection=True, address_fields=("brokers", "topic")
)
