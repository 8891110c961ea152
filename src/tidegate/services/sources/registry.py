"""All sources. A new one needs its module here and its feed; this list names its declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from tidegate.errors import did_you_mean
from tidegate.model import Schema
from tidegate.services.findings import Path, Spot
from tidegate.services.sources import demo, files, http, kafka, mqtt, poll
from tidegate.services.sources.declaration import ConnectionKind, SourceDeclaration
from tidegate.services.sources.event_format import EPOCHS, OTHERS, EventFormat, times_document, timestamp_paths

Source = http.Http | demo.Demo | files.Files | kafka.Kafka | mqtt.Mqtt | poll.Poll

DECLARATIONS: tuple[SourceDeclaration[Any], ...] = (
    http.DECLARATION,
    demo.DECLARATION,
    files.DECLARATION,
    kafka.DECLARATION,
    mqtt.DECLARATION,
    poll.DECLARATION,
)
_BY_NAME = {declaration.name: declaration for declaration in DECLARATIONS}
_BY_TYPE = {declaration.type: declaration for declaration in DECLARATIONS}


def read_source(spot: Spot) -> Source:
    """Read one source. Reports problems at the spot, and then returns a placeholder."""
    value = spot.value
    if value == "http":
        return http.Http()
    if not isinstance(value, Mapping) or len(value) != 1:
        spot.refuse(f"one source, such as {{http: {{}}}}; there are {', '.join(_BY_NAME)}")
        return http.Http()
    for name, settings in spot.entries(tuple(_BY_NAME), "a source").items():
        source: Source = _BY_NAME[name].read(settings)
        return source
    if value == {"http": None}:
        return http.Http()
    for name in value:
        if name in _BY_NAME:
            spot.at(str(name), None).refuse(f"the settings of {name}")
    return http.Http()


def source_document(source: Source) -> dict[str, Any] | None:
    """Return a source in the form that `read_source` takes; None for `Http`, which is the default."""
    if isinstance(source, http.Http):
        return None
    declaration = _BY_TYPE[type(source)]
    main = declaration.main_field
    changed = {
        field.name: _value_document(field.name, getattr(source, field.name))
        for field in fields(source)
        if field.name != main and getattr(source, field.name) != field.default
    }
    value = getattr(source, main)
    return {declaration.name: {main: value, **changed} if changed else value}


def _value_document(name: str, value: Any) -> Any:
    if name == "times":
        return times_document(value)
    return list(value) if isinstance(value, tuple) else value


def connection_of(source: Source) -> tuple[ConnectionKind, str | None] | None:
    """Return kind and name of the connection of the profile that a source uses; None if its kind has none.

    The name is None if the source states its address itself.
    """
    declaration = _BY_TYPE[type(source)]
    if not declaration.has_connection:
        return None
    name: str | None = getattr(source, "connection")  # noqa: B009 - not every source has it
    return declaration.name, name


def addresses_of(source: Source) -> Iterator[tuple[Path, str]]:
    """Yield the texts of a source in which a password must not stand, each with its path in `source`."""
    declaration = _BY_TYPE[type(source)]
    for name in declaration.address_fields:
        yield (declaration.name, name), getattr(source, name)


def note_event_format(source: Source, schema: Schema, spot: Spot) -> None:
    """Report times of a source that are no timestamps of the stream's schema."""
    if not isinstance(source, EventFormat):
        return
    declaration = _BY_TYPE[type(source)]
    inner = spot.at(declaration.name, None)
    patterns = [text for _, text in source.times if text not in EPOCHS]
    if source.zone is not None and not patterns:
        inner.at("zone", source.zone).report("a zone is for patterns in times: epochs are in UTC")
    if source.columns and getattr(source, "format") not in ("csv", None):  # noqa: B009 - not every source has it
        inner.at("columns", None).report("columns are for the format csv")
    timestamps = timestamp_paths(schema)
    for name, _ in source.times:
        if name != OTHERS and name not in timestamps:
            hint = did_you_mean(name, timestamps) or f"; expected one of {', '.join(timestamps) or 'none'}"
            inner.at("times", None).at(name, None).report(f"the schema has no timestamp {name!r}{hint}")
