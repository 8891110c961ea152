"""The values that a registry stores and returns.

All of them are frozen. Timestamps are aware `datetime`s in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from tidegate.services import Definitions, Service, Stream
from tidegate.services.operators.state_layout import StateChange
from tidegate.subscriptions import SubscriptionRecord

SubscriptionState = Literal["active", "disabled", "stopped"]
"""Whether a subscription is delivered: `disabled` until it is enabled, `stopped` until its owner renews it."""
Role = Literal["consumer", "publisher", "provider", "admin"]
"""What a key allows: read services, publish to the streams that it names, define services, everything."""

EndReader = Callable[[Collection[str]], Mapping[str, str]]
"""Returns the end cursor, as text, of each named stream that the log has; other streams are left out.

Raises if the log does not answer; `apply` then changes nothing."""


# Definitions -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beginning:
    """The start position of a service in one of its input streams."""

    cursor: str
    """A cursor as text; empty: the beginning of the stream."""
    since: int
    """The first version of the service that reads from this cursor. Later versions continue from the offsets of the
    version before. 0: unknown."""


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """A version of a service that ran."""

    version: int
    checkpoints: str
    """The place of its checkpoint: a URI, or a host and a folder."""


@dataclass(frozen=True, slots=True)
class RegisteredStream:
    """The current version of a stream's definition."""

    stream: Stream
    version: int
    """1, 2, ...; a removed stream that is added again continues the count."""
    changed_at: datetime
    forced: bool = False
    """True if this version was applied although it breaks subscribers."""


@dataclass(frozen=True, slots=True)
class RegisteredService:
    """The current version of a service's definition, which the runner keeps running."""

    service: Service
    version: int
    """1, 2, ...; a removed service that is added again continues the count."""
    changed_at: datetime
    forced: bool = False
    """True if this version was applied although it breaks subscribers."""
    backfill: bool = False
    """True if this version reads its inputs from their oldest event and starts a new output stream."""
    begins: Mapping[str, Beginning] = field(default_factory=dict)
    """Start position by input stream. An input without one starts at the end of its stream when the service first
    runs."""
    run: ServiceRun | None = None
    """The last version that ran; None: none did."""


@dataclass(frozen=True, slots=True)
class DefinitionVersion:
    """One version of a stream or service, old or current."""

    version: int
    document: Mapping[str, Any] | None
    """The definition in the form of a service file; None: this version is the removal."""
    changed_at: datetime
    forced: bool


@dataclass(frozen=True, slots=True)
class AppliedChanges:
    """The result of `Registry.apply`: version by name. A removed name has the last version that it had."""

    added: Mapping[str, int]
    changed: Mapping[str, int]
    unchanged: Mapping[str, int]
    removed: Mapping[str, int]
    states: Mapping[str, StateChange] = field(default_factory=dict)
    """What becomes of the state of each service that has one and gets another definition or input."""

    def __bool__(self) -> bool:
        """Return True if anything was added, changed or removed."""
        return bool(self.added or self.changed or self.removed)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the changes as the HTTP API shows them."""
        states = {name: {"effect": each.effect, "reasons": list(each.reasons)} for name, each in self.states.items()}
        return {
            "added": dict(self.added),
            "changed": dict(self.changed),
            "unchanged": dict(self.unchanged),
            "removed": dict(self.removed),
            "states": states,
        }


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """A change of definitions that a `ChangeGuard` has to allow."""

    before: Definitions
    """All registered definitions."""
    given: Definitions
    """The definitions that the caller applies: new, changed or unchanged."""
    gone: frozenset[str]
    """The streams and services to remove."""
    past: Mapping[str, Stream | Service]
    """The last definitions of removed streams and services that `given` adds again."""
    prune: bool = False
    """True if all registered definitions that are not in `given` are removed."""


# Subscriptions ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisteredSubscription:
    """A durable subscription with its cursor and the state of its delivery."""

    subscription: SubscriptionRecord
    version: int
    """1, 2, ...: grows when the subscription or its state changes, not when the cursor moves."""
    cursor: str | None
    """All events before it are acknowledged; None: no event is, and delivery chooses the start position."""
    created_at: datetime
    changed_at: datetime
    state: SubscriptionState = "active"
    reason: str | None = None
    """Why the subscription is not delivered."""
    attempts: int = 0
    """Consecutive failed deliveries of the record at the cursor."""
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be delivered to a subscription."""

    id: int
    """Grows; ids are never reused."""
    subscription: str
    cursor: str
    """The position right after the record."""
    record: bytes
    error: str
    attempts: int
    at: datetime


# Keys ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Key:
    """An API key and its rights. The secret itself is not included."""

    id: str
    name: str
    role: Role
    services: tuple[str, ...] | None
    """The services that the key is limited to; None: all."""
    prefix: str
    """The public part of the secret, which distinguishes keys in lists and logs."""
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    quotas: tuple[tuple[str, float], ...] = ()
    """Limits of this key, as pairs of quota name and value; they override the defaults."""
    previous_prefix: str | None = None
    """The prefix of the secret before the last rotation, which is valid until `previous_until`."""
    previous_until: datetime | None = None
    last_used_at: datetime | None = None
    """When a gateway last accepted the key; a few seconds late, because gateways write it in intervals."""
    last_used_from: str | None = None
    """The client address of that last use."""

    def holds(self, prefix: str, now: datetime) -> bool:
        """Return True if a secret with `prefix` is the current one, or the previous one within its overlap."""
        if prefix == self.prefix:
            return True
        return prefix == self.previous_prefix and self.previous_until is not None and now < self.previous_until

    def problem(self, now: datetime) -> str | None:
        """Return why the key is not valid at `now`; None: it is valid."""
        if self.revoked_at is not None:
            return f"the key {self.name!r} was revoked at {self.revoked_at.isoformat()}"
        if self.expires_at is not None and self.expires_at <= now:
            return f"the key {self.name!r} expired at {self.expires_at.isoformat()}"
        return None


# Leases and links ------------------------------------------------------------------


class Lease(NamedTuple):
    """The holder of a lease and the time at which it ends."""

    holder: str
    until: datetime


class Fence(NamedTuple):
    """A condition of a write: a holder has the lease of the subscription when the database executes it."""

    holder: str
    prefix: str
    """The name of the lease is this text and the id of the subscription."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link to another broker."""

    name: str
    """The name of the other broker."""
    url: str | None
    """The URL of the other broker's gateway; None: the other broker connects to us."""
    secret: str = field(repr=False)
    """The shared secret. Each broker proves to the other that it knows it, so both need the plain text."""
    services: tuple[str, ...] | None
    """The services that the other broker may see; None: all that their access policy does not exclude."""
    created_at: datetime
    transit: tuple[str, ...] = ()
    """Brokers whose services this neighbour may forward to us; `*`: any. Empty: only its own services."""
    public: tuple[str, ...] = ()
    """Services, by their local names, that guests may read if the origin broker allows it; `*`: any."""


LinkStateKey = tuple[str, str]
"""The kind and the name of a persisted state of a link, such as `("mirror", "gps@city")`."""
