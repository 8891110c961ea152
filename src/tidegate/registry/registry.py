"""What every registry promises, and the values that it holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol

from tidegate.services import Definitions, Service, Stream
from tidegate.services.definitions import Origin
from tidegate.subscriptions import Subscription

State = Literal["active", "disabled", "stopped"]
"""Whether a subscription is delivered: `disabled` until it is enabled, `stopped` until its owner renews it."""
Role = Literal["consumer", "publisher", "provider", "admin"]
"""What a key is for: reading services, putting events into streams that it names, defining services, everything."""


Ends = Callable[[Collection[str]], Mapping[str, str]]
"""Gives the cursor's text of the end of each stream that is in the log; a stream that is not is left out.

Raises where the log can't be asked: then nothing is applied."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a service begins to read one stream."""

    cursor: str
    """The text of a cursor; empty: the stream's beginning."""
    since: int
    """The version of the service that began there; later ones go on where the version before was. 0: not known."""


@dataclass(frozen=True, slots=True)
class RegisteredStream:
    """A stream as it should be."""

    stream: Stream
    version: int
    """1, 2, ...; goes on where a name is removed and comes again."""
    changed_at: datetime
    forced: bool = False


@dataclass(frozen=True, slots=True)
class RegisteredService:
    """A service as it should run."""

    service: Service
    version: int
    changed_at: datetime
    forced: bool = False
    """Whether this version was applied although it breaks subscribers."""
    backfill: bool = False
    """Whether this version begins with all that its inputs still hold, and its output anew."""
    begins: Mapping[str, Beginning] = field(default_factory=dict)
    """By input, where the service begins. One that nobody fixed is missing: it begins at the end when it first runs."""


@dataclass(frozen=True, slots=True)
class Past:
    """One version of a stream or service, old or present."""

    version: int
    document: Mapping[str, Any] | None
    """In the form of a service file; None: it was removed."""
    changed_at: datetime
    forced: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """What an `apply` did: names, each with the version that it has now (or had, if it was removed)."""

    added: Mapping[str, int]
    changed: Mapping[str, int]
    unchanged: Mapping[str, int]
    removed: Mapping[str, int]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def to_dict(self) -> dict[str, dict[str, int]]:
        """As JSON has it."""
        told = {"added": self.added, "changed": self.changed, "unchanged": self.unchanged, "removed": self.removed}
        return {word: dict(names) for word, names in told.items()}


@dataclass(frozen=True, slots=True)
class RegisteredSubscription:
    """A subscription, how far it has come, and how its delivery goes."""

    subscription: Subscription
    version: int
    """1, 2, ...: grows when the record or its state changes, not when the cursor moves."""
    cursor: str | None
    """What is before it was received; None: nothing was, and it began with no place of its own."""
    created_at: datetime
    changed_at: datetime
    state: State = "active"
    reason: str | None = None
    """Why it is not delivered."""
    attempts: int = 0
    """How often the delivery of what is at the cursor failed in a row."""
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be delivered, put aside."""

    id: int
    """Grows; none comes twice."""
    subscription: str
    cursor: str
    """The place right behind the record."""
    record: bytes
    error: str
    attempts: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Key:
    """An API key: who may do what. Its secret is not in here."""

    id: str
    name: str
    role: Role
    services: tuple[str, ...] | None
    """The services that it is for; None: all."""
    prefix: str
    """The part of the secret that may be shown, to tell keys apart."""
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    quotas: tuple[tuple[str, float], ...] = ()
    """Limits of its own, by what they limit."""
    previous_prefix: str | None = None
    """The prefix of the secret before the last rotation, which holds until `previous_until`."""
    previous_until: datetime | None = None
    last_used_at: datetime | None = None
    """When a gateway last let the key in; a few seconds late, as gateways write it now and then."""
    last_used_from: str | None = None
    """The address that it was used from then."""

    def holds(self, prefix: str, now: datetime) -> bool:
        """Return whether a secret with a prefix is the key's present one, or a previous one in its overlap."""
        if prefix == self.prefix:
            return True
        return prefix == self.previous_prefix and self.previous_until is not None and now < self.previous_until

    def problem(self, now: datetime) -> str | None:
        """Why the key opens nothing at a moment; None: it does."""
        if self.revoked_at is not None:
            return f"the key {self.name!r} was revoked at {self.revoked_at.isoformat()}"
        if self.expires_at is not None and self.expires_at <= now:
            return f"the key {self.name!r} expired at {self.expires_at.isoformat()}"
        return None


