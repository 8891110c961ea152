"""The rights by which durable subscriptions are delivered while their owners are not connected."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import cast, get_args

from tidegate.delivery.encoding import Encoding, encoding_of
from tidegate.gateway.auth.callers import ANYBODY, GUEST, Caller, of_key
from tidegate.gateway.auth.certificates import ID_PREFIX, Certificates
from tidegate.gateway.auth.policy import Policies
from tidegate.model import timestamps
from tidegate.registry import Key, Role
from tidegate.subscriptions import SubscriptionRecord

_OWNERLESS = "it was created while no keys were required, and has no owner; an admin can adopt it"


class OwnerRights:
    """Finds the owners of durable subscriptions, and what they may see now."""

    def __init__(self, policies: Policies, certificates: Certificates, *, needs_keys: bool) -> None:
        """`needs_keys`: callers have to authenticate, so a subscription without an owner is not delivered."""
        self._policies, self._certificates, self._needs_keys = policies, certificates, needs_keys
        self.keys: Mapping[str, Key] = {}
        """All API keys by id, as last read from the registry."""

    def owner(self, record: SubscriptionRecord) -> Caller:
        """Return the owner of a subscription, with the rights that they have now.

        The rights of an API key are those of the key now. The rights of a token are those that the
        subscription was granted when it was created or last renewed.
        """
        if record.owner is None:
            return GUEST if self._needs_keys else ANYBODY
        if record.owner.startswith(ID_PREFIX):
            return self._certificates.owner(record.owner)
        key, grant = self.keys.get(record.owner), record.grant
        if key is not None:
            return of_key(key)
        if grant is None or grant.role not in get_args(Role):
            return Caller(record.owner, record.owner.partition("#")[2] or record.owner, "consumer", ())
        expires_at = timestamps.to_datetime(grant.expires_at)
        role = cast(Role, grant.role)
        return Caller(record.owner, grant.name, role, grant.services, frozenset(grant.groups), expires_at)

    def lapsed(self, record: SubscriptionRecord, now: datetime) -> str | None:
        """Return why no rights cover a subscription at a time, and what to do; None if they do."""
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

    def problem_of_certificate(self, caller: Caller) -> str | None:
        """Return why the client certificate of a caller is no longer valid; None if it is, or they used none."""
        return self._certificates.problem(caller) if (caller.id or "").startswith(ID_PREFIX) else None

    def encoding(self, record: SubscriptionRecord, caller: Caller | None = None) -> Encoding:
        """Return how events of a subscription are encoded for a caller; None means its owner."""
        reader = caller if caller is not None else self.owner(record)
        return self._policies.visible_encoding(encoding_of(record), reader, record.service)
