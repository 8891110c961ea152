"""Stores definitions, subscriptions, keys, leases and links in a database that all processes share.

Runs no service and sends no notifications: a process that acts on the registry polls `revision` and
`subscriptions_revision`, and reads again when one has grown.
"""

from tidegate.registry.links import need_broker_name
from tidegate.registry.opening import open_registry
from tidegate.registry.postgres import PostgresRegistry
from tidegate.registry.records import (
    AppliedChanges,
    Beginning,
    DeadLetter,
    DefinitionChange,
    DefinitionVersion,
    EndReader,
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
from tidegate.registry.registry import (
    ChangeGuard,
    DeadLetterStore,
    DefinitionStore,
    GatewayStore,
    KeyStore,
    LeaseStore,
    LinkStore,
    Registry,
    SubscriptionStore,
)
from tidegate.registry.sqlite import SqliteRegistry

__all__ = [
    "AppliedChanges",
    "Beginning",
    "ChangeGuard",
    "DeadLetter",
    "DeadLetterStore",
    "DefinitionChange",
    "DefinitionStore",
    "DefinitionVersion",
    "EndReader",
    "Fence",
    "GatewayStore",
    "Key",
    "KeyStore",
    "Lease",
    "LeaseStore",
    "Link",
    "LinkStateKey",
    "LinkStore",
    "PostgresRegistry",
    "RegisteredService",
    "RegisteredStream",
    "RegisteredSubscription",
    "Registry",
    "Role",
    "ServiceRun",
    "SqliteRegistry",
    "SubscriptionState",
    "SubscriptionStore",
    "need_broker_name",
    "open_registry",
]
