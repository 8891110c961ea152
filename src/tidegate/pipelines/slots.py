"""Shares out Spark's slots: a real-time task holds its slot as long as its service runs.

A service with more tasks than there are free slots would never start, and would hold the slots that it got: no other
service could start either.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import Lock

from pyspark.sql import SparkSession

from tidegate.errors import ServiceError
from tidegate.pipelines.connector import attach
from tidegate.pipelines.planner import Plan

RESERVED_SLOTS = 8
"""Slots of a local Spark that no real-time service gets: services in micro-batches need some now and then."""


class MissingSlotsError(ServiceError):
    """Too few slots of a cluster are free for a service. More may come at any moment."""

    missing = 0
    """How many are missing."""


class Slots:
    """The slots of Spark, and who holds how many."""

    def __init__(self, total: Callable[[], int | None], reserved: int, remedy: str, *, may_grow: bool = False) -> None:
        """`total` returns the number of slots now; None: there is no limit. `remedy` says how to get more."""
        self._total, self._reserved, self._remedy = total, reserved, remedy
        self._error = MissingSlotsError if may_grow else ServiceError
        self._held: dict[str, int] = {}
        self._lock = Lock()

    def take(self, service: str, count: int) -> None:
        """Take slots for a service, in place of those that it holds. Raises if too few are free.

        It is a `MissingSlotsError` if there may be more later, and another `ServiceError` if not.
        """
        total = self._total()
        with self._lock:
            if total is not None:
                others = sum(slots for name, slots in self._held.items() if name != service)
                free = max(0, total - self._reserved - others)
                if count > free:
                    error = self._error(
                        f"it has {count} real-time tasks, and of Spark's {total} slots {free} are free, so "
                        f"{count - free} are missing: {self._remedy}"
                    )
                    if isinstance(error, MissingSlotsError):
                        error.missing = count - free
                    raise error
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


def slots_of(spark: SparkSession) -> Slots:
    """Return the slots of a session: a fixed number for a local one, those of its executors for a cluster."""
    master = str(spark.sparkContext.master)
    fewer = "give its streams fewer partitions, remove other services, or"
    if master.startswith("local"):
        match = re.match(r"local\[(\d+)", master)
        total = int(match[1]) if match else None
        return Slots(lambda: total, RESERVED_SLOTS, f"{fewer} set master: local[N] in the profile with a larger N")
    if spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return Slots(lambda: None, 0, "")  # executors come when tasks wait for them
    return Slots(lambda: attach.executor_slots(spark), 0, f"{fewer} add workers or cores", may_grow=True)
