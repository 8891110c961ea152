"""Timers of connections. They need less memory than one asyncio task per connection."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable


class PeriodicTimer(ABC):
    """Calls `_fire` on the event loop after each interval, until it is stopped. Starts when it is created."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._schedule()

    def stop(self) -> None:
        """Stop the timer."""
        self._next.cancel()

    @abstractmethod
    def _interval_s(self) -> float: ...

    @abstractmethod
    def _fire(self) -> None: ...

    def _schedule(self) -> None:
        self._next = asyncio.get_running_loop().call_later(self._interval_s(), self._run)

    def _run(self) -> None:
        self._fire()
        self._schedule()


class Idle(PeriodicTimer):
    """Reports intervals without events."""

    __slots__ = ("_before", "_count", "_idle_s", "_tell")

    def __init__(self, idle_s: float, count: Callable[[], int], tell: Callable[[float], None]) -> None:
        """`count` returns the number of events so far; `tell` is called with the interval if it has not changed."""
        self._idle_s, self._count, self._tell, self._before = idle_s, count, tell, count()
        super().__init__()

    def _interval_s(self) -> float:
        return self._idle_s

    def _fire(self) -> None:
        count = self._count()
        if count == self._before:
            self._tell(self._idle_s)
        self._before = count
