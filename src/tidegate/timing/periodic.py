"""Runs an action at a fixed interval, in a task or in a thread, until the caller stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event
from typing import NoReturn

OnError = Callable[[Exception], object]


async def periodic(
    action: Callable[[], Awaitable[object]], interval_s: float, on_error: OnError | None = None
) -> NoReturn:
    """Sleep for `interval_s`, await `action`, and repeat until the task is cancelled.

    The first call comes after the first interval, and calls never overlap: the interval is the pause between the end
    of one and the start of the next. An exception of `action` is passed to `on_error`, and the loop continues. With
    `on_error=None` the exception is raised and ends the loop.
    """
    while True:
        await asyncio.sleep(interval_s)
        try:
            await action()
        except Exception as error:
            if on_error is None:
                raise
            on_error(error)


def periodic_in_thread(
    action: Callable[[], object], interval_s: float, stop: Event, on_error: OnError | None = None
) -> None:
    """Wait for `interval_s`, call `action`, and repeat until `stop` is set; blocks the calling thread.

    Setting `stop` ends the wait at once; `action` may set it too. Exceptions are treated as in `periodic`.
    """
    while not stop.wait(interval_s):
        try:
            action()
        except Exception as error:
            if on_error is None:
                raise
            on_error(error)
