"""Of all who run the services of one registry, one does and the others stand by: a lease says who."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from tidegate.cli.logging import logger
from tidegate.errors import EnvironmentProblem, RegistryError
from tidegate.timing import periodic_in_thread

if TYPE_CHECKING:
    from tidegate.registry import Registry

NAME = "runner"
LEASE_S = 20.0
"""How long after the death of one another takes over."""
RENEW_S = 4.0
LOOK_S = 1.0


@contextmanager
def turn(
    registry: Registry, stop: Event, look: Callable[[], object] = lambda: None, renew_s: float = RENEW_S
) -> Iterator[bool]:
    """Wait for the turn, calling `look` every second; gives False where `stop` came first.

    While the registry is away nobody can take over, so the one who runs goes on. Where another has taken
    over, `stop` is set, and the end of this raises.
    """
    holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    if not _has_come(registry, holder, stop, look):
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

    thread = threading.Thread(target=periodic_in_thread, args=(renew, renew_s, ended), name="turn", daemon=True)
    thread.start()
    try:
        yield True
    finally:
        ended.set()
        thread.join()
        if not lost.is_set():
            registry.release(NAME, holder)
    if lost.is_set():
        raise EnvironmentProblem("another process runs the services of this registry now: this one has stopped its own")


def _has_come(registry: Registry, holder: str, stop: Event, look: Callable[[], object]) -> bool:
    is_told = False
    while not stop.is_set():
        if registry.lease(NAME, holder, LEASE_S):
            return True
        if not is_told:
            held = registry.leases().get(NAME)
            where = held.holder.rpartition(":")[0] if held else "another process"
            logger("tidegate.up").info(
                "standing by: the services run elsewhere, and here when those end", runs_at=where
            )
            is_told = True
        look()
        stop.wait(LOOK_S)
    return False
