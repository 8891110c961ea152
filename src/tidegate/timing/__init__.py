"""Retry delays, periodic work and the throttling of messages, for threads and for asyncio.

Starts no thread and no task: the caller owns both. Imports nothing of Tidegate, so that every package may use it.
"""

from tidegate.timing.backoff import NO_JITTER, Backoff
from tidegate.timing.periodic import periodic, periodic_in_thread
from tidegate.timing.throttle import Throttle

__all__ = ["NO_JITTER", "Backoff", "Throttle", "periodic", "periodic_in_thread"]
