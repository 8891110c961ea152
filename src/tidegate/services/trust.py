"""Checks what a definition that comes over the network may use.

A file of the operator is trusted: it may import code, read any file and connect to any host. A definition that comes
over HTTP is not trusted, no matter who sends it: it may only use functions, folders and connections that the operator
lists in the profile. The check imports no code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from types import MappingProxyType

from tidegate.errors import DefinitionError, SchemaError, SourceError, did_you_mean
from tidegate.services import tables
from tidegate.services.definitions import NONE, Definitions, Demo, Files, Service, Stream
from tidegate.services.findings import Findings, Spot
from tidegate.services.operators import Custom, Enrich, Operator, Table
from tidegate.services.redaction import note_secrets
from tidegate.services.roots import Confinement
from tidegate.services.sources.declaration import ConnectionKind as ConnectionKind
from tidegate.services.sources.registry import connection_of

Audience = tuple[str, ...]
"""Who may use a resource besides admins: names of keys, subjects of tokens, or `role:NAME`."""

OR_STATE_AGAIN = "or state the definition in a file of the operator: tidegate apply FILE"
"""End of messages about definitions that are not trusted."""

PLAIN_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*){0,2}")


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that remote definitions may read."""

    path: FilePath
    audience: Audience = ()


@dataclass(frozen=True, slots=True)
class NamedConnection:
    """A connection of the profile, without its host and secret, which only the runner needs."""

    kind: ConnectionKind
    audience: Audience = ()
    push: tuple[str, ...] = ()
    """Topics that subscriptions may deliver to: names, or prefixes that end in *."""


@dataclass(frozen=True)
class Resources:
    """The resources that a profile lists for remote definitions. By default there are none."""

    functions: frozenset[str] = frozenset()
    """Names of registered functions. Every provider may use them."""
    roots: tuple[Root, ...] = ()
    connections: Mapping[str, NamedConnection] = field(default_factory=lambda: NONE)
    private: tuple[FilePath, ...] = ()
    """Folders and files that may never be read: the data folder, the profile, and files with secrets."""

    def allowed(self, is_admin: bool, is_among: Callable[[Audience], bool]) -> Allowed:
        """Return what one caller may use; `is_among` returns whether an audience includes the caller."""
        roots = tuple(root.path for root in self.roots if is_admin or is_among(root.audience))
        connections = {
            name: connection.kind
            for name, connection in self.connections.items()
            if is_admin or is_among(connection.audience)
        }
        return Allowed(self.functions, Confinement(roots, self.private), MappingProxyType(connections), is_admin)


@dataclass(frozen=True)
class Allowed:
    """The resources that the definitions of one caller may use."""

    functions: frozenset[str] = frozenset()
    files: Confinement = field(default_factory=lambda: Confinement(()))
    connections: Mapping[str, ConnectionKind] = field(default_factory=lambda: NONE)
    demo: bool = False
    """True if they may use the built-in demo generators."""


def admit(definitions: Definitions, allowed: Allowed) -> Definitions:
    """Check definitions that came over the network. Raises `DefinitionError` with all problems.

    Returns them with the current schema of every table filled in, so that no later check has to open the file.
    """
    findings = Findings(definitions.places)
    note_secrets(definitions, findings)
    for stream in definitions.streams.values():
        _note_source(stream, allowed, Spot(None, ("streams", stream.name, "source"), findings))
    services = {name: _admit_service(service, allowed, findings) for name, service in definitions.services.items()}
    if findings.problems:
        raise DefinitionError(findings.problems)
    return replace(definitions, services=MappingProxyType(services))


def may_use_source(stream: Stream, allowed: Allowed) -> bool:
    """Return True if a caller with these resources could have defined the source of a stream."""
    findings = Findings()
    _note_source(stream, allowed, Spot(None, ("streams", stream.name, "source"), findings))
    return not findings.problems


def needs_trust(definition: Stream | Service) -> bool:
    """Return True if a definition imports code, reads files or connects to hosts that the profile does not list."""
    if isinstance(definition, Stream):
        connection = connection_of(definition.source)
        return isinstance(definition.source, Files) or (connection is not None and connection[1] is None)
    return any(
        (isinstance(operator, Custom) and ":" in operator.function)
        or (isinstance(operator, Enrich) and operator.table.connection is None)
        for operator in definition.pipeline
    )


