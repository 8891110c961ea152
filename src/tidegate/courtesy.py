"""Which of our processes interrupts others on a busy machine: those that compute let the one that delivers go on.

Whoever is woken by a message runs at once, where Linux is asked for nothing else, in place of whoever has sent it: the
gateway, say, with a lock that all its threads wait for. One that stands back runs as much, but begins when another
waits, or has had its turn.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def stand_back() -> None:
    """Let this thread, and what it starts from now on, interrupt nobody; where that can't be asked for, nothing is."""
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):  # some sandboxes refuse it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@contextmanager
def standing_back() -> Iterator[None]:
    """Let what this thread starts within the block interrupt nobody."""
    if not hasattr(os, "SCHED_BATCH"):
        yield
        return
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    stand_back()
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setscheduler(0, *before)
