"""How the texts of a source become events: columns without a header, and the formats of its times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tidegate.expressions.zones import zone
from tidegate.model import Schema
from tidegate.model.types import Struct
from tidegate.services.findings import Spot

TextFormat = Literal["json", "ndjson", "csv"]
TEXT_FORMATS: tuple[TextFormat, ...] = ("json", "ndjson", "csv")
"""What a message may contain: one event, an event per line, or rows of CSV."""

EPOCHS = ("epoch_s", "epoch_ms", "epoch_us", "epoch_ns")
"""Numbers since 1970 UTC, by their unit."""
OTHERS = "*"
"""The key for all timestamps of the schema that `times` does not name."""

KEYS = ("columns", "times", "zone")
_TIME_FORMAT = f"one of {', '.join(EPOCHS)}, or a pattern such as '%d.%m.%Y %H:%M:%S'"
MAX_PATTERN_LENGTH = 100


Times = tuple[tuple[str, str], ...]
"""Pairs of an attribute and the format of its times."""


@dataclass(frozen=True, kw_only=True)
class EventFormat:
    """Settings of a source whose texts need more than the schema to become events."""

    columns: tuple[str, ...] = ()
    """The attributes of CSV rows, in order; empty: the first line names them."""
    times: Times = ()
    """By timestamp attribute (`pos.time`), or `*` for all others: an entry of EPOCHS, or a pattern of strptime."""
    zone: str | None = None
    """The time zone of patterns without %z; None: UTC."""


def read_event_format(spots: Mapping[str, Spot]) -> dict[str, Any]:
    """Read the settings of an EventFormat that are there, as keyword arguments."""
    settings: dict[str, Any] = {}
    if "columns" in spots:
        spot = spots["columns"]
        columns = spot.texts("the name of an attribute")
        if not columns or len(set(columns)) < len(columns):
            spot.refuse("a list of names that differ from each other")
        settings["columns"] = columns
    if "times" in spots:
        settings["times"] = _read_times(spots["times"])
    if "zone" in spots:
        name = spots["zone"].text("the name of a time zone")
        if name and zone(name) is None:
            spots["zone"].refuse("the name of a time zone, such as Europe/Berlin")
        settings["zone"] = name
    return settings


def _read_times(spot: Spot) -> Times:
    if isinstance(spot.value, Mapping):
        return tuple((name, _read_time(inner)) for name, inner in spot.pairs(f"{_TIME_FORMAT}, by attribute").items())
    return ((OTHERS, _read_time(spot)),)


def _read_time(spot: Spot) -> str:
    text = spot.text(_TIME_FORMAT)
    if text and text not in EPOCHS and ("%" not in text or len(text) > MAX_PATTERN_LENGTH):
        spot.refuse(_TIME_FORMAT)
    return text


def times_document(times: Times) -> Any:
    """Return `times` in the form that `read_event_format` takes."""
    formats = dict(times)
    return formats[OTHERS] if set(formats) == {OTHERS} else formats


def timestamp_paths(schema: Schema) -> dict[str, tuple[str, ...]]:
    """Return the path of each timestamp of a schema, also inside structs, by its dotted name."""
    paths: dict[str, tuple[str, ...]] = {}

    def add(struct: Struct, outer: tuple[str, ...]) -> None:
        for field in struct:
            path = (*outer, field.name)
            if isinstance(field.type, Struct):
                add(field.type, path)
            elif field.type.kind == "time":
                paths[".".join(path)] = path

    add(schema.root, ())
    return paths