class Lease(NamedTuple):
    """Who holds something, and until when."""

    holder: str
    until: datetime


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """A change of definitions that is about to be made."""

    before: Definitions
    """All that is registered."""
    given: Definitions
    """What is added or changed, or stated again as it is."""
    gone: frozenset[str]
    """The streams and services that are removed."""
    past: Mapping[str, Stream | Service]
    """The last definitions of removed streams and services whose names are given again."""
    prune: bool = False
    """Whether all that is not given is removed."""


class ChangeGuard(Protocol):
    """Decides for somebody on a change, inside its transaction: nothing can change between check and change."""

    def need(self, change: DefinitionChange) -> None:
        """Raise where they may not make the change. Called first, once."""

    def sees(self, name: str) -> bool:
        """Say whether messages may name a stream or service to them."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link to another broker."""

    name: str
    """Of the broker at the other end."""
    url: str | None
    """Where its gateway is; None: it comes to us."""
    secret: str = field(repr=False)
    """What each end proves to the other that it knows. Both need it as it is."""
    services: tuple[str, ...] | None
    """The services that the other end may see; None: all that are not kept from it."""
    created_at: datetime
    transit: tuple[str, ...] = ()
    """Other brokers whose services this neighbour may pass on to us; `*`: any. Without: its own services only."""
    public: tuple[str, ...] = ()
    """Services, by the names that they have here, that guests may read if their origin says so; `*`: any."""


Kept = tuple[str, str]
"""What is kept of a link: of which kind, and of what."""


