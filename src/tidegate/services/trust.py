"""What a definition that comes over the network may use.

A file that the operator passes is trusted: it may import code, read any file
and reach any host. A definition that comes by HTTP may not, whoever sends it:
it names functions, folders and connections that the operator has listed in the
profile. Nothing is imported or opened to check that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Literal

from tidegate.errors import DefinitionError, SchemaError, SourceError, did_you_mean
from tidegate.services import tables
from tidegate.services.definitions import NONE, Definitions, Demo, Files, Kafka, Mqtt, Service, Stream
from tidegate.services.findings import Findings, Spot
from tidegate.services.operators import Custom, Enrich, Operator, Table
from tidegate.services.redaction import note_secrets
from tidegate.services.roots import Confinement

ConnectionKind = Literal["jdbc", "mqtt", "kafka"]
Audience = tuple[str, ...]
"""Who may use something beside admins: names of keys, subjects of tokens, or `role:NAME`."""

PLAIN_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*){0,2}")


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that definitions of others may read."""

    path: FilePath
    audience: Audience = ()


@dataclass(frozen=True, slots=True)
class NamedConnection:
    """What is known of a connection where it is only named: neither its host nor its secret."""

    kind: ConnectionKind
    audience: Audience = ()


@dataclass(frozen=True)
class Resources:
    """All that a profile lists for definitions. The default lists nothing."""

    functions: frozenset[str] = frozenset()
    """Names of registered functions: every provider may use them."""
    roots: tuple[Root, ...] = ()
    connections: Mapping[str, NamedConnection] = field(default_factory=lambda: NONE)
    private: tuple[FilePath, ...] = ()
    """Folders and files that no root opens: the data folder, the profile, and files with secrets."""

    def allowed(self, is_admin: bool, is_among: Callable[[Audience], bool]) -> Allowed:
        """Give what one caller may use; `is_among` says whether an audience names them."""
        roots = tuple(each.path for each in self.roots if is_admin or is_among(each.audience))
        connections = {
            name: each.kind for name, each in self.connections.items() if is_admin or is_among(each.audience)
        }
        return Allowed(self.functions, Confinement(roots, self.private), MappingProxyType(connections), is_admin)


@dataclass(frozen=True)
class Allowed:
    """What the definitions of one caller may use."""

    functions: frozenset[str] = frozenset()
    files: Confinement = field(default_factory=lambda: Confinement(()))
    connections: Mapping[str, ConnectionKind] = field(default_factory=lambda: NONE)
    demo: bool = False
    """Whether they may use the built-in generators."""


def admit(definitions: Definitions, allowed: Allowed) -> Definitions:
    """Check definitions that came over the network, or raise a `DefinitionError` with every problem.

    Gives them with the schema of every table written down, as it is now: later nobody needs to open the file to
    know it.
    """
    findings = Findings(definitions.places)
    note_secrets(definitions, findings)
    for stream in definitions.streams.values():
        _note_source(stream, allowed, Spot(None, ("streams", stream.name, "source"), findings))
    services = {name: _admitted(each, allowed, findings) for name, each in definitions.services.items()}
    if findings.problems:
        raise DefinitionError(findings.problems)
    return replace(definitions, services=MappingProxyType(services))


def may_use_source(stream: Stream, allowed: Allowed) -> bool:
    """Say whether somebody might have stated a stream with the source that it has."""
    findings = Findings()
    _note_source(stream, allowed, Spot(None, ("streams", stream.name, "source"), findings))
    return not findings.problems


def needs_trust(definition: Stream | Service) -> bool:
    """Say whether a definition imports code, reads files or reaches hosts that the profile does not list."""
    if isinstance(definition, Stream):
        match definition.source:
            case Files():
                return True
            case Kafka(connection=name) | Mqtt(connection=name):
                return name is None
        return False
    return any(
        (isinstance(each, Custom) and ":" in each.function)
        or (isinstance(each, Enrich) and each.table.connection is None)
        for each in definition.pipeline
    )


