"""Converts stored rows into definitions. A row that can't be parsed does not hide the others."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tidegate.errors import DefinitionError, NotRegistered, RegistryError, did_you_mean, error_text
from tidegate.model import timestamps
from tidegate.registry.records import Beginning, RegisteredService, RegisteredStream, ServiceRun
from tidegate.registry.tables import DEFINITIONS, HISTORY
from tidegate.services import Definitions, Service, Stream, from_dict, to_dict
from tidegate.services.definitions import Access, Origin

_logger = logging.getLogger(__name__)

_MAX_NAMES_IN_QUERY = 500
"""Databases limit the number of parameters of a query."""


@dataclass(frozen=True, slots=True)
class DefinitionRow:
    """A row of the table `definitions`: one stream or service."""

    name: str
    kind: str
    """`stream` or `service`."""
    version: int
    document: str
    """The definition as JSON, in the form of a service file."""
    changed_at: int
    """Microseconds since 1970 UTC."""
    forced: bool
    backfill: bool
    origin: Origin

    @property
    def change_time(self) -> datetime:
        """`changed_at` as a `datetime`."""
        return timestamps.to_datetime(self.changed_at)


def read_rows(connection: sa.Connection) -> dict[str, DefinitionRow]:
    """Return all rows by name, sorted by name."""
    query = sa.select(*(DEFINITIONS.c[name] for name in DefinitionRow.__slots__)).order_by(DEFINITIONS.c.name)
    return {row.name: DefinitionRow(*row) for row in connection.execute(query)}


def find_row(name: str, rows: Mapping[str, DefinitionRow], kind: str, *, hints: bool = True) -> DefinitionRow:
    """Return the row of a stream or service. Raises `NotRegistered`, with `hints` also with the nearest name.

    `kind` is `stream`, `service` or `stream or service`.
    """
    names = [row.name for row in rows.values() if row.kind in kind]
    if name not in names:
        raise NotRegistered(f"there is no {kind} {name!r}{did_you_mean(name, names) if hints else ''}")
    return rows[name]


def service_names(rows: Mapping[str, DefinitionRow]) -> list[str]:
    """Return the names of all rows that are services."""
    return [name for name, row in rows.items() if row.kind == "service"]


# Parsing ---------------------------------------------------------------------


def parse_row(row: DefinitionRow) -> Definitions:
    """Return the stream or service of a row. Raises if the row can't be parsed."""
    return _with_origins(from_dict({f"{row.kind}s": {row.name: json.loads(row.document)}}), {row.name: row})


def parse_rows(rows: Mapping[str, DefinitionRow]) -> Definitions:
    """Return the streams and services of all rows. Rows that can't be parsed are logged and left out."""
    documents: dict[str, dict[str, Any]] = {"streams": {}, "services": {}}
    try:
        for row in rows.values():
            documents[f"{row.kind}s"][row.name] = json.loads(row.document)
        return _with_origins(from_dict(documents), rows)
    except Exception:  # parsing row by row is slower, but shows which rows are bad
        return _parse_each(rows)


def parse_service(row: DefinitionRow | None) -> Service | None:
    """Return the service of a row; None if the row is missing, is a stream, or can't be parsed."""
    if row is None or row.kind != "service":
        return None
    return parse_rows({row.name: row}).services.get(row.name)


def parse_problems(rows: Mapping[str, DefinitionRow]) -> dict[str, str]:
    """Return, by name, why a row can't be parsed."""
    problems = {}
    for name, row in rows.items():
        try:
            parse_row(row)
        except Exception as problem:
            problems[name] = f"its definition can't be read: {error_text(problem)}"
    return problems


def _parse_each(rows: Mapping[str, DefinitionRow]) -> Definitions:
    streams: dict[str, Stream] = {}
    services: dict[str, Service] = {}
    for row in rows.values():
        try:
            parsed = parse_row(row)
        except Exception as problem:
            _logger.warning("%s %s can't be read: %s", row.kind, row.name, error_text(problem))
            continue
        streams.update(parsed.streams)
        services.update(parsed.services)
    return Definitions(streams, services)


def _with_origins(definitions: Definitions, rows: Mapping[str, DefinitionRow]) -> Definitions:
    return replace(
        definitions,
        streams={name: replace(stream, origin=rows[name].origin) for name, stream in definitions.streams.items()},
        services={name: replace(service, origin=rows[name].origin) for name, service in definitions.services.items()},
    )


def registered_stream(row: DefinitionRow, stream: Stream) -> RegisteredStream:
    """Combine a parsed stream with the columns of its row."""
    return RegisteredStream(stream, row.version, row.change_time, row.forced)


def registered_service(
    row: DefinitionRow, service: Service, begins: Mapping[str, Beginning] | None, run: ServiceRun | None
) -> RegisteredService:
    """Combine a parsed service with the columns of its row, its start positions and its last run."""
    return RegisteredService(service, row.version, row.change_time, row.forced, row.backfill, begins or {}, run)


# Writing ---------------------------------------------------------------------


def round_trip(definitions: Definitions) -> Definitions:
    """Return definitions as they will be read back from JSON; the places of their files stay.

    Definitions that are built in Python may contain values that no service file can express. Raises `RegistryError`
    for values that JSON can't express, and `DefinitionError` for the rest.
    """
    try:
        document = json.loads(json.dumps(to_dict(definitions)))
    except (TypeError, ValueError) as error:
        raise RegistryError(f"expected definitions of JSON values: {error}") from error
    return replace(from_dict(document), places=definitions.places)


def to_documents(definitions: Definitions) -> dict[str, tuple[str, str]]:
    """Return kind and JSON document of each stream and service, by name."""
    return {
        definition.name: (kind, json.dumps(to_dict(definition), ensure_ascii=False))
        for kind, by_name in (("stream", definitions.streams), ("service", definitions.services))
        for definition in by_name.values()
    }


# History ---------------------------------------------------------------------


def last_versions(connection: sa.Connection) -> dict[str, int]:
    """Return the last version of every stream and service that was ever registered, by name."""
    query = sa.select(HISTORY.c.name, sa.func.max(HISTORY.c.version)).group_by(HISTORY.c.name)
    return {row[0]: row[1] for row in connection.execute(query)}


def last_definitions(connection: sa.Connection, names: Iterable[str]) -> dict[str, Stream | Service]:
    """Return the last definitions of streams and services that are no longer registered, by name."""
    wanted_names = set(names)
    if not wanted_names:
        return {}
    columns = HISTORY.c.name, HISTORY.c.kind, HISTORY.c.document
    query = sa.select(*columns).where(HISTORY.c.document.is_not(None)).order_by(HISTORY.c.version)
    if len(wanted_names) <= _MAX_NAMES_IN_QUERY:
        query = query.where(HISTORY.c.name.in_(sorted(wanted_names)))
    return {
        name: _parse_old(name, kind, document)
        for name, kind, document in connection.execute(query)
        if name in wanted_names
    }


def _parse_old(name: str, kind: str, document: str) -> Stream | Service:
    """Return an old definition. One that can't be parsed any more becomes a service that only operators may use."""
    try:
        parsed = from_dict({f"{kind}s": {name: json.loads(document)}})
    except DefinitionError:
        return Service(name, (), access=Access(to=()))
    return parsed.streams.get(name) or parsed.services[name]
