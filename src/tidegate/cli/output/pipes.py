"""Standard output as a pipe, whose reader may go away while nothing is written."""

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
    """No `OSError`: whatever is interrupted would take it for one of its own."""


@contextmanager
def ends_with_its_reader() -> Iterator[None]:
    """Raise `BrokenPipeError` inside as soon as the reader of standard output is gone: `| head -3`.

    Whoever waits for events would notice only when the next is written, which may
    be never. Python ignores SIGPIPE: here a thread that watches the pipe sends it.
    """
    if not _is_pipe() or threading.current_thread() is not threading.main_thread():
        yield
        return
    gone = threading.Event()

    def interrupt(*_: object) -> None:
        if gone.is_set():  # else it is of a socket, whose write fails by itself
            raise _ReaderGone

    before = signal.signal(signal.SIGPIPE, interrupt)
    wake, woken = os.pipe()
    watcher = threading.Thread(target=_watch, args=(wake, gone), daemon=True)
    watcher.start()
    try:
        yield
    except _ReaderGone:
        raise BrokenPipeError from None
    finally:
        signal.signal(signal.SIGPIPE, before)
        os.close(woken)
        watcher.join()
        os.close(wake)


def discard_output() -> None:
    """Let nothing more be said of a reader that is gone, at the process's end neither."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_pipe() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False


def _watch(wake: int, gone: threading.Event) -> None:
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # errors are told unasked
    poll.register(wake, 0)
    ready = [file for file, _ in poll.poll()]
    if wake not in ready:
        gone.set()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGPIPE)
