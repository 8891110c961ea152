"""Events of a Kafka topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.services.findings import Spot
from tidegate.services.sources.declaration import CONNECTION, SourceDeclaration, refuse_beside_connection


@dataclass(frozen=True)
class Kafka:
    """Events of a Kafka topic."""

    topic: str
    brokers: str = "localhost:9092"
    connection: str | None = None
    """A connection of the profile, instead of brokers."""


def _read(spot: Spot) -> Kafka:
    if not isinstance(spot.value, Mapping):
        return Kafka(spot.text("a topic"))
    settings = spot.entries(("topic", "brokers", "connection"), "a topic")
    topic = settings.get("topic", spot.at("topic", None)).text("a topic")
    if "connection" in settings:
        refuse_beside_connection(settings, ("brokers",))
        return Kafka(topic, connection=settings["connection"].text(CONNECTION))
    if "brokers" not in settings:
        return Kafka(topic)
    return Kafka(topic, settings["brokers"].text("host:port, or several with commas"))


DECLARATION = SourceDeclaration(
    "kafka", Kafka, _read, "topic", has_connection=True, address_fields=("brokers", "topic")
)
