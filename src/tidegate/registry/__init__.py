"""What should run: streams and services with their versions, kept where every process can see them.

Runs nothing itself: whoever does polls `revision` and reads what changed.
"""

from tidegate.registry.registry import Changes, Past, RegisteredService, RegisteredStream, Registry
from tidegate.registry.sqlite import SqliteRegistry

__all__ = ["Changes", "Past", "RegisteredService", "RegisteredStream", "Registry", "SqliteRegistry"]
