"""CPU scheduling of Tidegate's processes: compute processes must not pre-empt the one that delivers events.

Under Linux's default policy a process that is woken by a message may pre-empt its sender. The sender is often the
gateway, which may hold a lock that its other threads wait for. A process under SCHED_BATCH gets the same share of CPU
time, but never pre-empts another process when it wakes up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def use_batch_scheduling() -> None:
    """Put the calling thread, and the threads and processes it starts later, under SCHED_BATCH.

    Does nothing where the system has no such policy or refuses it.
    """
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):  # some sandboxes refuse it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@contextmanager
def batch_scheduling() -> Iterator[None]:
    """Put the threads and processes that the calling thread starts inside the block under SCHED_BATCH.

    The calling thread gets its own policy back at the end of the block.
    """
    if not hasattr(os, "SCHED_BATCH"):
        yield
        return
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    use_batch_scheduling()
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setscheduler(0, *before)
