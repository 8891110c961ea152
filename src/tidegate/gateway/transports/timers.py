"""What a connection does every so often: timers, as a task for each would cost its memory."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable


class Clock(ABC):
    """Does something again and again, until it is stopped."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._set()

    def stop(self) -> None:
        """Do nothing more."""
        self._next.cancel()

    @abstractmethod
    def _pause_s(self) -> float: ...

    @abstractmethod
    def _strike(self) -> None: ...

    def _set(self) -> None:
        self._next = asyncio.get_running_loop().call_later(self._pause_s(), self._run)

    def _run(self) -> None:
        self._strike()
        self._set()


class Idle(Clock):
    """Tells when nothing has come for a while."""

    __slots__ = ("_before", "_count", "_idle_s", "_tell")

    def __init__(self, idle_s: float, count: Callable[[], int], tell: Callable[[float], None]) -> None:
        """`count` says how many events have come so far, `tell` is called with the seconds."""
        self._idle_s, self._count, self._tell, self._before = idle_s, count, tell, count()
        super().__init__()

    def _pause_s(self) -> float:
        return self._idle_s

    def _strike(self) -> None:
        count = self._count()
        if count == self._before:
            self._tell(self._idle_s)
        self._before = count
