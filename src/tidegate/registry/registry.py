"""The interface of a registry, as one protocol per subject.

A component that needs only a part can depend on that part: `KeyStore`, `LeaseStore`, and so on. `Registry` is the
whole. All methods block on the database and may be called from any thread, never directly on an event loop. They
raise `RegistryError` if the database can't be used, and `NotRegistered` if a named thing does not exist. Every change
is one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Protocol

from tidegate.registry.records import (
    AppliedChanges,
    DeadLetter,
    DefinitionChange,
    DefinitionVersion,
    Fence,
    Key,
    Lease,
    Link,
    LinkStateKey,
    RegisteredService,
    RegisteredStream,
    RegisteredSubscription,
    Role,
    ServiceRun,
    SubscriptionState,
)
from tidegate.services import Definitions
from tidegate.services.definitions import Origin
from tidegate.subscriptions import SubscriptionRecord


class ChangeGuard(Protocol):
    """Authorizes a change of definitions for one caller.

    The registry calls it inside the transaction of the change, so nothing can change between check and change.
    """

    def need(self, change: DefinitionChange) -> None:
        """Raise if the caller may not make the change. Called once, before all other checks."""

    def sees(self, name: str) -> bool:
        """Return True if error messages may name this stream or service to the caller."""


class DefinitionStore(Protocol):
    """Streams and services, each with all its versions.

    The stored definitions are always valid together: a change that would break another definition is refused.
    """

    def apply(
        self,
        definitions: Definitions,
        *,
        force: bool = False,
        prune: bool = False,
        backfill: bool = False,
        dry_run: bool = False,
        guard: ChangeGuard | None = None,
        origin: Origin = "operator",
    ) -> AppliedChanges:
        """Add or change the given streams and services, and return what changed.

        `prune` removes all other streams and services. With `backfill`, added and changed services read their
        inputs from the oldest event. `dry_run` changes nothing. `guard` may refuse the change; None: every change is
        allowed.

        `origin` says who wrote the definitions. Code of `remote` definitions is never imported, neither to check
        nor to run it; the caller has checked with `services.trust.admit` what they use. An operator who applies a
        remote definition again takes it over, as a new version.

        Raises `DefinitionError` if the definitions would not be valid together, and `BreakingChange` if the change
        would break subscribers of a service or producers of a stream, or lose the state of a service, unless `force`.
        A service with subscriptions is pruned only with `force`.
        """

    def remove(self, name: str, *, force: bool = False, guard: ChangeGuard | None = None) -> int:
        """Remove a stream or service, and return the version that it had.

        Raises `RegistryError` if a service reads it, or if it has subscriptions. `force` disables the subscriptions
        instead, with the removal as the reason.
        """

    def definitions(self) -> Definitions:
        """Return all streams and services, except the `unreadable` ones."""

    def unreadable(self) -> dict[str, str]:
        """Return, by name, why a stored definition can't be parsed: another version of Tidegate may have written it."""

    def streams(self) -> dict[str, RegisteredStream]:
        """Return all streams by name."""

    def services(self) -> dict[str, RegisteredService]:
        """Return all services by name."""

    def stream(self, name: str) -> RegisteredStream:
        """Return one stream. Raises `NotRegistered` with the nearest name."""

    def service(self, name: str) -> RegisteredService:
        """Return one service. Raises `NotRegistered` with the nearest name."""

    def note_run(self, name: str, run: ServiceRun) -> None:
        """Store which version of a service runs, and where its checkpoint is. Increments no counter."""

    def history(self, name: str) -> list[DefinitionVersion]:
        """Return all versions of a stream or service, oldest first; empty if the name is unknown."""

    def revision(self) -> int:
        """Return a counter that grows with every change of a stream or service. Cheap enough to poll."""