class Registry(Protocol):
    """Streams and services in versions, subscriptions, keys, leases and links.

    Any number of processes may read and change it at once. Every change is all
    or nothing, and leaves definitions that hold together. What is not there is
    a `NotRegistered`.
    """

    # Definitions ---------------------------------------------------------------

    def apply(
        self,
        definitions: Definitions,
        *,
        force: bool = False,
        prune: bool = False,
        backfill: bool = False,
        guard: ChangeGuard | None = None,
        origin: Origin = "operator",
    ) -> Changes:
        """Add and change streams and services; `prune`: remove all others.

        `backfill`: what is added or changed begins with all that its inputs
        still hold. `origin`: who states the definitions. Those of `remote` origin
        are never imported, neither to check them nor to run them; the caller has
        checked with `services.trust.admit` what they use. What the operator states
        again is the operator's again, as a new version. `guard` decides whether the
        change may be made; None: it may.

        Raises a `DefinitionError` where the whole would not hold together, and a
        `BreakingChange` where a service's subscribers would be broken, unless
        `force`. A service that has subscriptions is only pruned with `force`.
        """

    def remove(self, name: str, *, force: bool = False, guard: ChangeGuard | None = None) -> int:
        """Remove a stream or service that nothing reads; give the version that it had.

        `force`: remove a service that has subscriptions; they are disabled, and say why.
        """

    def definitions(self) -> Definitions:
        """All that should run, without what is `unreadable`."""

    def unreadable(self) -> dict[str, str]:
        """By name, why a stream or service can't be read: another version of Tidegate may have written it."""

    def streams(self) -> dict[str, RegisteredStream]:
        """All streams, by name."""

    def services(self) -> dict[str, RegisteredService]:
        """All services, by name."""

    def stream(self, name: str) -> RegisteredStream:
        """One stream; an error with a hint where it is not there."""

    def service(self, name: str) -> RegisteredService:
        """One service; an error with a hint where it is not there."""

    def history(self, name: str) -> list[Past]:
        """All versions of a name, the oldest first."""

    def revision(self) -> int:
        """A number that grows with every change of a stream or service; cheap to ask."""

    # Subscriptions -------------------------------------------------------------

    def subscribe(self, subscription: Subscription, cursor: str | None) -> RegisteredSubscription:
        """Add a subscription, refused where its service is not there or its id in use.

        `cursor`: where it begins; None: whoever delivers says where.
        """

    def subscription(self, subscription: str) -> RegisteredSubscription:
        """One subscription, by its id."""

    def subscriptions(self, service: str | None = None, owner: str | None = None) -> dict[str, RegisteredSubscription]:
        """All subscriptions by id, or those of a service or an owner, the oldest first."""

    def change_subscription(
        self, subscription: Subscription, version: int | None = None, *, resume: bool = False
    ) -> RegisteredSubscription:
        """Put a new record in the place of the one with its id; cursor and state stay, and so does the service.

        `version`: a `VersionConflict` where the present one is another. `resume`: a stopped one becomes active.
        """

    def acknowledge(self, subscription: str, cursor: str) -> None:
        """Move a cursor: what is before it was received. Not a change."""

    def acknowledge_all(self, cursors: Mapping[str, str]) -> None:
        """Move many cursors, by id, in one transaction; those of subscriptions that are gone are left out."""

    def note_attempt(self, subscription: str, attempts: int, retry_at: datetime | None) -> None:
        """Note how often the delivery of what is at the cursor failed, and when it is tried again. Not a change.

        An acknowledgement leaves it as it is: after a success note 0 and None.
        """

    def disable(self, subscription: str, reason: str, state: State = "disabled") -> RegisteredSubscription:
        """Deliver no more, and say why; the cursor stays. `state`: `disabled` or `stopped`."""

    def enable(self, subscription: str) -> RegisteredSubscription:
        """Deliver again from the cursor, as if no attempt had failed; refused where the service is gone."""

    def unsubscribe(self, subscription: str) -> None:
        """Remove a subscription, and its dead letters with it."""

    def subscriptions_revision(self) -> int:
        """A number that grows with every change of a subscription or key; cheap to ask."""

    def bury(self, subscription: str, cursor: str, record: bytes, error: str, attempts: int) -> DeadLetter:
        """Put aside what could not be delivered; `cursor`: the place right behind it."""

    def dead_letters(self, subscription: str, after: int = 0, most: int = 100) -> list[DeadLetter]:
        """What could not be delivered, the oldest first; `after`: the id of the last one that was read."""

    def unbury(self, subscription: str, ids: Iterable[int]) -> int:
        """Take dead letters out, and give how many of them there were."""

    # Keys ----------------------------------------------------------------------

    def create_key(
        self,
        name: str,
        role: Role,
        services: Iterable[str] | None = None,
        expires_at: datetime | None = None,
        quotas: Mapping[str, float] | None = None,
    ) -> tuple[Key, str]:
        """Make a key, and give its secret, which is kept only as a hash: it can't be shown again.

        `quotas`: limits of its own, over those of all.
        """

    def find_key(self, secret: str) -> Key | None:
        """Whose secret this is; None: nobody's. Ask the key for its `problem`: it may be expired or revoked."""

    def keys(self) -> dict[str, Key]:
        """All keys by id, the oldest first, revoked ones included."""

    def revoke_key(self, key: str) -> Key:
        """Let a key, by its id, open nothing any more."""

    def rotate_key(self, key: str, overlap_s: float, expires_at: datetime | None = None) -> tuple[Key, str]:
        """Give a key a new secret, which is shown this once; the one before holds for `overlap_s` seconds more.

        A secret that was still in the overlap of an earlier rotation holds no more. `expires_at`: when the key
        expires from now on; None: as before. Raises a `RegistryError` for a key that is revoked.
        """

    def note_key_use(self, uses: Mapping[str, tuple[datetime, str]]) -> None:
        """Note when and from which address keys were used, by id. Not a change; those that are gone are left out."""

    # Leases --------------------------------------------------------------------

    def lease(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lease; False: another holder has it.

        It lasts at least `seconds` from when this was called: a holder stops, or
        renews, before so long has passed on its own clock.
        """

    def release(self, name: str, holder: str) -> None:
        """Give a lease back; nothing happens where the holder has it no more."""

    def leases(self) -> dict[str, Lease]:
        """Who holds what at the moment, by name."""

    # Links ---------------------------------------------------------------------

    def add_link(
        self,
        name: str,
        url: str | None = None,
        secret: str | None = None,
        services: Iterable[str] | None = None,
        *,
        transit: Iterable[str] = (),
        public: Iterable[str] = (),
    ) -> Link:
        """Make a link to the broker of a name; refused where there is one.

        `secret` None: one is made. `services`: what the other end may see at the most. `transit` and `public` are
        those of `Link`; a service of the neighbour itself may be named without its `@`.
        """

    def change_link(
        self, name: str, *, transit: Iterable[str] | None = None, public: Iterable[str] | None = None
    ) -> Link:
        """Change what is believed of a neighbour; None leaves a setting as it is."""

    def links(self) -> dict[str, Link]:
        """All links by the name of the broker at the other end."""

    def remove_link(self, name: str) -> None:
        """Remove a link, and what was known of it."""

    def link_states(self, link: str) -> dict[Kept, str]:
        """What is kept of a link."""

    def keep_link_states(self, link: str, states: Mapping[Kept, str | None]) -> None:
        """Keep something of a link, or, by None, no more; nothing where the link is gone. Not a change."""

    def trust_origin(self, name: str, keys: str) -> None:
        """Pin the public keys of a broker, a JWK set as text, in place of those that were pinned before."""

    def distrust_origin(self, name: str) -> None:
        """Remove the pinned keys of a broker: its events need no signature any more."""

    def trusted_origins(self) -> dict[str, str]:
        """Return the pinned keys of all brokers that have some, by the broker's name."""

    def close(self) -> None:
        """Let go of files and connections."""