def note_unlisted(definitions: Definitions, resources: Resources, findings: Findings) -> None:
    """Report functions and connections that a trusted file names but the profile does not list."""
    allowed = resources.allowed(True, lambda _: True)
    for stream in definitions.streams.values():
        match connection_of(stream.source):
            case kind, str(name):
                spot = Spot(None, ("streams", stream.name, "source", kind, "connection"), findings)
                _note_connection(name, kind, allowed, spot)
    for service in definitions.services.values():
        for n, operator in enumerate(service.pipeline):
            spot = Spot(None, ("services", service.name, "pipeline", n), findings)
            match operator:
                case Custom(function) if ":" not in function:
                    _note_function(function, allowed, spot.at("custom", None).at("function", None))
                case Enrich(Table(connection=str(name))):
                    _note_connection(name, "jdbc", allowed, spot.at("enrich", None).at("table", None))


def _note_source(stream: Stream, allowed: Allowed, spot: Spot) -> None:
    match stream.source:
        case Demo() if not allowed.demo:
            spot.report("a demo source is for admins: expected http")
        case Files(path):
            problem = allowed.files.problem(path)
            if problem is not None:
                spot.at("files", None).report(problem)
    match connection_of(stream.source):
        case kind, None:
            spot.at(kind, None).report(_needs_connection(kind, allowed))
        case kind, str(name):
            _note_connection(name, kind, allowed, spot.at(kind, None).at("connection", None))


def _admit_service(service: Service, allowed: Allowed, findings: Findings) -> Service:
    spot = Spot(None, ("services", service.name, "pipeline"), findings)
    pipeline = tuple(
        _admit_operator(operator, allowed, spot.at(n, None)) for n, operator in enumerate(service.pipeline)
    )
    return replace(service, pipeline=pipeline)


def _admit_operator(operator: Operator, allowed: Allowed, spot: Spot) -> Operator:
    match operator:
        case Custom():
            _note_function(operator.function, allowed, spot.at("custom", None).at("function", None))
        case Enrich():
            return replace(operator, table=_admit_table(operator.table, allowed, spot.at("enrich", None)))
    return operator


def _note_function(name: str, allowed: Allowed, spot: Spot) -> None:
    registered = ", ".join(sorted(allowed.functions)) or "none"
    if ":" in name:
        spot.report(
            f"{name!r} is an import path, which only a file of the operator may hold; name a function that the profile "
            f"registers under functions; there are: {registered}"
        )
    elif name not in allowed.functions:
        hint = did_you_mean(name, allowed.functions)
        spot.report(
            f"no function {name!r} is registered{hint}; the operator adds it to the profile: "
            f"functions: {{{name}: 'module:function'}}"
        )


def _admit_table(table: Table, allowed: Allowed, spot: Spot) -> Table:
    if table.connection is not None:
        at = spot.at("table", None)
        _note_connection(table.connection, "jdbc", allowed, at.at("connection", None))
        if not PLAIN_TABLE.fullmatch(table.table or ""):
            at.at("table", None).report(f"expected the name of a table, such as city.cameras, not {table.table!r}")
        return table
    if table.url is not None:
        spot.at("jdbc", None).report(_needs_connection("jdbc", allowed))
        return table
    problem = allowed.files.problem(str(table.path))
    if problem is not None:
        spot.at("table", None).report(problem)
        return table
    try:
        return replace(table, schema=tables.table_schema(table, allowed.files.opener(str(table.path))))
    except (SchemaError, SourceError) as error:
        spot.at("table", None).report(str(error))
        return table


def _needs_connection(kind: ConnectionKind, allowed: Allowed) -> str:
    names = ", ".join(name for name, its_kind in allowed.connections.items() if its_kind == kind) or "none"
    return (
        f"a definition that comes over the network can't name a host: expected {{connection: NAME, ...}} with a {kind} "
        f"connection of the profile that is open to you; there are: {names}"
    )


def _note_connection(name: str, kind: ConnectionKind, allowed: Allowed, spot: Spot) -> None:
    names = [connection for connection, its_kind in allowed.connections.items() if its_kind == kind]
    if name not in names:
        hint = did_you_mean(name, names)
        spot.report(
            f"no {kind} connection {name!r} is open to you{hint}; the operator adds it to the profile: "
            f"connections: {{{name}: {{{kind}: {{...}}}}}}"
        )
