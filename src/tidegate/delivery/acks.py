"""Acknowledged cursors of durable subscriptions, written to the registry in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from tidegate.delivery.batch import ahead
from tidegate.logs import Cursor
from tidegate.logs.cursor import Mark

FLUSH_INTERVAL_S = 0.1
"""How long a cursor waits for others. If the process ends before, its events are delivered again."""

_log = structlog.get_logger("tidegate.delivery")


class Acknowledgements:
    """Collects cursors, and writes the newest of each subscription to the registry in one transaction.

    Runs on one event loop. A cursor must not be before one that was noted or stored earlier: `onward` ensures it.
    """

    def __init__(self, store: Callable[[Mapping[str, str]], None], flush_interval_s: float = FLUSH_INTERVAL_S) -> None:
        """`store` may block: it is called on a thread, one call at a time."""
        self._store, self._flush_interval_s = store, flush_interval_s
        self._waiting: dict[str, str] = {}
        self._writing: dict[str, str] = {}
        self._write_lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._next_write: asyncio.Future[None] | None = None

    def note(self, subscription: str, cursor: str) -> None:
        """Store a cursor within the flush interval. Returns at once."""
        self._waiting[subscription] = cursor
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._flush_periodically())

    def newest(self, subscription: str) -> str | None:
        """Return the cursor that is not stored yet; None if the registry has the newest."""
        return self._waiting.get(subscription) or self._writing.get(subscription)

    def forget(self, subscription: str) -> None:
        """Drop the cursor of a subscription that was removed."""
        self._waiting.pop(subscription, None)

    async def flush(self) -> None:
        """Store all noted cursors now. Raises what the registry raises; the cursors are kept for the next flush."""
        await asyncio.shield(self._flush())  # a thread that writes can't be cancelled

    async def _flush(self) -> None:
        async with self._write_lock:
            if not self._waiting:
                return
            self._writing, self._waiting = self._waiting, {}
            written, self._next_write = self._next_write, None
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._store, self._writing)
            except Exception as problem:
                self._waiting = {**self._writing, **self._waiting}
                _complete(written, problem)
                raise
            finally:
                self._writing = {}
            _complete(written, None)

    async def stored(self) -> None:
        """Return when all cursors noted before are in the registry. Raises what the registry raises."""
        if self._waiting:
            if self._next_write is None:
                self._next_write = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._next_write)

    async def close(self) -> None:
        """Store the remaining cursors. Raises what the registry raises."""
        if self._task is not None:
            self._task.cancel()
        await self.flush()

    async def _flush_periodically(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._flush_interval_s)
            try:
                await self.flush()
            except Exception as problem:
                _log.warning("can't store cursors, and tries again", problem=str(problem))


def _complete(written: asyncio.Future[None] | None, problem: Exception | None) -> None:
    """Complete the future of a write, if there is one, with its result."""
    if written is None:
        return
    if problem is None:
        written.set_result(None)
    else:
        written.set_exception(problem)
        written.exception()  # marks it as retrieved, as its waiter may have been cancelled


def onward(cursor: Cursor, before: Cursor | None) -> Cursor:
    """Return a cursor that is at or after both cursors in every partition; `cursor` if they are of two generations.

    >>> onward(Cursor("a", {"0": 3, "1": 9}), Cursor("a", {"0": 7})).offsets
    {'0': 7, '1': 9}
    """
    if before is None or before.generation != cursor.generation:
        return cursor
    moved = ahead(cursor, before.offsets)
    marks: dict[str, Mark] = dict(before.marks)
    for source, mark in cursor.marks.items():
        old = marks.get(source)
        if old is None or _order(mark) > _order(old):
            marks[source] = mark
    return Cursor(moved.generation, moved.offsets, marks)


def _order(mark: Mark) -> tuple[int, int]:
    return mark if isinstance(mark, tuple) else (mark, 0)