def note_unlisted(definitions: Definitions, resources: Resources, findings: Findings) -> None:
    """Note functions and connections that a trusted file names, and the profile does not list."""
    allowed = resources.allowed(True, lambda _: True)
    for stream in definitions.streams.values():
        if isinstance(stream.source, Kafka | Mqtt) and stream.source.connection is not None:
            kind: ConnectionKind = "kafka" if isinstance(stream.source, Kafka) else "mqtt"
            spot = Spot(None, ("streams", stream.name, "source", kind, "connection"), findings)
            _note_connection(stream.source.connection, kind, allowed, spot)
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
            spot.blame("a demo source is for admins: expected http")
        case Files(path):
            problem = allowed.files.problem(path)
            if problem is not None:
                spot.at("files", None).blame(problem)
        case Kafka() | Mqtt():
            kind: ConnectionKind = "kafka" if isinstance(stream.source, Kafka) else "mqtt"
            at = spot.at(kind, None)
            if stream.source.connection is None:
                at.blame(_needs_connection(kind, allowed))
            else:
                _note_connection(stream.source.connection, kind, allowed, at.at("connection", None))


def _admitted(service: Service, allowed: Allowed, findings: Findings) -> Service:
    spot = Spot(None, ("services", service.name, "pipeline"), findings)
    pipeline = tuple(_operator(each, allowed, spot.at(n, None)) for n, each in enumerate(service.pipeline))
    return replace(service, pipeline=pipeline)


def _operator(operator: Operator, allowed: Allowed, spot: Spot) -> Operator:
    match operator:
        case Custom():
            _note_function(operator.function, allowed, spot.at("custom", None).at("function", None))
        case Enrich():
            return replace(operator, table=_table(operator.table, allowed, spot.at("enrich", None)))
    return operator


def _note_function(name: str, allowed: Allowed, spot: Spot) -> None:
    registered = ", ".join(sorted(allowed.functions)) or "none"
    if ":" in name:
        spot.blame(
            f"{name!r} is an import path, which only a file of the operator may hold; name a function that the profile "
            f"registers under functions; there are: {registered}"
        )
    elif name not in allowed.functions:
        hint = did_you_mean(name, allowed.functions)
        spot.blame(
            f"no function {name!r} is registered{hint}; the operator adds it to the profile: "
            f"functions: {{{name}: 'module:function'}}"
        )


def _table(table: Table, allowed: Allowed, spot: Spot) -> Table:
    if table.connection is not None:
        at = spot.at("table", None)
        _note_connection(table.connection, "jdbc", allowed, at.at("connection", None))
        if not PLAIN_TABLE.fullmatch(table.table or ""):
            at.at("table", None).blame(f"expected the name of a table, such as city.cameras, not {table.table!r}")
        return table
    if table.url is not None:
        spot.at("jdbc", None).blame(_needs_connection("jdbc", allowed))
        return table
    problem = allowed.files.problem(str(table.path))
    if problem is not None:
        spot.at("table", None).blame(problem)
        return table
    try:
        return replace(table, schema=tables.table_schema(table, allowed.files.opener(str(table.path))))
    except (SchemaError, SourceError) as error:
        spot.at("table", None).blame(str(error))
        return table


def _needs_connection(kind: ConnectionKind, allowed: Allowed) -> str:
    names = ", ".join(name for name, each in allowed.connections.items() if each == kind) or "none"
    return (
        f"a definition that comes over the network names no host of its own: expected {{connection: NAME, ...}} with a "
        f"{kind} connection of the profile that is open to you; there are: {names}"
    )


def _note_connection(name: str, kind: ConnectionKind, allowed: Allowed, spot: Spot) -> None:
    names = [each for each, of in allowed.connections.items() if of == kind]
    if name not in names:
        hint = did_you_mean(name, names)
        spot.blame(
            f"no {kind} connection {name!r} is open to you{hint}; the operator adds it to the profile: "
            f"connections: {{{name}: {{{kind}: {{...}}}}}}"
        )
