"""Shares out Spark's slots: a real-time task holds its slot as long as its service runs.

A service with more tasks than there are free slots would never start, and would hold the slots that it got: no other
service could start either.
"""

from __future__ import annotations

import re
from threading import Lock

from tidegate.errors import ServiceError
from tidegate.pipelines.planner import Plan

RESERVED_SLOTS = 8
"""Slots that no real-time service gets: services in micro-batches need some now and then."""


class Slots:
    """The slots of a Spark in this process, and who holds how many. On a cluster there is no limit here."""

    def __init__(self, master: str) -> None:
        match = re.match(r"local\[(\d+)", master)
        self._total = int(match[1]) if match else None
        self._held: dict[str, int] = {}
        self._lock = Lock()

    def take(self, service: str, count: int) -> None:
        """Take slots for a service, in place of those that it holds. Raises a `ServiceError` if too few are free."""
        with self._lock:
            if self._total is not None:
                others = sum(slots for name, slots in self._held.items() if name != service)
                free = max(0, self._total - RESERVED_SLOTS - others)
                if count > free:
                    raise ServiceError(
                        f"it has {count} real-time tasks, and of Spark's {self._total} slots {free} are free: give its "
                        "streams fewer partitions, remove other services, or set master: local[N] in the profile with "
                        "a larger N"
                    )
            self._held[service] = count

    def release(self, service: str) -> None:
        """Free the slots of a service that has ended."""
        with self._lock:
            self._held.pop(service, None)


def real_time_tasks(plan: Plan, partitions: int, shuffled: int) -> int:
    """How many tasks of a service run all the time.

    `partitions` is the number that it reads: those of an input that it reads twice count twice.
    Each stage of the state engine has `shuffled` tasks.
    """
    return partitions + plan.stages * shuffled if plan.mode == "real-time" else 0
