"""The event loop, thread pools and background tasks of a broker's links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import structlog

from tidegate.timing import periodic

_log = structlog.get_logger("tidegate.link")

T = TypeVar("T")


class Runtime:
    """Owns every task and thread of the links. Created on the event loop, which alone calls it.

    Files and the registry are used in threads, so that no disk delays the sockets. There are three pools, so that
    history pages and event batches never delay the lease.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_closed = False
        """True once the links are being closed: no new background task may start."""
        self._log_threads = ThreadPoolExecutor(2, "links")
        self._history_threads = ThreadPoolExecutor(2, "links-history")
        self._registry_threads = ThreadPoolExecutor(2, "links-registry")
        self._tasks: set[asyncio.Task[Any]] = set()

    def time(self) -> float:
        """Return the time of the loop's clock, in seconds."""
        return self.loop.time()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine as a background task, which `cancel_tasks` ends."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def repeat(self, interval_s: float, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Await an action at every interval, until cancelled. An exception is logged, and the next call follows."""

        def warn(problem: Exception) -> None:
            _log.warning("periodic work of links failed", problem=repr(problem))

        await periodic(action, interval_s, warn)

    def call_from_thread(self, call: Callable[[T], None], value: T) -> None:
        """Call a function on the loop, from any thread. Does nothing if the loop has ended."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(call, value)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a function in the threads for the log and for parsing."""
        return await self.loop.run_in_executor(self._log_threads, call)

    async def in_history_thread(self, call: Callable[[], T]) -> T:
        """Run a function in the threads for history pages: neighbours may request many."""
        return await self.loop.run_in_executor(self._history_threads, call)

    async def in_registry_thread(self, call: Callable[[], T]) -> T:
        """Run a function in the threads for the lease and for saving state, which events must not delay."""
        return await self.loop.run_in_executor(self._registry_threads, call)

    async def cancel_tasks(self) -> None:
        """Cancel all background tasks and wait until they have ended."""
        for task in self._tasks:
            if not task.cancelling():  # a second cancel would interrupt its clean-up
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def shut_down_threads(self) -> None:
        """Wait for all threads and end them."""
        self._history_threads.shutdown(wait=True)
        self._log_threads.shutdown(wait=True)
        self._registry_threads.shutdown(wait=True)