class SubscriptionStore(Protocol):
    """Durable subscriptions, their cursors and the state of their delivery."""

    def subscribe(self, subscription: SubscriptionRecord, cursor: str | None) -> RegisteredSubscription:
        """Add a subscription that starts at `cursor`; None: delivery chooses the start position.

        Raises `NotRegistered` if the service does not exist, and `RegistryError` if the id is in use.
        """

    def subscription(self, subscription: str) -> RegisteredSubscription:
        """Return the subscription with an id."""

    def find_subscriptions(self, ids: Collection[str]) -> dict[str, RegisteredSubscription]:
        """Return the subscriptions with some ids, at most a few hundred; those that do not exist are left out."""

    def subscriptions(self, service: str | None = None, owner: str | None = None) -> dict[str, RegisteredSubscription]:
        """Return all subscriptions by id, or those of a service or an owner, oldest first."""

    def change_subscription(
        self, subscription: SubscriptionRecord, version: int | None = None, *, resume: bool = False
    ) -> RegisteredSubscription:
        """Replace the subscription that has the same id; its cursor and state stay. `resume` activates a stopped one.

        Raises `VersionConflict` if `version` is given and is not the current version, and `RegistryError` if the
        service differs.
        """

    def acknowledge(self, subscription: str, cursor: str) -> None:
        """Move the cursor of a subscription. Does not change its version or any revision."""

    def acknowledge_all(self, cursors: Mapping[str, str], fence: Fence | None = None) -> None:
        """Move many cursors, by subscription id, in one transaction. Ids that do not exist are skipped.

        With `fence`, subscriptions whose lease the holder does not have at this moment are skipped, too.
        """

    def note_attempt(
        self, subscription: str, attempts: int, retry_at: datetime | None, fence: Fence | None = None
    ) -> None:
        """Store how often delivery at the cursor has failed, and when to retry. Changes no version or revision.

        `acknowledge` does not reset it: store 0 and None after a successful delivery. With `fence`, raises
        `LeaseLost` if the holder does not have the lease at this moment.
        """

    def disable(self, subscription: str, reason: str, state: SubscriptionState = "disabled") -> RegisteredSubscription:
        """Stop the delivery of a subscription for a reason; the cursor stays. `state` is `disabled` or `stopped`."""

    def enable(self, subscription: str) -> RegisteredSubscription:
        """Resume delivery at the cursor and reset the failed attempts. Raises `NotRegistered` without its service."""

    def unsubscribe(self, subscription: str) -> None:
        """Remove a subscription with its dead letters."""

    def subscriptions_revision(self) -> int:
        """Return a counter that grows with every change of a subscription, key or link. Cheap enough to poll."""


