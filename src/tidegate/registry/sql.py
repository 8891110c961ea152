"""A registry in a relational database: its streams and services. SQL that every database has."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from tidegate.errors import BreakingChange, DefinitionError, NotRegistered, RegistryError, did_you_mean
from tidegate.model import timestamps
from tidegate.registry.keys import SqlKeys
from tidegate.registry.leases import SqlLeases
from tidegate.registry.links import SqlLinks
from tidegate.registry.registry import Changes, Past, RegisteredService, RegisteredStream
from tidegate.registry.secrets import Keyring
from tidegate.registry.store import unchanged
from tidegate.registry.subscriptions import SqlSubscriptions
from tidegate.registry.tables import DEFINITIONS, HISTORY, REVISIONS, Text
from tidegate.services import Definitions, Service, Stream, check, from_dict, to_dict
from tidegate.services.check import examine
from tidegate.services.definitions import Origin
from tidegate.services.findings import Findings
from tidegate.services.redaction import note_secrets
from tidegate.services.trust import needs_trust
from tidegate.services.versions import breaking


@dataclass(frozen=True, slots=True)
class _Row:
    """One stream or service in the database."""

    name: str
    kind: str
    version: int
    document: str
    changed_at: int
    forced: bool
    backfill: bool
    origin: Origin

    @property
    def moment(self) -> datetime:
        return timestamps.to_datetime(self.changed_at)


class SqlRegistry(SqlSubscriptions, SqlKeys, SqlLeases, SqlLinks):
    """A registry in a database that SQLAlchemy knows."""

    def __init__(
        self,
        engine: sa.Engine,
        clock: Callable[[], int],
        name: str,
        check_functions: bool = True,
        keyring: Keyring | None = None,
    ) -> None:
        super().__init__(engine, clock, name, keyring)
        self._check_functions = check_functions
        try:
            self._need_sealed()
        except BaseException:
            engine.dispose()
            raise

    # Secrets -------------------------------------------------------------------

    @property
    def has_plain_secrets(self) -> bool:
        """Whether secrets are stored as they are: no key was ever given to encrypt them with."""
        with self._engine.connect() as connection:
            return connection.execute(sa.select(REVISIONS.c.secrets_key)).scalar_one() is None

    def reseal(self) -> int:
        """Encrypt all secrets with the first key of the keyring, all or none; return how many there are."""
        if self._keyring is None:
            raise RegistryError("there is no key to encrypt secrets with: set secrets.key in the profile")
        key = self._keyring.first
        with self._changing("subscriptions") as connection:
            count = self._reseal_links(connection, key) + self._reseal_subscriptions(connection, key)
            connection.execute(REVISIONS.update().values(secrets_key=key.id))
        self._scrub()
        return count

    def _need_sealed(self) -> None:
        """Encrypt what was stored plain, where there is a key; refuse a registry whose key is not given."""
        with self._engine.connect() as connection:
            is_plain = self._sealing_key(connection) is None
        if is_plain and self._keyring is not None:
            self.reseal()

    def _scrub(self) -> None:
        """Remove what is left of secrets that were overwritten, where the database leaves that to us."""

    # Changing ------------------------------------------------------------------

    def apply(
        self,
        definitions: Definitions,
        *,
        force: bool = False,
        prune: bool = False,
        backfill: bool = False,
        origin: Origin = "operator",
    ) -> Changes:
        """Add and change streams and services; `prune`: remove all others. All or nothing."""
        definitions = _canonical(definitions)
        _refuse_secrets(definitions)
        imported = definitions.services.keys() if origin == "operator" and self._check_functions else ()
        with self._changing("revision") as connection:
            rows = self._rows(connection)
            wanted = {
                each.name: (kind, json.dumps(to_dict(each), ensure_ascii=False))
                for kind, given in (("stream", definitions.streams), ("service", definitions.services))
                for each in given.values()
            }
            gone = {name for name in rows if prune and name not in wanted}
            forced = self._check(_definitions(rows), definitions, gone, force, imported)
            changes = _changes(rows, wanted, gone, self._past_versions(connection), _trusting(definitions, origin))
            if not changes:
                unchanged(connection)
                return changes
            lost = [name for name in _services(rows) if name in gone or name in definitions.streams]
            self._leave(connection, lost, force)
            for name in (*changes.added, *changes.changed):
                version = changes.added.get(name) or changes.changed[name]
                kind, document = wanted[name]
                marks = {"forced": name in forced, "backfill": backfill and kind == "service"}
                self._put(connection, name, kind, document, version, {**marks, "origin": origin})
            for name in gone:
                self._drop(connection, rows[name])
            return changes

    def _check(
        self, before: Definitions, given: Definitions, gone: set[str], force: bool, imported: Collection[str]
    ) -> set[str]:
        """Raise where the whole would not hold together, or break subscribers; with `force` name what breaks some.

        `imported`: the services whose functions are imported for that.
        """
        after = Definitions(
            _without({**before.streams, **given.streams}, gone | {*given.services}),
            _without({**before.services, **given.services}, gone | {*given.streams}),
            given.places,
        )
        for name in sorted(gone):
            _refuse_if_read(name, after)
        shapes = check(after, functions=imported)
        old, _ = examine(before, functions=())
        broken = {
            name: sentences
            for name, shape in shapes.items()
            if name in old and (sentences := breaking(old[name].output, shape.output))
        }
        if broken and not force:
            raise BreakingChange(broken)
        return _upstream(broken, after)

    def remove(self, name: str, *, force: bool = False) -> int:
        """Remove a stream or service that nothing reads; give the version that it had."""
        with self._changing("revision") as connection:
            rows = self._rows(connection)
            row = _find(name, rows, "stream or service")
            _refuse_if_read(name, _definitions({key: each for key, each in rows.items() if key != name}))
            self._leave(connection, _services({name: row}), force)
            self._drop(connection, row)
            return row.version

    def _put(
        self, connection: sa.Connection, name: str, kind: str, document: str, version: int, marks: Mapping[str, Any]
    ) -> None:
        row = {
            "name": name,
            "kind": kind,
            "version": version,
            "document": document,
            "changed_at": self._clock(),
            **marks,
        }
        connection.execute(DEFINITIONS.delete().where(DEFINITIONS.c.name == name))
        connection.execute(DEFINITIONS.insert().values(row))
        connection.execute(HISTORY.insert().values(row))

    def _drop(self, connection: sa.Connection, row: _Row) -> None:
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

    def _past_versions(self, connection: sa.Connection) -> dict[str, int]:
        """The last version of every name that there ever was."""
        query = sa.select(HISTORY.c.name, sa.func.max(HISTORY.c.version)).group_by(HISTORY.c.name)
        return {row[0]: row[1] for row in connection.execute(query)}

    # Reading -------------------------------------------------------------------

    def _rows(self, connection: sa.Connection) -> dict[str, _Row]:
        query = sa.select(*(DEFINITIONS.c[name] for name in _Row.__slots__)).order_by(DEFINITIONS.c.name)
        return {row.name: _Row(*row) for row in connection.execute(query)}

    def _read(self) -> dict[str, _Row]:
        with self._engine.connect() as connection:
            return self._rows(connection)

    def definitions(self) -> Definitions:
        """All that should run."""
        return _definitions(self._read())

    def streams(self) -> dict[str, RegisteredStream]:
        """All streams, by name."""
        rows = self._read()
        found = _definitions(rows).streams
        return {name: _registered_stream(rows[name], stream) for name, stream in found.items()}

    def services(self) -> dict[str, RegisteredService]:
        """All services, by name."""
        rows = self._read()
        found = _definitions(rows).services
        return {name: _registered_service(rows[name], service) for name, service in found.items()}

    def stream(self, name: str) -> RegisteredStream:
        """One stream; an error with a hint where it is not there."""
        row = _find(name, self._read(), "stream")
        return _registered_stream(row, _definitions({name: row}).streams[name])

    def service(self, name: str) -> RegisteredService:
        """One service; an error with a hint where it is not there."""
        row = _find(name, self._read(), "service")
        return _registered_service(row, _definitions({name: row}).services[name])

    def history(self, name: str) -> list[Past]:
        """All versions of a name, the oldest first."""
        query = sa.select(HISTORY).where(HISTORY.c.name == sa.literal(name, Text)).order_by(HISTORY.c.version)
        with self._engine.connect() as connection:
            return [
                Past(
                    row.version,
                    None if row.document is None else json.loads(row.document),
                    timestamps.to_datetime(row.changed_at),
                    row.forced,
                )
                for row in connection.execute(query)
            ]

    def revision(self) -> int:
        """A number that grows with every change of a stream or service; cheap to ask."""
        return self._counted("revision")


def _canonical(given: Definitions) -> Definitions:
    """What would be read back: made in Python, definitions may be what no file could say."""
    try:
        document = json.loads(json.dumps(to_dict(given)))
    except (TypeError, ValueError) as error:
        raise RegistryError(f"expected definitions of JSON values: {error}") from error
    return replace(from_dict(document), places=given.places)


def _definitions(rows: Mapping[str, _Row]) -> Definitions:
    documents: dict[str, dict[str, Any]] = {"streams": {}, "services": {}}
    for row in rows.values():
        documents[f"{row.kind}s"][row.name] = json.loads(row.document)
    read = from_dict(documents)
    return replace(
        read,
        streams={name: replace(each, origin=rows[name].origin) for name, each in read.streams.items()},
        services={name: replace(each, origin=rows[name].origin) for name, each in read.services.items()},
    )


def _refuse_secrets(definitions: Definitions) -> None:
    findings = Findings(definitions.places)
    note_secrets(definitions, findings)
    if findings.problems:
        raise DefinitionError(findings.problems)


def _services(rows: Mapping[str, _Row]) -> list[str]:
    return [name for name, row in rows.items() if row.kind == "service"]


def _changes(
    rows: Mapping[str, _Row],
    wanted: Mapping[str, tuple[str, str]],
    gone: set[str],
    past: Mapping[str, int],
    trusting: Collection[str],
) -> Changes:
    # What the operator states again, word for word, is another version where trust makes a difference.
    same = {
        name
        for name, each in wanted.items()
        if name in rows
        and (rows[name].kind, rows[name].document) == each
        and (name not in trusting or rows[name].origin == "operator")
    }
    return Changes(
        MappingProxyType({name: past.get(name, 0) + 1 for name in wanted if name not in rows}),
        MappingProxyType({name: past[name] + 1 for name in wanted if name in rows and name not in same}),
        MappingProxyType({name: rows[name].version for name in wanted if name in same}),
        MappingProxyType({name: rows[name].version for name in sorted(gone)}),
    )


def _trusting(definitions: Definitions, origin: Origin) -> set[str]:
    """The definitions of the operator that others could not state."""
    if origin != "operator":
        return set()
    given: tuple[Stream | Service, ...] = (*definitions.streams.values(), *definitions.services.values())
    return {each.name for each in given if needs_trust(each)}


def _upstream(names: Iterable[str], definitions: Definitions) -> set[str]:
    """Some services, and all that they read, directly or not."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += definitions.services[name].inputs if name in definitions.services else ()
    return found


def _without(given: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: each for name, each in given.items() if name not in names}


def _find(name: str, rows: Mapping[str, _Row], kind: str) -> _Row:
    known = [row.name for row in rows.values() if row.kind in kind]
    if name not in known:
        raise NotRegistered(f"there is no {kind} {name!r}{did_you_mean(name, known)}")
    return rows[name]


def _refuse_if_read(name: str, others: Definitions) -> None:
    readers = [each.name for each in others.services.values() if name in each.inputs]
    if readers:
        raise RegistryError(f"{name!r} can't be removed: {', '.join(readers)} read{'s' * (len(readers) == 1)} it")


def _registered_stream(row: _Row, stream: Stream) -> RegisteredStream:
    return RegisteredStream(stream, row.version, row.moment, row.forced)


def _registered_service(row: _Row, service: Service) -> RegisteredService:
    return RegisteredService(service, row.version, row.moment, row.forced, row.backfill)
