"""Ctrl-C at moments when Python itself would not see it, or lose it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable

import pytest

from tidegate.cli.interrupts import prompt_interrupts


def _interrupted_by(call: Callable[[], object]) -> None:
    """Send one signal that is lost, then make a call that blocks until the next."""
    with prompt_interrupts():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(10)
        except KeyboardInterrupt:
            pass  # as a destructor loses it
        call()


def test_interrupt_that_was_lost_ends_a_blocking_read() -> None:
    one, other = socket.socketpair()
    with one, other, pytest.raises(KeyboardInterrupt):
        _interrupted_by(lambda: one.recv(1))


def test_other_signals_are_not_repeated() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        with prompt_interrupts():
            os.kill(os.getpid(), signal.SIGUSR1)
            threading.Event().wait(1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR1]


def test_nothing_is_left_behind() -> None:
    threads, before = threading.active_count(), signal.set_wakeup_fd(-1)
    with prompt_interrupts():
        pass
    assert (threading.active_count(), signal.set_wakeup_fd(-1)) == (threads, before)