class DeadLetterStore(Protocol):
    """Records that could not be delivered, per subscription."""

    def add_dead_letter(
        self, subscription: str, cursor: str, record: bytes, error: str, attempts: int, fence: Fence | None = None
    ) -> DeadLetter:
        """Store a record that could not be delivered; `cursor` is the position right after it.

        With `fence`, raises `LeaseLost` if the holder does not have the lease at this moment.
        """

    def dead_letters(self, subscription: str, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """Return at most `limit` dead letters with an id greater than `after`, oldest first."""

    def remove_dead_letters(self, subscription: str, ids: Iterable[int]) -> int:
        """Remove dead letters of a subscription, and return how many existed."""


class KeyStore(Protocol):
    """API keys. Secrets are stored as hashes, so none can be shown again."""

    def create_key(
        self,
        name: str,
        role: Role,
        services: Iterable[str] | None = None,
        expires_at: datetime | None = None,
        quotas: Mapping[str, float] | None = None,
    ) -> tuple[Key, str]:
        """Create a key, and return it with its secret. `quotas` override the default limits.

        Raises `RegistryError` for an unknown role, a bad name, or a publisher without streams.
        """

    def find_key(self, secret: str) -> Key | None:
        """Return the key with this secret, or None. The key may be expired or revoked: see `Key.problem`."""

    def keys(self) -> dict[str, Key]:
        """Return all keys by id, oldest first, including revoked ones."""

    def revoke_key(self, key: str) -> Key:
        """Revoke the key with an id, and return it. A revoked key stays stored."""

    def rotate_key(self, key: str, overlap_s: float, expires_at: datetime | None = None) -> tuple[Key, str]:
        """Give a key a new secret, and return both. The old secret stays valid for `overlap_s` seconds.

        Only one old secret is valid: that of an earlier rotation ends at once. `expires_at` replaces the expiry of
        the key; None keeps it. Raises `RegistryError` for a revoked key.
        """

    def note_key_use(self, uses: Mapping[str, tuple[datetime, str]]) -> None:
        """Store time and client address of the last use, by key id. Unknown ids are skipped; no revision changes."""


class LeaseStore(Protocol):
    """Leases: the right of one process to do something, for a limited time."""

    def lease(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lease, and return True; False: another holder has it.

        The lease lasts at least `seconds` from the start of this call: the holder must renew it, or stop its work,
        before that time has passed on its own clock.
        """

    def release(self, name: str, holder: str) -> None:
        """Release a lease. Does nothing if this holder does not have it."""

    def lease_all(self, names: Collection[str], holder: str, seconds: float) -> set[str]:
        """Take or renew many leases in one transaction, and return the names of those that the holder has now.

        See `lease`. Leases of the holder with other names are neither renewed nor returned.
        """

    def release_all(self, names: Collection[str], holder: str) -> None:
        """Release many leases in one transaction. See `release`."""

    def leases(self) -> dict[str, Lease]:
        """Return all leases that have not expired, by name."""


class GatewayStore(Protocol):
    """The gateways that share the registry: which of them run, what each tells the others, and messages."""

    def report_gateway(self, gateway: str, document: str, seconds: float) -> None:
        """Say that the gateway with an id runs, for at least `seconds`, and replace its document."""

    def gateways(self) -> dict[str, str]:
        """Return the documents of all gateways that run, by id."""

    def send_message(self, recipient: str, body: bytes, seconds: float) -> None:
        """Leave a message for a recipient, who may take it for at least `seconds`; later it is removed."""

    def take_messages(self, recipient: str) -> list[bytes]:
        """Return the messages for a recipient, oldest first, and remove them. Cheap enough to poll."""

    def remove_gateway(self, gateway: str) -> None:
        """Say that a gateway has ended. Does nothing if it is unknown."""


class LinkStore(Protocol):
    """Links to other brokers, the persisted state of each link, and pinned signing keys."""

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
        """Add a link to the broker `name`. Without `secret`, one is generated.

        `services` limits what the other broker may see. `transit` and `public` are those of `Link`; the neighbour's
        own services may be named without `@`. Raises `RegistryError` for a bad value, or if the link exists.
        """

    def change_link(
        self, name: str, *, transit: Iterable[str] | None = None, public: Iterable[str] | None = None
    ) -> Link:
        """Change what we accept from a neighbour; None leaves a setting unchanged."""

    def links(self) -> dict[str, Link]:
        """Return all links by the name of the other broker."""

    def remove_link(self, name: str) -> None:
        """Remove a link and its persisted state."""

    def link_states(self, link: str) -> dict[LinkStateKey, str]:
        """Return the persisted state of a link; empty if the link does not exist."""

    def save_link_states(self, link: str, states: Mapping[LinkStateKey, str | None]) -> None:
        """Persist states of a link; None deletes one. Does nothing if the link does not exist; no revision changes."""

    def trust_origin(self, name: str, keys: str) -> None:
        """Pin the public keys of a broker, a JWK set as text. Replaces keys that were pinned before."""

    def distrust_origin(self, name: str) -> None:
        """Remove the pinned keys of a broker: its events no longer need a signature."""

    def trusted_origins(self) -> dict[str, str]:
        """Return the pinned keys by the name of the broker."""


class Registry(
    DefinitionStore, SubscriptionStore, DeadLetterStore, KeyStore, LeaseStore, GatewayStore, LinkStore, Protocol
):
    """Definitions, subscriptions, dead letters, keys, leases, gateways and links in one database.

    Any number of processes and threads may read and change it at the same time.
    """

    def close(self) -> None:
        """Close all database connections."""
