"""Notices that the reader of standard output has exited, even while nothing is written."""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _ReaderGone(BaseException):
    """Not an `OSError`: the code that the signal interrupts would catch that as its own."""


@contextmanager
def stop_without_reader() -> Iterator[None]:
    """Raise `BrokenPipeError` in the block as soon as the reader of standard output has exited: `| head -3`.

    Without it, a command that waits for events would notice only when it writes the next one, which may never come. A
    thread polls the pipe and sends SIGPIPE to the main thread. Does nothing outside the main thread, or if standard
    output is not a pipe.
    """
    if not _is_pipe() or threading.current_thread() is not threading.main_thread():
        yield
        return
    gone = threading.Event()

    def interrupt(*_: object) -> None:
        if gone.is_set():  # otherwise a socket was closed, and its write raises an error itself
            raise _ReaderGone

    before = signal.signal(signal.SIGPIPE, interrupt)
    wake, waker = os.pipe()
    watcher = threading.Thread(target=_watch, args=(wake, gone), daemon=True)
    watcher.start()
    try:
        yield
    except _ReaderGone:
        raise BrokenPipeError from None
    finally:
        signal.signal(signal.SIGPIPE, before)
        os.close(waker)
        watcher.join()
        os.close(wake)


def discard_output() -> None:
    """Redirect standard output to /dev/null, so that flushing it at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_pipe() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False


def _watch(wake: int, gone: threading.Event) -> None:
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # poll always reports errors and hang-ups
    poll.register(wake, 0)
    ready = [file for file, _ in poll.poll()]
    if wake not in ready:
        gone.set()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGPIPE)
