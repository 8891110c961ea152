"""What should run: streams and services with their versions, kept where every process can see them.

Runs nothing itself: whoever does polls `revision` and reads what changed.
"""

from tidegate.registry.opening import open_registry
from tidegate.registry.postgres import PostgresRegistry
from tidegate.registry.registry import (
    Changes,
    Past,
    RegisteredService,
    RegisteredStream,
    Registry,
)
from tidegate.registry.sqlite import SqliteRegistry

__all__ = [
    "Changes",
    "Past",
    "PostgresRegistry",
    "RegisteredService",
    "RegisteredStream",
    "Registry",
    "SqliteRegistry",
    "open_registry",
]
