"""A registry in a relational database: its streams and services. SQL that every database has."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from tidegate.errors import (
    BreakingChange,
    DefinitionError,
    DefinitionProblem,
    NotRegistered,
    RegistryError,
    did_you_mean,
    error_text,
)
from tidegate.model import timestamps
from tidegate.registry.beginnings import FixedEnds, fix, forget, read
from tidegate.registry.keys import SqlKeys
from tidegate.registry.leases import SqlLeases
from tidegate.registry.links import SqlLinks
from tidegate.registry.registry import (
    Beginning,
    ChangeGuard,
    Changes,
    DefinitionChange,
    Ends,
    Past,
    RegisteredService,
    RegisteredStream,
)
from tidegate.registry.secrets import Keyring
from tidegate.registry.store import unchanged
from tidegate.registry.subscriptions import SqlSubscriptions
from tidegate.registry.tables import DEFINITIONS, HISTORY, REVISIONS, Text
from tidegate.services import Definitions, Service, Shape, Stream, check, from_dict, to_dict
from tidegate.services.check import examine
from tidegate.services.definitions import Access, Origin
from tidegate.services.findings import Findings
from tidegate.services.redaction import note_secrets
from tidegate.services.trust import needs_trust
from tidegate.services.versions import breaking

_logger = logging.getLogger(__name__)


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
        ends: Ends | None = None,
    ) -> None:
        """`ends` reads the log's end, where new services begin; None: each begins at the end when it first runs."""
        super().__init__(engine, clock, name, keyring)
        self._check_functions, self._ends = check_functions, ends
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
        guard: ChangeGuard | None = None,
    ) -> Changes:
        """Add and change streams and services; `prune`: remove all others. All or nothing."""
        definitions = _canonical(definitions)
        _refuse_secrets(definitions)
        ends = self._ends_for(definitions, backfill)
        imported = definitions.services.keys() if origin == "operator" and self._check_functions else ()
        with self._changing("revision") as connection:
            rows = self._rows(connection)
            wanted = {
                each.name: (kind, json.dumps(to_dict(each), ensure_ascii=False))
                for kind, given in (("stream", definitions.streams), ("service", definitions.services))
                for each in given.values()
            }
            gone = {name for name in rows if prune and name not in wanted}
            before = _definitions(rows)
            if guard is not None:
                past = self._past_definitions(connection, wanted.keys() - rows.keys())
                guard.need(DefinitionChange(before, definitions, frozenset(gone), past, prune))
            forced = self._check(before, definitions, gone, force, imported, guard or _ANYBODY)
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
                if kind == "service":
                    earlier = _service(rows.get(name))
                    fix(connection, definitions.services[name], version, earlier, ends, backfill=backfill)
            for name in gone:
                self._drop(connection, rows[name])
            return changes

    def _ends_for(self, definitions: Definitions, backfill: bool) -> FixedEnds:
        """Read the ends of what new and changed services read, before the transaction: a log may take its time.

        A concurrent change may make others necessary; those are read inside it.
        """
        ends = FixedEnds(self._ends)
        if not backfill and definitions.services:
            before = _definitions(self._read()).services
            changed = [each for each in definitions.services.values() if not _is_same(before.get(each.name), each)]
            ends.ask({stream for each in changed for stream in each.inputs})
        return ends

    def _check(
        self,
        before: Definitions,
        given: Definitions,
        gone: set[str],
        force: bool,
        imported: Collection[str],
        guard: ChangeGuard,
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
            _refuse_if_read(name, after, guard)
        old, _ = examine(before, functions=())
        # What does not hold together any more, by the rules of another version, must not refuse all other changes.
        unsound = {name for name in before.services if name not in old and name not in given.services}
        after = replace(after, services=_without(after.services, unsound))
        shapes = _checked(after, imported, guard)
        broken = {
            name: sentences
            for name, shape in shapes.items()
            if name in old and (sentences := breaking(old[name].output, shape.output))
        }
        unseen = [name for name in broken if not guard.sees(name)]
        if unseen:
            raise _breaks_unseen(len(unseen))
        if broken and not force:
            raise BreakingChange(broken)
        return _upstream(broken, after)

    def remove(self, name: str, *, force: bool = False, guard: ChangeGuard | None = None) -> int:
        """Remove a stream or service that nothing reads; give the version that it had."""
        with self._changing("revision") as connection:
            rows = self._rows(connection)
            row = _find(name, rows, "stream or service", hints=guard is None)
            if guard is not None:
                guard.need(DefinitionChange(_definitions(rows), Definitions(), frozenset({name}), {}))
            others = _definitions({key: each for key, each in rows.items() if key != name})
            _refuse_if_read(name, others, guard or _ANYBODY)
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
        forget(connection, row.name)
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

    def _past_definitions(self, connection: sa.Connection, names: Iterable[str]) -> dict[str, Stream | Service]:
        """The last definitions of some names that are not registered now."""
        found: dict[str, Stream | Service] = {}
        wanted = set(names)
        if not wanted:
            return found
        columns = HISTORY.c.name, HISTORY.c.kind, HISTORY.c.document
        query = sa.select(*columns).where(HISTORY.c.document.is_not(None)).order_by(HISTORY.c.version)
        if len(wanted) <= _MAX_NAMES:
            query = query.where(HISTORY.c.name.in_(sorted(wanted)))
        for name, kind, document in connection.execute(query):
            if name in wanted:
                found[name] = _past_definition(name, kind, document)
        return found

    # Reading -------------------------------------------------------------------

    def _rows(self, connection: sa.Connection) -> dict[str, _Row]:
        query = sa.select(*(DEFINITIONS.c[name] for name in _Row.__slots__)).order_by(DEFINITIONS.c.name)
        return {row.name: _Row(*row) for row in connection.execute(query)}

    def _read(self) -> dict[str, _Row]:
        with self._engine.connect() as connection:
            return self._rows(connection)

    def definitions(self) -> Definitions:
        """All that should run, without what is `unreadable`."""
        return _definitions(self._read())

    def unreadable(self) -> dict[str, str]:
        """By name, why a stream or service can't be read: another version of Tidegate may have written it."""
        found = {}
        for name, row in self._read().items():
            try:
                _parsed(row)
            except Exception as problem:
                found[name] = f"its definition can't be read: {error_text(problem)}"
        return found

    def streams(self) -> dict[str, RegisteredStream]:
        """All streams, by name."""
        rows = self._read()
        found = _definitions(rows).streams
        return {name: _registered_stream(rows[name], stream) for name, stream in found.items()}

    def services(self) -> dict[str, RegisteredService]:
        """All services, by name."""
        with self._engine.connect() as connection:
            rows, begins = self._rows(connection), read(connection)
        found = _definitions(rows).services
        return {name: _registered_service(rows[name], service, begins.get(name)) for name, service in found.items()}

    def stream(self, name: str) -> RegisteredStream:
        """One stream; an error with a hint where it is not there."""
        row = _find(name, self._read(), "stream")
        return _registered_stream(row, _parsed(row).streams[name])

    def service(self, name: str) -> RegisteredService:
        """One service; an error with a hint where it is not there."""
        with self._engine.connect() as connection:
            row, begins = _find(name, self._rows(connection), "service"), read(connection, name)
        return _registered_service(row, _parsed(row).services[name], begins.get(name))

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
    """What rows define, without those that can't be read."""
    documents: dict[str, dict[str, Any]] = {"streams": {}, "services": {}}
    try:
        for row in rows.values():
            documents[f"{row.kind}s"][row.name] = json.loads(row.document)
        return _with_origins(from_dict(documents), rows)
    except Exception:  # one of them or more: each for itself
        return _each_readable(rows)


def _each_readable(rows: Mapping[str, _Row]) -> Definitions:
    streams: dict[str, Stream] = {}
    services: dict[str, Service] = {}
    for row in rows.values():
        try:
            found = _parsed(row)
        except Exception as problem:
            _logger.warning("%s %s can't be read: %s", row.kind, row.name, error_text(problem))
            continue
        streams.update(found.streams)
        services.update(found.services)
    return Definitions(streams, services)


def _parsed(row: _Row) -> Definitions:
    return _with_origins(from_dict({f"{row.kind}s": {row.name: json.loads(row.document)}}), {row.name: row})


def _with_origins(definitions: Definitions, rows: Mapping[str, _Row]) -> Definitions:
    return replace(
        definitions,
        streams={name: replace(each, origin=rows[name].origin) for name, each in definitions.streams.items()},
        services={name: replace(each, origin=rows[name].origin) for name, each in definitions.services.items()},
    )


def _service(row: _Row | None) -> Service | None:
    """The service of a row; None where the row is another thing, or can't be read."""
    if row is None or row.kind != "service":
        return None
    return _definitions({row.name: row}).services.get(row.name)


def _refuse_secrets(definitions: Definitions) -> None:
    findings = Findings(definitions.places)
    note_secrets(definitions, findings)
    if findings.problems:
        raise DefinitionError(findings.problems)


def _is_same(before: Service | None, given: Service) -> bool:
    return before is not None and replace(before, origin=given.origin) == given


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


def _find(name: str, rows: Mapping[str, _Row], kind: str, *, hints: bool = True) -> _Row:
    known = [row.name for row in rows.values() if row.kind in kind]
    if name not in known:
        raise NotRegistered(f"there is no {kind} {name!r}{did_you_mean(name, known) if hints else ''}")
    return rows[name]


def _refuse_if_read(name: str, others: Definitions, guard: ChangeGuard) -> None:
    readers = [each.name for each in others.services.values() if name in each.inputs]
    if readers:
        seen = [each for each in readers if guard.sees(each)]
        unseen = _services_unseen(len(readers) - len(seen))
        told = " and ".join(each for each in (", ".join(seen), unseen) if each)
        raise RegistryError(f"{name!r} can't be removed: {told} read{'s' * (len(readers) == 1)} it")


class _Anybody:
    """Decides for the operator, who may make every change."""

    def need(self, change: DefinitionChange) -> None:
        """Allow it."""

    def sees(self, name: str) -> bool:  # noqa: ARG002 - whatever it is
        """Name everything."""
        return True


_ANYBODY = _Anybody()


def _checked(after: Definitions, functions: Collection[str], guard: ChangeGuard) -> dict[str, Shape]:
    """Check definitions as a whole; problems of services that are not seen are counted, not shown."""
    try:
        return check(after, functions=functions, hints=guard.sees)
    except DefinitionError as error:
        seen = [each for each in error.problems if guard.sees(_subject(each, after))]
        if len(seen) == len(error.problems):
            raise
        if seen:
            raise DefinitionError(seen) from None
        raise _breaks_unseen(len({_subject(each, after) for each in error.problems})) from None


def _subject(problem: DefinitionProblem, definitions: Definitions) -> str:
    """The stream or service that a problem is in."""
    _, _, rest = problem.path.partition(".")
    names = [each for each in (*definitions.streams, *definitions.services) if f"{rest}.".startswith(f"{each}.")]
    return max(names, key=len, default=rest)


def _breaks_unseen(count: int) -> RegistryError:
    return RegistryError(f"this breaks {_services_unseen(count)} downstream: ask an operator to make the change")


def _services_unseen(count: int) -> str:
    return "" if count == 0 else f"{count} service{'s' * (count != 1)} that you may not see"


_MAX_NAMES = 500
"""Names in one query: a database takes only so many parameters."""


def _past_definition(name: str, kind: str, document: str) -> Stream | Service:
    """A definition of the past; one that can't be read any more is for nobody but operators."""
    try:
        made = from_dict({f"{kind}s": {name: json.loads(document)}})
    except DefinitionError:
        return Service(name, (), access=Access(to=()))
    return made.streams.get(name) or made.services[name]


def _registered_stream(row: _Row, stream: Stream) -> RegisteredStream:
    return RegisteredStream(stream, row.version, row.moment, row.forced)


def _registered_service(row: _Row, service: Service, begins: Mapping[str, Beginning] | None) -> RegisteredService:
    return RegisteredService(service, row.version, row.moment, row.forced, row.backfill, begins or {})
