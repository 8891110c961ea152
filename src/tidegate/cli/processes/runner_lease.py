"""The lease of the runner: of all processes that share a registry, one runs its services and the others stand by."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event
from typing import TYPE_CHECKING

from tidegate.cli.output.logging import logger
from tidegate.errors import EnvironmentProblem, RegistryError, RegistryUnreachable
from tidegate.timing import periodic_in_thread

if TYPE_CHECKING:
    from tidegate.registry import Registry

NAME = "runner"
LEASE_S = 8.0
"""How long the lease of a process that has died blocks the others."""
RENEW_INTERVAL_S = 2.0
POLL_INTERVAL_S = 0.5


@contextmanager
def runner_lease(
    registry: Registry, stop: Event, on_wait: Callable[[], object] = lambda: None, renew_s: float = RENEW_INTERVAL_S
) -> Iterator[bool]:
    """Wait for the lease and hold it while the block runs; yields False if `stop` was set before.

    `on_wait` is called twice a second while another process holds the lease. A thread renews the lease. If the registry
    can't be reached, no other process can take over either, so the block keeps running. If another process has taken
    over, `stop` is set, and an `EnvironmentProblem` is raised at the end of the block.
    """
    holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    if not _acquire(registry, holder, stop, on_wait):
        yield False
        return
    ended, lost = Event(), Event()

    def renew() -> None:
        try:
            if not registry.lease(NAME, holder, LEASE_S):
                lost.set()
                stop.set()
                ended.set()
        except RegistryError as problem:
            logger("tidegate.up").warning("the lease of the services can't be renewed", problem=str(problem))

    thread = threading.Thread(target=periodic_in_thread, args=(renew, renew_s, ended), name="runner-lease", daemon=True)
    thread.start()
    try:
        yield True
    finally:
        ended.set()
        thread.join()
        if not lost.is_set():
            with suppress(RegistryUnreachable):  # then the lease ends by itself
                registry.release(NAME, holder)
    if lost.is_set():
        raise EnvironmentProblem("another process runs the services of this registry now: this one has stopped its own")


def _acquire(registry: Registry, holder: str, stop: Event, on_wait: Callable[[], object]) -> bool:
    """Poll until the lease is ours; returns False if `stop` is set first. Waits while the registry is away."""
    is_logged = False
    while not stop.is_set():
        try:
            if registry.lease(NAME, holder, LEASE_S):
                return True
            if not is_logged:
                lease = registry.leases().get(NAME)
                where = lease.holder.rpartition(":")[0] if lease else "another process"
                logger("tidegate.up").info(
                    "standing by: the services run elsewhere, and here when those end", runs_at=where
                )
                is_logged = True
        except RegistryUnreachable as problem:
            logger("tidegate.up").warning("the registry does not answer: waiting for it", problem=str(problem))
        on_wait()
        stop.wait(POLL_INTERVAL_S)
    return False
