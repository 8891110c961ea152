"""What should run and who listens, kept where every process can see it: services, subscriptions, keys, leases.

Runs nothing itself: whoever does polls `revision` and `subscriptions_revision` and reads what changed.
"""

from tidegate.registry.opening import open_registry
from tidegate.registry.postgres import PostgresRegistry
from tidegate.registry.registry import (
    Changes,
    DeadLetter,
    Key,
    Lease,
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
    "Changes",
    "DeadLetter",
    "Key",
    "Lease",
    "Past",
    "PostgresRegistry",
    "RegisteredService",
    "RegisteredStream",
    "RegisteredSubscription",
    "Registry",
    "Role",
    "SqliteRegistry",
    "State",
    "open_registry",
]
