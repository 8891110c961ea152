"""Makes Ctrl-C end a blocking call, also if the signal arrives just before the call."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

REPEAT_INTERVAL_S = 0.3
"""Seconds between two signals, until the block has ended."""


@contextmanager
def prompt_interrupts() -> Iterator[None]:
    """Raise `KeyboardInterrupt` soon after Ctrl-C, even if the main thread blocks.

    Python sees a signal only between two of its own instructions. One that comes just before a call that blocks is seen
    when the call returns, for an idle stream many seconds later; one that is raised inside a destructor is lost. So a
    thread waits for the first signal, and sends it again until this context is left. Call it on the main thread.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    main, is_over = threading.get_ident(), threading.Event()

    def repeat() -> None:
        signals = os.read(reader, 1)
        while signals == bytes([signal.SIGINT]) and not is_over.wait(REPEAT_INTERVAL_S):
            signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=repeat, name="interrupts", daemon=True)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        signal.set_wakeup_fd(before)
        os.write(writer, b"\0")
        thread.join()
        os.close(reader)
        os.close(writer)
