"""Reads one raw stream of a service file, with its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.errors import did_you_mean
from tidegate.model.types import Array, Struct
from tidegate.services.common_settings import CALLERS, read_audience, read_description, read_retention, read_themes
from tidegate.services.definitions import (
    Http,
    Retention,
    Stream,
    StreamAccess,
)
from tidegate.services.findings import Spot
from tidegate.services.schemas import read_schema
from tidegate.services.sources.registry import read_source

_STREAM_KEYS = (
    *("schema", "event_time", "key", "partitions", "constraints", "terms"),
    *("source", "retention", "themes", "description", "access"),
)


def read_stream_at(name: str, spot: Spot) -> Stream:
    """Read a stream."""
    settings = spot.entries(_STREAM_KEYS, "a stream, such as {schema: {speed: float64}}")
    schema = read_schema(settings, spot.at("schema", None))
    key = settings["key"].text("an attribute") if "key" in settings else None
    field = schema.root.get(key) if key else None
    if key and schema.root.fields:
        names = [attribute.name for attribute in schema.root]
        if field is None:
            settings["key"].refuse(f"one of the attributes {', '.join(names[:8])}", did_you_mean(key, names))
        elif isinstance(field.type, Struct | Array):
            settings["key"].refuse(f"an attribute with a single value, as {key} is {field.type}")
    return Stream(
        name,
        schema,
        key,
        settings["partitions"].whole("a number of partitions from 1 to 1024", 1, 1024)
        if "partitions" in settings
        else 1,
        read_source(settings["source"]) if "source" in settings else Http(),
        read_retention(settings["retention"]) if "retention" in settings else Retention(),
        read_themes(settings),
        read_description(settings),
        _stream_access(settings["access"]) if "access" in settings else StreamAccess(),
    )


def _stream_access(spot: Spot) -> StreamAccess:
    if not isinstance(spot.value, Mapping):
        return StreamAccess(_stream_to(spot))
    settings = spot.entries(
        ("to", "publish"), "who sees it and who may fill it, such as {to: [police], publish: [van]}"
    )
    return StreamAccess(
        _stream_to(settings["to"]) if "to" in settings else "keys",
        settings["publish"].texts(CALLERS) if "publish" in settings else None,
    )


def _stream_to(spot: Spot) -> Any:
    if isinstance(spot.value, str):
        if spot.value != "keys":
            spot.refuse(f"keys, or {CALLERS}, as a raw stream is never public")
        return "keys"
    return read_audience(spot)
