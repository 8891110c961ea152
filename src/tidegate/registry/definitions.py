"""Streams and services in a database, with the history of their versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from tidegate.model import timestamps
from tidegate.registry import beginnings, runs
from tidegate.registry.definition_checks import ALLOW_ALL, check_change, refuse_if_read, refuse_secrets, trusted_names
from tidegate.registry.definition_rows import (
    DefinitionRow,
    find_row,
    last_definitions,
    last_versions,
    parse_problems,
    parse_row,
    parse_rows,
    parse_service,
    read_rows,
    registered_service,
    registered_stream,
    round_trip,
    service_names,
    to_documents,
)
from tidegate.registry.records import (
    AppliedChanges,
    DefinitionChange,
    DefinitionVersion,
    EndReader,
    RegisteredService,
    RegisteredStream,
    ServiceRun,
)
from tidegate.registry.registry import ChangeGuard
from tidegate.registry.secrets import Keyring
from tidegate.registry.store import Store, roll_back
from tidegate.registry.subscriptions import disable_subscriptions
from tidegate.registry.tables import DEFINITIONS, HISTORY, Text
from tidegate.services import Definitions, Service
from tidegate.services.definitions import Origin
from tidegate.services.operators.state_layout import StateChange


class SqlDefinitions(Store):
    """The definitions of a registry. See `DefinitionStore` for what each public method promises."""

    def __init__(
        self,
        engine: sa.Engine,
        clock: Callable[[], int],
        name: str,
        keyring: Keyring | None = None,
        *,
        check_functions: bool = True,
        read_ends: EndReader | None = None,
    ) -> None:
        """`read_ends` reads the end of the log; None: services start at the end when they first run."""
        super().__init__(engine, clock, name, keyring)
        self._check_functions, self._read_ends = check_functions, read_ends

    # Changes -------------------------------------------------------------------

    def apply(
        self,
        definitions: Definitions,
        *,
        force: bool = False,
        prune: bool = False,
        backfill: bool = False,
        dry_run: bool = False,
        origin: Origin = "operator",
        guard: ChangeGuard | None = None,
    ) -> AppliedChanges:
        """Add or change the given streams and services; `prune` removes all others."""
        definitions = round_trip(definitions)
        refuse_secrets(definitions)
        ends = self._load_ends(definitions, backfill)
        imported = definitions.services.keys() if origin == "operator" and self._check_functions else ()
        with self._change_transaction("revision") as connection:
            rows = read_rows(connection)
            documents = to_documents(definitions)
            gone = {name for name in rows if prune and name not in documents}
            before = parse_rows(rows)
            if guard is not None:
                past = last_definitions(connection, documents.keys() - rows.keys())
                guard.need(DefinitionChange(before, definitions, frozenset(gone), past, prune))
            effects = check_change(
                before, definitions, gone, force=force, backfill=backfill, imported=imported, guard=guard or ALLOW_ALL
            )
            unchanged = _unchanged(rows, documents, trusted_names(definitions, origin))
            changes = _changes(rows, documents, gone, unchanged, last_versions(connection), effects.states)
            if not changes or dry_run:
                roll_back(connection)
                return changes
            lost = [name for name in service_names(rows) if name in gone or name in definitions.streams]
            disable_subscriptions(connection, lost, self._clock, force=force)
            for name, version in (*changes.added.items(), *changes.changed.items()):
                kind, document = documents[name]
                flags = {"forced": name in effects.forced, "backfill": backfill and kind == "service", "origin": origin}
                self._insert(connection, name, kind, document, version, flags)
                if kind == "service":
                    earlier = parse_service(rows.get(name))
                    service = definitions.services[name]
                    beginnings.save(connection, service, version, earlier, ends, backfill=backfill)
            for name in gone:
                self._delete(connection, rows[name])
            return changes

    def remove(self, name: str, *, force: bool = False, guard: ChangeGuard | None = None) -> int:
        """Remove a stream or service that nothing reads, and return the version that it had."""
        with self._change_transaction("revision") as connection:
            rows = read_rows(connection)
            row = find_row(name, rows, "stream or service", hints=guard is None)
            if guard is not None:
                guard.need(DefinitionChange(parse_rows(rows), Definitions(), frozenset({name}), {}))
            others = parse_rows({other: rows[other] for other in rows if other != name})
            refuse_if_read(name, others, guard or ALLOW_ALL)
            disable_subscriptions(connection, service_names({name: row}), self._clock, force=force)
            self._delete(connection, row)
            return row.version

    def _load_ends(self, definitions: Definitions, backfill: bool) -> beginnings.EndCursors:
        """Read the end cursors of the inputs of new and changed services, before the transaction starts.

        A concurrent change may make more inputs necessary; `EndCursors` reads those inside the transaction.
        """
        ends = beginnings.EndCursors(self._read_ends)
        if not backfill and definitions.services:
            before = parse_rows(self._rows()).services
            changed = [
                service for service in definitions.services.values() if not _is_same(before.get(service.name), service)
            ]
            ends.load({stream for service in changed for stream in service.inputs})
        return ends

    def _insert(
        self, connection: sa.Connection, name: str, kind: str, document: str, version: int, flags: Mapping[str, Any]
    ) -> None:
        row = {
            "name": name,
            "kind": kind,
            "version": version,
            "document": document,
            "changed_at": self._clock(),
            **flags,
        }
        connection.execute(DEFINITIONS.delete().where(DEFINITIONS.c.name == name))
        connection.execute(DEFINITIONS.insert().values(row))
        connection.execute(HISTORY.insert().values(row))

    def _delete(self, connection: sa.Connection, row: DefinitionRow) -> None:
        beginnings.delete(connection, row.name)
        runs.delete(connection, row.name)
        connection.execute(DEFINITIONS.delete().where(DEFINITIONS.c.name == row.name))
        connection.execute(
            HISTORY.insert().values(
                name=row.name,
                kind=row.kind,
                version=row.version + 1,
                document=None,
                changed_at=self._clock(),
                forced=False,
                backfill=False,
                origin=row.origin,
            )
        )

    # Queries -------------------------------------------------------------------

    def _rows(self) -> dict[str, DefinitionRow]:
        with self._engine.connect() as connection:
            return read_rows(connection)

    def definitions(self) -> Definitions:
        """Return all streams and services, except the `unreadable` ones."""
        return parse_rows(self._rows())

    def unreadable(self) -> dict[str, str]:
        """Return, by name, why a stored definition can't be parsed."""
        return parse_problems(self._rows())

    def streams(self) -> dict[str, RegisteredStream]:
        """Return all streams by name."""
        rows = self._rows()
        return {name: registered_stream(rows[name], stream) for name, stream in parse_rows(rows).streams.items()}

    def services(self) -> dict[str, RegisteredService]:
        """Return all services by name."""
        with self._engine.connect() as connection:
            rows, begins, ran = read_rows(connection), beginnings.load(connection), runs.load(connection)
        return {
            name: registered_service(rows[name], service, begins.get(name), ran.get(name))
            for name, service in parse_rows(rows).services.items()
        }

    def stream(self, name: str) -> RegisteredStream:
        """Return one stream. Raises `NotRegistered` with the nearest name."""
        row = find_row(name, self._rows(), "stream")
        return registered_stream(row, parse_row(row).streams[name])

    def service(self, name: str) -> RegisteredService:
        """Return one service. Raises `NotRegistered` with the nearest name."""
        with self._engine.connect() as connection:
            row = find_row(name, read_rows(connection), "service")
            begins, ran = beginnings.load(connection, name), runs.load(connection, name)
        return registered_service(row, parse_row(row).services[name], begins.get(name), ran.get(name))

    def note_run(self, name: str, run: ServiceRun) -> None:
        """Store which version of a service runs, and where its checkpoint is."""
        with self._engine.begin() as connection:
            runs.save(connection, name, run)

    def history(self, name: str) -> list[DefinitionVersion]:
        """Return all versions of a stream or service, oldest first."""
        query = sa.select(HISTORY).where(HISTORY.c.name == sa.literal(name, Text)).order_by(HISTORY.c.version)
        with self._engine.connect() as connection:
            return [
                DefinitionVersion(
                    row.version,
                    None if row.document is None else json.loads(row.document),
                    timestamps.to_datetime(row.changed_at),
                    row.forced,
                )
                for row in connection.execute(query)
            ]

    def revision(self) -> int:
        """Return a counter that grows with every change of a stream or service."""
        return self._read_counter("revision")


