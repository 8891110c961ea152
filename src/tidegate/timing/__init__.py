"""Retry delays and periodic work, for threads and for asyncio.

Starts no thread and no task: the caller owns both. Imports nothing of Tidegate, so that every package may use it.
"""

from tidegate.timing.backoff import NO_JITTER, Backoff
from tidegate.timing.periodic import periodic, periodic_in_thread

__all__ = ["NO_JITTER", "Backoff", "periodic", "periodic_in_thread"]
