"""What each caller sees: which services, and which of their attributes.

A service that a caller may not see is, to them, not there: not in lists, nor in
hints, and the answer is that of a name that nobody has. An attribute that they
may not see is not in the schema that they get, so that no filter of theirs, nor
what they select, can name it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast, get_args

from tidegate.delivery.encoding import Encoding
from tidegate.delivery.pacing import paced
from tidegate.delivery.subscriber import Sink
from tidegate.delivery.webhook import encoding_of
from tidegate.errors import NotRegistered, TidegateError, did_you_mean
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning, Semantics
from tidegate.gateway import parameters
from tidegate.gateway.callers import ANYBODY, GUEST, Caller, of_key
from tidegate.gateway.certificates import ID_PREFIX, Certificates
from tidegate.gateway.problems import Problem, forbidden
from tidegate.gateway.quotas import Meter
from tidegate.model import Schema, timestamps
from tidegate.registry import Key, Role
from tidegate.services import Definitions, Service
from tidegate.services.definitions import NONE
from tidegate.subscriptions import Subscription

_MADE_OF = {"_services": ("definition",), "_status": ("error", "reason")}
"""Of what is told of all services, the attributes that tell how they are made."""
ROLE = "role:"
"""What a name begins with that means a role."""
_OWNERLESS = "it was created while no keys were required, and belongs to nobody; an admin can adopt it"


class Policies:
    """The access of all services, as they are now."""

    def __init__(self, semantics: Semantics | None = None, *, needs_keys: bool = False) -> None:
        """`semantics` is what filters with ~ are evaluated by; None: there is nothing.

        `needs_keys`: callers have to authenticate, so that what nobody owns is delivered to nobody.
        """
        self._semantics, self._needs_keys = semantics, needs_keys
        self._services: Mapping[str, Service] = {}
        self._schemas: Mapping[str, Schema] = {}
        self._outputs: Mapping[str, str] = {}
        self._visible: dict[tuple[str, frozenset[str]], Schema] = {}
        self.keys: Mapping[str, Key] = {}
        """All API keys by id, as they were a moment ago."""
        self.certificates = Certificates()
        """Who is known by a client certificate."""

    def define(
        self, services: Mapping[str, Service], schemas: Mapping[str, Schema], keys: Mapping[str, str] = NONE
    ) -> None:
        """Take in what services there are; `schemas` and `keys` are those of all outputs that are served."""
        self._services, self._schemas, self._outputs, self._visible = services, schemas, keys, {}

    # Services ----------------------------------------------------------------------------

    @property
    def has_public(self) -> bool:
        """Whether there is anything for whoever is not known."""
        return any(each.access.to == "public" for each in self._services.values())

    def is_public(self, name: str) -> bool:
        """Whether everybody sees a service."""
        return name in self._services and self._services[name].access.to == "public"

    def is_there(self, name: str) -> bool:
        """Whether there is such a service, whoever sees it."""
        return name in self._services

    def sees(self, caller: Caller, name: str) -> bool:
        """Whether a caller sees a service; of how all of them do only who sees all."""
        service = self._services.get(name)
        if service is not None and service.access.to == "public":
            return True
        if name not in self._schemas or not _is_for(caller, name):
            return False
        if caller.role == "admin":
            return True
        if service is None:
            return caller.services is not None or self.sees_all(caller)
        return caller.id is not None and (service.access.to == "keys" or is_among(caller, service.access.to))

    def sees_all(self, caller: Caller) -> bool:
        """Whether there is no service, nor an attribute of one, that a caller does not see."""
        return all(self.sees(caller, each) and not self.hidden(caller, each) for each in self._services)

    def need_change(self, caller: Caller, definitions: Definitions, *, prune: bool = False) -> None:
        """Refuse definitions of what a caller does not see, and those that would show it to them.

        What a service reads it can give to everybody: so whoever defines one sees all that it reads.
        """
        for stream in definitions.streams:
            need_scope(caller, stream)
        for name, service in definitions.services.items():
            if self.is_there(name):
                self.need(caller, name)
            need_scope(caller, name)
            for read in set(service.inputs) - definitions.services.keys():
                if self.is_there(read):
                    self.need(caller, read)
                need_scope(caller, read)
                if self.hidden(caller, read):
                    detail = f"{name!r} would read {read!r}, of which {caller.told} may not see all attributes"
                    raise forbidden(detail)
        if prune and (caller.services is not None or not self.sees_all(caller)):
            detail = f"{caller.told} may not see all services, and so not remove all others"
            raise forbidden(detail)

    def may_keep(self, caller: Caller, name: str) -> bool:
        """Whether a caller may have a subscription to a service, which may be gone."""
        return name not in self._services or self.sees(caller, name)

    def need(self, caller: Caller, name: str) -> None:
        """Refuse what a caller does not see."""
        if self.sees(caller, name):
            return
        if not _is_for(caller, name):
            need_scope(caller, name)
        seen = [each for each in self._services if self.sees(caller, each)]
        raise NotRegistered(f"no service {name!r}{did_you_mean(name, seen)}")

    # Attributes --------------------------------------------------------------------------

    def hidden(self, caller: Caller, name: str) -> frozenset[str]:
        """The attributes of a service that a caller does not see."""
        if name in _MADE_OF:
            return self._hidden_of_all(caller, name)
        service = self._services.get(name)
        if service is None or not service.access.fields or caller.role == "admin":
            return frozenset()
        return frozenset(each for each, who in service.access.fields.items() if not is_among(caller, who))

    def _hidden_of_all(self, caller: Caller, name: str) -> frozenset[str]:
        """The attributes of `_services` and `_status` that tell how services are made: for providers who see all."""
        if caller.role == "admin" or (caller.role == "provider" and caller.services is None and self.sees_all(caller)):
            return frozenset()
        schema = self._schemas.get(name)
        return frozenset(each for each in _MADE_OF[name] if schema is not None and schema.root.get(each) is not None)

    def schema(self, caller: Caller, name: str) -> Schema:
        """The output of a service as a caller sees it; an error where they do not."""
        self.need(caller, name)
        hidden = self.hidden(caller, name)
        if not hidden:
            return self._schemas[name]
        found = self._visible.get((name, hidden))
        if found is None:
            found = self._visible[name, hidden] = self._schemas[name].without(hidden)
        return found

    def key(self, caller: Caller, name: str) -> str | None:
        """The attribute that tells a service's events apart, if there is one that a caller sees."""
        key = self._outputs.get(name)
        return key if key is not None and self.schema(caller, name).root.get(key) is not None else None

    def meaning(self, name: str) -> Meaning | None:
        """What filters with ~ over a service are evaluated by: its themes are those of each of its events."""
        service = self._services.get(name)
        return Meaning.of(self._semantics, themes=() if service is None else service.themes)

    # Durable subscriptions -----------------------------------------------------------------

    def owner(self, record: Subscription) -> Caller:
        """The owner of a subscription, with the rights that it is delivered by while they are away.

        Those of an API key are the key's at the moment, all others' are what the subscription was granted.
        """
        if record.owner is None:
            return GUEST if self._needs_keys else ANYBODY
        if record.owner.startswith(ID_PREFIX):
            return self.certificates.owner(record.owner)
        key, grant = self.keys.get(record.owner), record.grant
        if key is not None:
            return of_key(key)
        if grant is None or grant.role not in get_args(Role):
            return Caller(record.owner, record.owner.partition("#")[2] or record.owner, "consumer", ())
        expires_at = timestamps.to_datetime(grant.expires_at)
        role = cast(Role, grant.role)
        return Caller(record.owner, grant.name, role, grant.services, frozenset(grant.groups), expires_at)

    def lapsed(self, record: Subscription, now: datetime) -> str | None:
        """Why nobody's rights cover a subscription at a moment, and what to do; None: somebody's do."""
        if record.owner is None:
            return f"{_OWNERLESS}: tidegate subscriptions adopt {record.id}" if self._needs_keys else None
        if record.owner in self.keys or record.owner.startswith(ID_PREFIX):
            return None
        how = f"renew it with a fresh token: POST /v1/subscriptions/{record.id}/renew"
        if record.grant is None:
            return f"what its owner {record.owner!r} may see is not known; {how}"
        expires_at = timestamps.to_datetime(record.grant.expires_at)
        if expires_at > now:
            return None
        return f"the rights of {record.grant.name!r} were granted until {expires_at.isoformat()}; {how}"

    def encoding(self, record: Subscription, caller: Caller | None = None) -> Encoding:
        """How a subscription's events are written for a caller; None: for whoever made it."""
        who = caller if caller is not None else self.owner(record)
        return replace(encoding_of(record), hidden=self.hidden(who, record.service))

    def obstacle(self, caller: Caller, service: str, filter_: tuple[str, tuple[Any, ...]] | None) -> str | None:
        """Why a caller may not listen, with a filter and its parameters; None: they may."""
        try:
            schema = self.schema(caller, service)
            if filter_ is not None and self.hidden(caller, service):
                Filter(filter_[0], schema, list(filter_[1]))
        except (TidegateError, Problem) as problem:
            return str(problem)
        return None


