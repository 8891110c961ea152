"""What should run and who listens, kept where every process can see it: services, subscriptions, keys, leases, links.

Runs nothing itself: whoever does polls `revision` and `subscriptions_revision` and reads what changed.
"""

from tidegate.registry.links import need_broker_name
from tidegate.registry.opening import open_registry
from tidegate.registry.postgres import PostgresRegistry
from tidegate.registry.registry import (
    Beginning,
    ChangeGuard,
    Changes,
    DeadLetter,
    DefinitionChange,
    Ends,
    Kept,
    Key,
    Lease,
    Link,
    Past,
    RegisteredService,
    RegisteredStream,
    RegisteredSubscription,
    Registry,
    Role,
    State,
)
from tidegate.registry.sqlite import SqliteRegistry

__all__ = [
    "Beginning",
    "ChangeGuard",
    "Changes",
    "DeadLetter",
    "DefinitionChange",
    "Ends",
    "Kept",
    "Key",
    "Lease",
    "Link",
    "Past",
    "PostgresRegistry",
    "RegisteredService",
    "RegisteredStream",
    "RegisteredSubscription",
    "Registry",
    "Role",
    "SqliteRegistry",
    "State",
    "need_broker_name",
    "open_registry",
]
