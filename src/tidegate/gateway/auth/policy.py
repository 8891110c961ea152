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

from tidegate.delivery.encoding import Encoding, encoding_of
from tidegate.delivery.pacing import paced
from tidegate.delivery.subscriber import Sink
from tidegate.errors import NotRegistered, TidegateError, did_you_mean
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning, Semantics
from tidegate.gateway.auth.callers import ANYBODY, GUEST, Caller, of_key
from tidegate.gateway.auth.certificates import ID_PREFIX, Certificates
from tidegate.gateway.auth.quotas import Meter
from tidegate.gateway.http import parameters
from tidegate.gateway.http.problems import Problem, forbidden
from tidegate.model import Schema, timestamps
from tidegate.model.hashed_ids import HashedIds
from tidegate.registry import Key, Role
from tidegate.services import Definitions, Service, Stream, audit_stream, catalog
from tidegate.services.definitions import NONE
from tidegate.services.lineage import Lineages, Origins
from tidegate.subscriptions import Subscription

_MAX_REMEMBERED = 10_000
"""Callers, and pairs of service and caller, of which it is remembered whether ids are hashed."""
_MADE_OF = {catalog.STREAM: ("definition",), "_status": ("error", "reason")}
"""Of what is told of all services, the attributes that tell how they are made."""
ROLE = "role:"
"""What a name begins with that means a role."""
_OWNERLESS = "it was created while no keys were required, and belongs to nobody; an admin can adopt it"