@dataclass(frozen=True, slots=True)
class View:
    """What one caller sees."""

    policies: Policies
    meter: Meter
    caller: Caller

    def schema(self, service: str) -> Schema:
        """The output of a service; an error where they do not see it."""
        return self.policies.schema(self.caller, service)

    def key(self, service: str) -> str | None:
        """The attribute that tells a service's events apart, if there is one that they see."""
        return self.policies.key(self.caller, service)

    def meaning(self, service: str) -> Meaning | None:
        """What filters with ~ over a service are evaluated by."""
        return self.policies.meaning(service)

    def filter_(self, text: str | None, params: Sequence[str] | None, service: str) -> Filter | None:
        """A filter over what they see; None: everything."""
        self.meter.need_filter(self.caller, text)
        return parameters.filter_(text, params, self.schema(service), self.meaning(service))

    def encoding(self, encoding: Encoding, service: str) -> Encoding:
        """The same, without what they do not see."""
        return replace(encoding, hidden=self.hidden(service))

    def hidden(self, service: str) -> frozenset[str]:
        """The attributes of a service that they do not see."""
        return self.policies.hidden(self.caller, service)

    def paced(self, sink: Sink) -> Sink:
        """A sink of theirs that takes no more than they may have."""
        return paced(sink, self.meter.pace(self.caller))

    def services(self, names: Iterable[str]) -> list[str]:
        """Those of some services that they see."""
        return [each for each in names if self.policies.sees(self.caller, each)]


def is_among(caller: Caller, names: Collection[str]) -> bool:
    """Whether a caller is one of those that a policy names.

    >>> is_among(Caller("key_1", "fleet", "provider"), ["police", "role:provider"])
    True
    >>> is_among(Caller("key_1", "role:police", "consumer"), ["role:police"])
    False
    """
    if caller.id is None:
        return False
    roles = {caller.role, *caller.groups}
    return any(each[len(ROLE) :] in roles if each.startswith(ROLE) else each == caller.name for each in names)


def need_scope(caller: Caller, name: str) -> None:
    """Refuse a name that a key or token is not for."""
    if not _is_for(caller, name):
        detail = f"{caller.told} is for {', '.join(caller.services or ()) or 'no service'}, not for {name!r}"
        raise forbidden(detail)


def _is_for(caller: Caller, name: str) -> bool:
    return caller.services is None or name in caller.services