def _is_same(before: Service | None, service: Service) -> bool:
    return before is not None and replace(before, origin=service.origin) == service


def _unchanged(
    rows: Mapping[str, DefinitionRow], documents: Mapping[str, tuple[str, str]], trusted: set[str]
) -> set[str]:
    """Return the given names whose definition is already stored.

    A remote definition that needs trust counts as changed if the operator applies it again: it becomes trusted.
    """
    return {
        name
        for name, (kind, document) in documents.items()
        if name in rows
        and (rows[name].kind, rows[name].document) == (kind, document)
        and (name not in trusted or rows[name].origin == "operator")
    }


def _changes(
    rows: Mapping[str, DefinitionRow],
    documents: Mapping[str, tuple[str, str]],
    gone: set[str],
    unchanged: set[str],
    last: Mapping[str, int],
    states: Mapping[str, StateChange],
) -> AppliedChanges:
    """Compute the version that each name gets; `last` are the last versions of all names, removed ones included."""
    return AppliedChanges(
        added=MappingProxyType({name: last.get(name, 0) + 1 for name in documents if name not in rows}),
        changed=MappingProxyType(
            {name: last[name] + 1 for name in documents if name in rows and name not in unchanged}
        ),
        unchanged=MappingProxyType({name: rows[name].version for name in documents if name in unchanged}),
        removed=MappingProxyType({name: rows[name].version for name in sorted(gone)}),
        states=MappingProxyType(dict(states)),
    )
