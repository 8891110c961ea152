"""Decides which definitions a caller may change, inside the transaction of the registry.

A service can pass on everything that it reads. A caller who defines a service must therefore see
all of its inputs, and a caller who changes or removes one must see all of it. The registered
policies count, not those in the change itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidegate.errors import DefinitionError, did_you_mean
from tidegate.gateway.auth.audience import need_scope
from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.auth.policy import Policies
from tidegate.gateway.http.problems import forbidden
from tidegate.model import Schema
from tidegate.registry import DefinitionChange
from tidegate.services import Definitions, Service, Stream
from tidegate.services.findings import Findings
from tidegate.services.schema_inference import input_path
from tidegate.services.trust import Allowed, may_use_source
from tidegate.services.writing import operator_document

_NO_SCHEMA = Schema({})
_ID = re.compile(r"(?<![A-Za-z0-9])_id(?![A-Za-z0-9_])")


class CallerGuard:
    """Checks the changes of one caller. Called by the registry, in the thread of its transaction."""

    def __init__(self, caller: Caller, allowed: Allowed) -> None:
        """`allowed`: the folders and connections that the caller may use."""
        self._caller, self._allowed = caller, allowed
        self._policies = Policies()
        self._new: frozenset[str] = frozenset()

    def need(self, change: DefinitionChange) -> None:
        """Raise a `Problem` (403), or an error as for an unknown name, unless the caller may make a change."""
        self._policies = _policies(change.before, change.past)
        applied: dict[str, Stream | Service] = {**change.given.streams, **change.given.services}
        registered: dict[str, Stream | Service] = {**change.before.streams, **change.before.services}
        self._new = frozenset(applied.keys() - registered.keys())
        if self._caller.may("operate"):
            return
        for name, definition in applied.items():
            self._need_name(name, registered, change.past)
            if _is_same(registered.get(name), definition):
                continue
            if isinstance(definition, Stream):
                self._need_stream(definition, registered.get(name))
            else:
                self._need_inputs(definition, change)
        if change.prune and (self._caller.services is not None or not self._policies.sees_all(self._caller)):
            detail = f"{self._caller.told} may not see all services, and so not remove all others"
            raise forbidden(detail)
        for name in sorted(change.gone):
            self._need_name(name, registered, change.past)
            if isinstance(stream := registered.get(name), Stream):
                self._need_source(stream)

    def sees(self, name: str) -> bool:
        """True if messages to the caller may name a stream or service and its attributes."""
        return name in self._new or self._policies.sees_whole(self._caller, name)

    def _need_name(self, name: str, registered: Mapping[str, Any], past: Mapping[str, Any]) -> None:
        """Refuse the name of a present or removed definition that the caller does not fully see.

        The log keeps the events of a removed stream or service. A new definition of its name would read them.
        """
        caller, policies = self._caller, self._policies
        need_scope(caller, name)
        if name in registered and policies.streams.exists(name):
            policies.streams.need(caller, name)
            if not policies.streams.sees(caller, name):
                detail = f"{caller.told} may put events into {name!r}, and not change it"
                raise forbidden(detail)
        elif name in registered:
            policies.need_whole(caller, name, "change or remove it")
        elif name in past and not policies.sees_whole(caller, name):
            detail = f"the name {name!r} was used for something that {caller.told} may not see: choose another"
            raise forbidden(detail)

    def _need_stream(self, stream: Stream, registered: Stream | Service | None) -> None:
        if isinstance(registered, Stream):
            self._need_source(registered)
            if registered.access != stream.access and not self._policies.streams.may_append(self._caller, stream.name):
                detail = f"{self._caller.told} may not put events into {stream.name!r}, and so not change its access"
                raise forbidden(detail)

    def _need_source(self, registered: Stream) -> None:
        """Refuse to change or remove a stream whose source the caller could not have stated."""
        if not may_use_source(registered, self._allowed):
            kind = type(registered.source).__name__.lower()
            detail = (
                f"the {kind} source of {registered.name!r} is not open to {self._caller.told}: ask an operator (role "
                "admin) to change or remove the stream"
            )
            raise forbidden(detail)

    def _need_inputs(self, service: Service, change: DefinitionChange) -> None:
        caller, policies = self._caller, self._policies
        for read in dict.fromkeys(service.inputs):
            need_scope(caller, read)
            if policies.streams.exists(read) and read in change.before.streams:
                is_seen = policies.streams.sees(caller, read)
            elif read in change.before.services:
                is_seen = policies.sees(caller, read)
            else:
                continue  # it is new, and its name was checked; or it does not exist, which validation reports
            if not is_seen:
                raise self._unknown(service, read, change)
            if policies.hidden(caller, read):
                detail = f"{service.name!r} would read {read!r}, of which {caller.told} may not see all attributes"
                raise forbidden(detail)
            self._need_no_ids(service, read)

    def _need_no_ids(self, service: Service, read: str) -> None:
        """Refuse a pipeline that reads ids which the caller sees only hashed."""
        written = json.dumps([operator_document(operator) for operator in service.pipeline])
        if self._policies.hides_ids(self._caller, read) and _ID.search(written):
            detail = f"{service.name!r} would read _id of {read!r}, which {self._caller.told} may not see"
            raise forbidden(detail)

    def _unknown(self, service: Service, read: str, change: DefinitionChange) -> DefinitionError:
        """Return the error for an unknown stream or service, so that the answer does not reveal that it exists."""
        findings = Findings(change.given.places)
        names = {*change.before.streams, *change.before.services, *self._new}
        hint = did_you_mean(read, sorted(name for name in names if self.sees(name)))
        findings.report(input_path(service, read), f"unknown stream or service {read!r}{hint}")
        return DefinitionError(findings.problems)


def _is_same(registered: Stream | Service | None, applied: Stream | Service) -> bool:
    return registered is not None and replace(registered, origin=applied.origin) == applied


def _policies(before: Definitions, past: Mapping[str, Stream | Service]) -> Policies:
    """Return the policies of all registered and removed definitions."""
    services = {name: definition for name, definition in past.items() if isinstance(definition, Service)} | dict(
        before.services
    )
    streams = {name: definition for name, definition in past.items() if isinstance(definition, Stream)} | dict(
        before.streams
    )
    policies = Policies()
    policies.define(services, dict.fromkeys(services, _NO_SCHEMA), streams=streams)
    return policies