class Policies:
    """The access of all services, as they are now."""

    def __init__(self, semantics: Semantics | None = None, id_key: bytes = b"", *, needs_keys: bool = False) -> None:
        """`semantics` is what filters with ~ are evaluated by; None: there is nothing. `id_key` hashes ids.

        `needs_keys`: callers have to authenticate, so that what nobody owns is delivered to nobody.
        """
        self._semantics, self._id_key, self._needs_keys = semantics, id_key, needs_keys
        self._lineages = Lineages(Definitions())
        self._hiding: dict[tuple[str, Caller], bool] = {}
        self._restricted: dict[Caller, frozenset[str]] = {}
        self._services: Mapping[str, Service] = {}
        self._streams: Mapping[str, Stream] = {}
        self._schemas: Mapping[str, Schema] = {}
        self._outputs: Mapping[str, str] = {}
        self._visible: dict[tuple[str, frozenset[str]], Schema] = {}
        self.keys: Mapping[str, Key] = {}
        """All API keys by id, as they were a moment ago."""
        self.certificates = Certificates()
        """Who is known by a client certificate."""

    def define(
        self,
        services: Mapping[str, Service],
        schemas: Mapping[str, Schema],
        keys: Mapping[str, str] = NONE,
        streams: Mapping[str, Stream] = NONE,
    ) -> None:
        """Take in what services and raw streams there are; `schemas` and `keys` are those of all outputs."""
        self._services, self._schemas, self._outputs, self._visible = services, schemas, keys, {}
        self._streams = streams
        self._lineages = Lineages(Definitions(streams, services))
        self._hiding, self._restricted = {}, {}

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
        """Say whether a caller sees a service. `_status` and the like tell of all services to who sees all."""
        service = self._services.get(name)
        if not caller.may("read"):
            return False
        if service is not None and service.access.to == "public":
            return True
        if name not in self._schemas or not _is_for(caller, name):
            return False
        if name == audit_stream.STREAM:  # whatever a key is for
            return caller.may("operate")
        if caller.may("operate"):
            return True
        if service is None:
            return name in _MADE_OF and (caller.services is not None or self.sees_all(caller))
        return _is_known_to(caller, service.access.to)

    def sees_whole(self, caller: Caller, name: str) -> bool:
        """Say whether a caller sees a service and all of its attributes, or a raw stream."""
        if name in self._streams:
            return self.sees_stream(caller, name)
        return self.sees(caller, name) and not self.hidden(caller, name)

    def sees_all(self, caller: Caller) -> bool:
        """Say whether a caller sees every stream, every service and every attribute."""
        return all(self.sees_whole(caller, each) for each in (*self._streams, *self._services))

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

    def need_whole(self, caller: Caller, name: str, what: str) -> None:
        """Refuse a service of which a caller does not see all; `what` they would do, for the message."""
        self.need(caller, name)
        if self.hidden(caller, name):
            detail = f"{caller.told} may not see all attributes of {name!r}, and so not {what}"
            raise forbidden(detail)

    # Raw streams -------------------------------------------------------------------------

    def has_stream(self, name: str) -> bool:
        """Say whether there is such a raw stream, whoever sees it."""
        return name in self._streams

    def sees_stream(self, caller: Caller, name: str) -> bool:
        """Say whether a caller sees a raw stream: its definition, and as a provider its events through services."""
        stream = self._streams.get(name)
        if stream is None or not _is_for(caller, name) or not caller.may("read"):
            return False
        return caller.may("operate") or _is_known_to(caller, stream.access.to)

    def may_append(self, caller: Caller, name: str) -> bool:
        """Say whether a caller may put events into a raw stream."""
        stream = self._streams.get(name)
        if stream is None or not _is_for(caller, name) or not caller.may("append"):
            return False
        if caller.may("operate"):
            return True
        if stream.access.publish is not None:
            return is_among(caller, stream.access.publish)
        # A key that may only append is made for the streams that it names.
        return self.sees_stream(caller, name) if caller.may("define") else caller.services is not None

    def knows_stream(self, caller: Caller, name: str) -> bool:
        """Say whether a caller may know of a raw stream: they see it, or fill it."""
        return self.sees_stream(caller, name) or self.may_append(caller, name)

    def need_stream(self, caller: Caller, name: str) -> None:
        """Refuse a raw stream that a caller may not know of."""
        if self.knows_stream(caller, name):
            return
        need_scope(caller, name)
        known = [each for each in self._streams if self.knows_stream(caller, each)]
        raise NotRegistered(f"no stream {name!r}{did_you_mean(name, known)}")

    def need_append(self, caller: Caller, name: str) -> None:
        """Refuse events for a raw stream that a caller may not fill."""
        if self.may_append(caller, name):
            return
        need_scope(caller, name)
        if caller.services is None and not caller.may("define") and not self.knows_stream(caller, name):
            detail = f"{caller.told} names no streams: a publisher puts events only into those that it is for"
            raise forbidden(detail)
        self.need_stream(caller, name)
        detail = f"{caller.told} may not put events into {name!r}: access.publish of the stream names others"
        raise forbidden(detail)

    # Attributes --------------------------------------------------------------------------

    def hidden(self, caller: Caller, name: str) -> frozenset[str]:
        """The attributes of a service that a caller does not see."""
        if name in _MADE_OF:
            return self._hidden_of_all(caller, name)
        service = self._services.get(name)
        if service is None or not service.access.fields or caller.may("operate"):
            return frozenset()
        return frozenset(each for each, who in service.access.fields.items() if not is_among(caller, who))

    def hides_ids(self, caller: Caller, name: str) -> bool:
        """Say whether a service's ids may be made of what a caller may not see, in the service or upstream of it."""
        if caller.may("operate") or name not in self._lineages:
            return False
        if name not in self._below_restricted(caller):
            return False
        known = self._hiding.get((name, caller))
        if known is None:
            ids = self._lineages.of_ids(name)
            known = any(self._secret(caller, each, name) & ids for each in self._lineages.upstream(name))
            if len(self._hiding) >= _MAX_REMEMBERED:
                self._hiding.clear()
            self._hiding[name, caller] = known
        return known

    def _below_restricted(self, caller: Caller) -> frozenset[str]:
        """Return what a caller may not see all of, and all that is made of it."""
        found = self._restricted.get(caller)
        if found is None:
            everything = (*self._streams, *self._services)
            kept = [each for each in everything if self._is_kept(caller, each) or self.hidden(caller, each)]
            if len(self._restricted) >= _MAX_REMEMBERED:
                self._restricted.clear()
            found = self._restricted[caller] = self._lineages.downstream(kept)
        return found

    def _secret(self, caller: Caller, name: str, reader: str) -> Origins:
        """Return the origins of all that a caller may not see of a stream or service that `reader` is made of."""
        if name != reader and self._is_kept(caller, name):
            return self._lineages.of_everything(name)
        hidden = self.hidden(caller, name)
        return self._lineages.of_attributes(name, hidden) if hidden else frozenset()

    def ids(self, caller: Caller, name: str) -> HashedIds | None:
        """Return how the ids of a service are hashed for a caller; None: they see them as they are."""
        if not self.hides_ids(caller, name):
            return None
        return HashedIds(self._id_key, self._lineages.raw_streams(name))

    def withheld(self, caller: Caller, name: str) -> frozenset[str]:
        """Return the attributes that a caller does not see, and `_id` where they see ids only hashed."""
        hidden = self.hidden(caller, name)
        return hidden | {"_id"} if self.hides_ids(caller, name) else hidden

    def dressed(self, encoding: Encoding, caller: Caller, name: str) -> Encoding:
        """Return an encoding without what a caller does not see of a service."""
        return replace(encoding, hidden=self.hidden(caller, name), ids=self.ids(caller, name))

    def need_quarantine(self, caller: Caller, name: str) -> None:
        """Refuse what a service has refused to who may not see all of it, or of what it reads: both are shown."""
        self.need(caller, name)
        service = self._services.get(name)
        inputs = () if service is None else service.inputs
        unseen = [each for each in (name, *inputs) if self.withheld(caller, each) or self._is_kept(caller, each)]
        if unseen:
            detail = f"what {name!r} has refused shows all that it reads, and {caller.told} may not see all of that"
            raise forbidden(detail)

    def _is_kept(self, caller: Caller, name: str) -> bool:
        """Say whether the policy of a stream or service keeps it from a caller, whatever their key is for."""
        of = self._streams.get(name) or self._services.get(name)
        to = "keys" if of is None else of.access.to
        return not caller.may("operate") and isinstance(to, tuple) and not is_among(caller, to)

    def _hidden_of_all(self, caller: Caller, name: str) -> frozenset[str]:
        """The attributes of `_services` and `_status` that tell how services are made: for providers who see all."""
        if caller.may("operate") or (caller.may("define") and caller.services is None and self.sees_all(caller)):
            return frozenset()
        schema = self._schemas.get(name)
        return frozenset(each for each in _MADE_OF[name] if schema is not None and schema.root.get(each) is not None)

    def schema(self, caller: Caller, name: str) -> Schema:
        """The output of a service as a caller sees it; an error where they do not."""
        self.need(caller, name)
        hidden = self.withheld(caller, name)
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
        return self.dressed(encoding_of(record), who, record.service)

    def obstacle(self, caller: Caller, service: str, filter_: tuple[str, tuple[Any, ...]] | None) -> str | None:
        """Why a caller may not listen, with a filter and its parameters; None: they may."""
        try:
            schema = self.schema(caller, service)
            if filter_ is not None and self.withheld(caller, service):
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
        return self.policies.dressed(encoding, self.caller, service)

    def shown_event(self, event: Mapping[str, Any], service: str) -> dict[str, Any]:
        """Return an event of a service without what they do not see, its id hashed where it has to be."""
        hidden, ids = self.hidden(service), self.policies.ids(self.caller, service)
        shown = {name: value for name, value in event.items() if name not in hidden}
        if ids is not None and isinstance(shown.get("_id"), str):
            shown["_id"] = ids.render(shown["_id"])
        return shown

    def knows_stream(self, name: str) -> bool:
        """Say whether they may know of a raw stream."""
        return self.policies.knows_stream(self.caller, name)

    def named(self, names: Iterable[str]) -> list[str]:
        """Return those of some streams and services that they may know of."""
        return [each for each in names if self.knows_stream(each) or self.policies.sees(self.caller, each)]

    def hidden(self, service: str) -> frozenset[str]:
        """The attributes of a service that they do not see."""
        return self.policies.hidden(self.caller, service)

    def withheld(self, service: str) -> frozenset[str]:
        """Return the attributes that they do not see, and `_id` where they see ids only hashed."""
        return self.policies.withheld(self.caller, service)

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


def _is_known_to(caller: Caller, to: str | tuple[str, ...]) -> bool:
    """Say whether a policy's `to` lets a caller in, public ones aside."""
    return caller.id is not None and (to == "keys" or is_among(caller, to))


def _is_for(caller: Caller, name: str) -> bool:
    return caller.services is None or name in caller.services
