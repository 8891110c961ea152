"""Decides which services a caller sees, and which of their attributes.

A service that a caller may not see does not exist for them: it is neither in lists nor in hints, and
the answer is the same as for an unknown name. A hidden attribute is missing from the schema that the
caller gets, so that neither their filters nor their selections can name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidegate.delivery.encoding import Encoding
from tidegate.errors import NotRegistered, TidegateError, did_you_mean
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning, Semantics
from tidegate.gateway.auth.audience import admits, is_among, is_in_scope, need_scope
from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.auth.id_hashing import IdHashing
from tidegate.gateway.auth.stream_policy import StreamPolicies
from tidegate.gateway.http.problems import HttpProblem, forbidden
from tidegate.model import Schema
from tidegate.model.hashed_ids import HashedIds
from tidegate.services import Service, Stream, audit_stream, catalog
from tidegate.services.definitions import NONE

_INTERNALS = {catalog.STREAM: ("definition",), "_status": ("error", "reason")}
"""The streams about all services, and their attributes that show how a service is implemented."""


class Policies:
    """The current access policies of all services."""

    def __init__(self, semantics: Semantics | None = None, id_key: bytes = b"") -> None:
        """`semantics` evaluates filters with ~; None: they are refused. `id_key` is the HMAC key of hashed ids."""
        self._semantics, self._id_key = semantics, id_key
        self._services: Mapping[str, Service] = {}
        self._stream_definitions: Mapping[str, Stream] = {}
        self._schemas: Mapping[str, Schema] = {}
        self._keys: Mapping[str, str] = {}
        self._visible: dict[tuple[str, frozenset[str]], Schema] = {}
        self._id_hashing = IdHashing(id_key, self, {}, {})
        self.streams = StreamPolicies()
        """The policies of raw streams."""

    def define(
        self,
        services: Mapping[str, Service],
        schemas: Mapping[str, Schema],
        keys: Mapping[str, str] = NONE,
        streams: Mapping[str, Stream] = NONE,
    ) -> None:
        """Replace all definitions. `schemas` and `keys` are the output schemas and key attributes of services."""
        self._services, self._schemas, self._keys, self._visible = services, schemas, keys, {}
        self._stream_definitions, self.streams = streams, StreamPolicies(streams)
        self._id_hashing = IdHashing(self._id_key, self, streams, services)

    # Services ----------------------------------------------------------------------------

    @property
    def has_public(self) -> bool:
        """True if there is a public service."""
        return any(service.access.to == "public" for service in self._services.values())

    def is_public(self, name: str) -> bool:
        """True if a service exists and is public."""
        return name in self._services and self._services[name].access.to == "public"

    def exists(self, name: str) -> bool:
        """True if there is a service of this name, whether or not a caller may see it."""
        return name in self._services

    def sees(self, caller: Caller, name: str) -> bool:
        """True if a caller sees a service. Only callers who see all services see `_status` and the like."""
        service = self._services.get(name)
        if not caller.may("read"):
            return False
        if service is not None and service.access.to == "public":
            return True
        if name not in self._schemas or not is_in_scope(caller, name):
            return False
        if name == audit_stream.STREAM:  # a key whose scope names the stream is not enough
            return caller.may("operate")
        if caller.may("operate"):
            return True
        if service is None:
            return name in _INTERNALS and (caller.services is not None or self.sees_all(caller))
        return admits(service.access.to, caller)

    def sees_whole(self, caller: Caller, name: str) -> bool:
        """True if a caller sees a service with all of its attributes, or a raw stream."""
        if self.streams.exists(name):
            return self.streams.sees(caller, name)
        return self.sees(caller, name) and not self.hidden(caller, name)

    def sees_all(self, caller: Caller) -> bool:
        """True if a caller sees every stream, every service and every attribute."""
        return all(self.sees_whole(caller, name) for name in (*self._stream_definitions, *self._services))

    def may_keep(self, caller: Caller, name: str) -> bool:
        """True if a caller may have a subscription to a service, which may have been removed."""
        return name not in self._services or self.sees(caller, name)

    def need(self, caller: Caller, name: str) -> None:
        """Raise `NotRegistered`, or an `HttpProblem` (403), unless a caller sees a service."""
        if self.sees(caller, name):
            return
        if not is_in_scope(caller, name):
            need_scope(caller, name)
        seen = [service for service in self._services if self.sees(caller, service)]
        raise NotRegistered(f"no service {name!r}{did_you_mean(name, seen)}")

    def need_whole(self, caller: Caller, name: str, what: str) -> None:
        """Raise unless a caller sees all attributes of a service. `what` names the refused action in the message."""
        self.need(caller, name)
        if self.hidden(caller, name):
            detail = f"{caller.told} may not see all attributes of {name!r}, and so not {what}"
            raise forbidden(detail)

    def need_quarantine(self, caller: Caller, name: str) -> None:
        """Raise unless a caller fully sees a service and its inputs: a quarantined event shows both."""
        self.need(caller, name)
        service = self._services.get(name)
        inputs = () if service is None else service.inputs
        if any(self.withheld(caller, read) or self.is_withheld(caller, read) for read in (name, *inputs)):
            detail = f"what {name!r} has refused shows all that it reads, and {caller.told} may not see all of that"
            raise forbidden(detail)

    # Attributes --------------------------------------------------------------------------

    def hidden(self, caller: Caller, name: str) -> frozenset[str]:
        """Return the attributes of a service that a caller does not see."""
        if name in _INTERNALS:
            return self._hidden_internals(caller, name)
        service = self._services.get(name)
        if service is None or not service.access.fields or caller.may("operate"):
            return frozenset()
        return frozenset(field for field, names in service.access.fields.items() if not is_among(caller, names))

    def hides_ids(self, caller: Caller, name: str) -> bool:
        """True if ids of a service may be derived from what a caller may not see, in the service or upstream."""
        return self._id_hashing.hides_ids(caller, name)

    def ids(self, caller: Caller, name: str) -> HashedIds | None:
        """Return how the ids of a service are hashed for a caller; None if they see the ids themselves."""
        return self._id_hashing.ids(caller, name)

    def withheld(self, caller: Caller, name: str) -> frozenset[str]:
        """Return the hidden attributes of a service, and `_id` if a caller sees its ids only hashed."""
        hidden = self.hidden(caller, name)
        return hidden | {"_id"} if self.hides_ids(caller, name) else hidden

    def is_withheld(self, caller: Caller, name: str) -> bool:
        """True if the policy of a stream or service excludes a caller. Ignores the scope of their key."""
        definition = self._stream_definitions.get(name) or self._services.get(name)
        to = "keys" if definition is None else definition.access.to
        return not caller.may("operate") and isinstance(to, tuple) and not is_among(caller, to)

    def visible_encoding(self, encoding: Encoding, caller: Caller, name: str) -> Encoding:
        """Return an encoding without what a caller does not see of a service."""
        return replace(encoding, hidden=self.hidden(caller, name), ids=self.ids(caller, name))

    def schema(self, caller: Caller, name: str) -> Schema:
        """Return the visible part of a service's output schema. Raises if the caller does not see the service."""
        self.need(caller, name)
        hidden = self.withheld(caller, name)
        if not hidden:
            return self._schemas[name]
        schema = self._visible.get((name, hidden))
        if schema is None:
            schema = self._visible[name, hidden] = self._schemas[name].without(hidden)
        return schema

    def key(self, caller: Caller, name: str) -> str | None:
        """Return the key attribute of a service; None if there is none, or the caller does not see it."""
        key = self._keys.get(name)
        return key if key is not None and self.schema(caller, name).root.get(key) is not None else None

    def meaning(self, name: str) -> Meaning | None:
        """Return the semantics for filters with ~ over a service, with the service's themes; None without semantics."""
        service = self._services.get(name)
        return Meaning.of(self._semantics, themes=() if service is None else service.themes)

    def obstacle(self, caller: Caller, service: str, filter_: tuple[str, tuple[Any, ...]] | None) -> str | None:
        """Return why a caller may not subscribe to a service with a filter (text, parameters); None if they may."""
        try:
            schema = self.schema(caller, service)
            if filter_ is not None and self.withheld(caller, service):
                Filter(filter_[0], schema, list(filter_[1]))
        except (TidegateError, HttpProblem) as problem:
            return str(problem)
        return None

    def _hidden_internals(self, caller: Caller, name: str) -> frozenset[str]:
        """Return the attributes of `_services` and `_status` that only providers who see everything may see."""
        if caller.may("operate") or (caller.may("define") and caller.services is None and self.sees_all(caller)):
            return frozenset()
        schema = self._schemas.get(name)
        return frozenset(
            field for field in _INTERNALS[name] if schema is not None and schema.root.get(field) is not None
        )
