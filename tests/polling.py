"""Waits for a condition that another thread, task or process makes true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

TIMEOUT_S = 300.0
"""Long: on a busy machine a start takes twenty times as long as usual. Only a test that hangs waits to the end."""
MAX_INTERVAL_S = 0.5
INTERVAL_SHARE = 0.05
"""Each pause is at least this share of the time waited so far: checks cost CPU time that the tested code needs."""


def until(
    condition: Callable[[], T],
    what: str = "the condition",
    timeout_s: float = TIMEOUT_S,
    interval_s: float = 0.002,
) -> T:
    """Call `condition` in this thread until it returns a true value, and return that value.

    Fails the test with "waited … s for `what`" after `timeout_s`.
    """
    pauses = _pauses(what, timeout_s, interval_s)
    while not (value := condition()):
        time.sleep(next(pauses))
    return value


async def until_async(
    condition: Callable[[], T],
    what: str = "the condition",
    timeout_s: float = TIMEOUT_S,
    interval_s: float = 0.002,
) -> T:
    """Do the same in a task: `condition` is called in the event loop, which runs other tasks between two calls."""
    pauses = _pauses(what, timeout_s, interval_s)
    while not (value := condition()):  # noqa: ASYNC110 - the condition sets no event
        await asyncio.sleep(next(pauses))
    return value


def _pauses(what: str, timeout_s: float, interval_s: float) -> Iterator[float]:
    started = time.monotonic()
    while (waited_s := time.monotonic() - started) < timeout_s:
        yield max(interval_s, min(MAX_INTERVAL_S, waited_s * INTERVAL_SHARE))
    raise AssertionError(f"waited {timeout_s:g} s for {what}")
