"""How far durable subscriptions have come, written down together every so often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from tidegate.delivery.batch import ahead
from tidegate.logs import Cursor
from tidegate.logs.cursor import Mark

DELAY_S = 0.1
"""How long a cursor waits for others. What is lost with the process is delivered again, as it may be."""

_log = structlog.get_logger("tidegate.delivery")


class Acknowledgements:
    """Cursors on their way to the registry: many in one transaction, of each subscription the newest.

    All in one event loop. Whoever notes a cursor has made sure that it is not
    before the one that is noted or stored already.
    """

    def __init__(self, store: Callable[[Mapping[str, str]], None], delay_s: float = DELAY_S) -> None:
        """`store` may block: it is called in a thread, never twice at once."""
        self._store, self._delay_s = store, delay_s
        self._waiting: dict[str, str] = {}
        self._writing: dict[str, str] = {}
        self._one = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._next: asyncio.Future[None] | None = None

    def note(self, subscription: str, cursor: str) -> None:
        """Store a cursor soon."""
        self._waiting[subscription] = cursor
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._soon())

    def newest(self, subscription: str) -> str | None:
        """The cursor that is on its way; None: the registry has the newest."""
        return self._waiting.get(subscription) or self._writing.get(subscription)

    def forget(self, subscription: str) -> None:
        """Store nothing for a subscription that is gone."""
        self._waiting.pop(subscription, None)

    async def flush(self) -> None:
        """Store all that was noted, now."""
        await asyncio.shield(self._flush())  # a thread that writes can't be called back

    async def _flush(self) -> None:
        async with self._one:
            if not self._waiting:
                return
            self._writing, self._waiting = self._waiting, {}
            told, self._next = self._next, None
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._store, self._writing)
            except Exception as problem:
                self._waiting = {**self._writing, **self._waiting}
                _tell(told, problem)
                raise
            finally:
                self._writing = {}
            _tell(told, None)

    async def stored(self) -> None:
        """Return when all that is noted by now is in the registry; raise what keeps it from there."""
        if self._waiting:
            if self._next is None:
                self._next = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._next)

    async def close(self) -> None:
        """Store what is left."""
        if self._task is not None:
            self._task.cancel()
        await self.flush()

    async def _soon(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._delay_s)
            try:
                await self.flush()
            except Exception as problem:
                _log.warning("can't store cursors, and tries again", problem=str(problem))


def _tell(waiting: asyncio.Future[None] | None, problem: Exception | None) -> None:
    if waiting is None:
        return
    if problem is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(problem)
        waiting.exception()  # whoever waited may be gone


def onward(cursor: Cursor, before: Cursor | None) -> Cursor:
    """Where a subscription is that has acknowledged two cursors of one stream: nowhere back.

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
