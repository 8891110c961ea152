"""Stops a command that runs in the foreground when it gets a signal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event


@contextmanager
def stop_on_signal() -> Iterator[Event]:
    """Yield an event that SIGINT (Ctrl-C) or SIGTERM sets; a second signal ends the process at once.

    Must run on the main thread. Restores the former handlers at the end.
    """
    stop = Event()

    def handle(number: int, _: object) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
