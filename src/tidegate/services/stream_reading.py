"""Reads one raw stream of a service file, with its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from tidegate.errors import did_you_mean
from tidegate.model.types import Array, Struct
from tidegate.services.common_settings import CALLERS, read_audience, read_description, read_retention, read_themes
from tidegate.services.definitions import (
    Demo,
    Files,
    Http,
    Kafka,
    Mqtt,
    Retention,
    Source,
    Stream,
    StreamAccess,
)
from tidegate.services.findings import Spot
from tidegate.services.schemas import read_schema

DEMOS = ("anpr", "gps")
"""The built-in generators."""
_FORMATS = ("csv", "ndjson", "parquet")
_STREAM_KEYS = (
    *("schema", "event_time", "key", "partitions", "constraints", "terms"),
    *("source", "retention", "themes", "description", "access"),
)
_CONNECTION = "the name of a connection of the profile"


def read_stream_at(name: str, spot: Spot) -> Stream:
    """Read a stream."""
    found = spot.entries(_STREAM_KEYS, "a stream, such as {schema: {speed: float64}}")
    schema = read_schema(found, spot.at("schema", None))
    key = found["key"].text("an attribute") if "key" in found else None
    field = schema.root.get(key) if key else None
    if key and schema.root.fields:
        names = [each.name for each in schema.root]
        if field is None:
            found["key"].refuse(f"one of the attributes {', '.join(names[:8])}", did_you_mean(key, names))
        elif isinstance(field.type, Struct | Array):
            found["key"].refuse(f"an attribute with a single value, as {key} is {field.type}")
    return Stream(
        name,
        schema,
        key,
        found["partitions"].whole("a number of partitions from 1 to 1024", 1, 1024) if "partitions" in found else 1,
        _source(found["source"]) if "source" in found else Http(),
        read_retention(found["retention"]) if "retention" in found else Retention(),
        read_themes(found),
        read_description(found),
        _stream_access(found["access"]) if "access" in found else StreamAccess(),
    )


def _stream_access(spot: Spot) -> StreamAccess:
    if not isinstance(spot.value, Mapping):
        return StreamAccess(_stream_to(spot))
    found = spot.entries(("to", "publish"), "who sees it and who may fill it, such as {to: [police], publish: [van]}")
    return StreamAccess(
        _stream_to(found["to"]) if "to" in found else "keys",
        found["publish"].texts(CALLERS) if "publish" in found else None,
    )


def _stream_to(spot: Spot) -> Any:
    if isinstance(spot.value, str):
        if spot.value != "keys":
            spot.refuse(f"keys, or {CALLERS}, as a raw stream is never public")
        return "keys"
    return read_audience(spot)


def _source(spot: Spot) -> Source:
    value = spot.value
    if value == "http":
        return Http()
    if not isinstance(value, Mapping) or len(value) != 1:
        spot.refuse(f"one source, such as {{http: {{}}}}; there are {', '.join(_SOURCES)}")
        return Http()
    found = spot.entries(tuple(_SOURCES), "a source")
    for name, inner in found.items():
        return _SOURCES[name](inner)
    if value == {"http": None}:
        return Http()
    for name in value:
        if name in _SOURCES:
            spot.at(str(name), None).refuse(f"the settings of {name}")
    return Http()


def _http(spot: Spot) -> Source:
    spot.entries((), "nothing: {http: {}}")
    return Http()


def _demo(spot: Spot) -> Source:
    if not isinstance(spot.value, Mapping):
        return Demo(spot.choice(DEMOS))
    found = spot.entries(("kind", "rate", "seed"), "a demo")
    kind = found.get("kind", spot.at("kind", None)).choice(DEMOS)
    made = Demo(kind)
    return Demo(
        kind,
        found["rate"].number("events a second, above 0", 0, 1e9, above=True) if "rate" in found else made.rate,
        found["seed"].whole("a whole number, 0 or more", 0) if "seed" in found else made.seed,
    )


def _files(spot: Spot) -> Source:
    what = "a file, a folder or a pattern, such as data/*.csv"
    if not isinstance(spot.value, Mapping):
        return Files(spot.text(what))
    found = spot.entries(("path", "format", "speed"), "files")
    return Files(
        found.get("path", spot.at("path", None)).text(what),
        cast("Any", found["format"].choice(_FORMATS)) if "format" in found else None,
        found["speed"].number("a speed above 0", 0, 1e9, above=True) if "speed" in found else None,
    )


def _kafka(spot: Spot) -> Source:
    if not isinstance(spot.value, Mapping):
        return Kafka(spot.text("a topic"))
    found = spot.entries(("topic", "brokers", "connection"), "a topic")
    topic = found.get("topic", spot.at("topic", None)).text("a topic")
    if "connection" in found:
        _refuse_beside_connection(found, ("brokers",))
        return Kafka(topic, connection=found["connection"].text(_CONNECTION))
    if "brokers" not in found:
        return Kafka(topic)
    return Kafka(topic, found["brokers"].text("host:port, or several with commas"))


def _mqtt(spot: Spot) -> Source:
    if not isinstance(spot.value, Mapping):
        return Mqtt(spot.text("a topic, such as fleet/+/gps"))
    found = spot.entries(("topic", "broker", "username", "password_env", "connection"), "a topic")
    topic = found.get("topic", spot.at("topic", None)).text("a topic, such as fleet/+/gps")
    if "connection" in found:
        _refuse_beside_connection(found, ("broker", "username", "password_env"))
        return Mqtt(topic, connection=found["connection"].text(_CONNECTION))
    given = {key: each.text("text") for key, each in found.items() if key != "topic"}
    return Mqtt(topic, **given)


def _refuse_beside_connection(found: Mapping[str, Spot], keys: Iterable[str]) -> None:
    for key in keys:
        if key in found:
            found[key].blame(f"expected {key} or a connection, which has it already, not both")


_SOURCES: dict[str, Callable[[Spot], Source]] = {
    "http": _http,
    "demo": _demo,
    "files": _files,
    "kafka": _kafka,
    "mqtt": _mqtt,
}
