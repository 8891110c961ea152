"""The threads of a gateway, in named pools, so that no kind of work delays another.

    auth       finds API keys: nothing else, so that everybody can sign in whatever others do
    registry   short calls to the registry and the log; also the event loop's default executor
    heavy      work whose length callers choose: definitions, long filters, explain, backtest, discover, semantics

A caller has few heavy calls at a time: more of them wait, and too many are refused with 429.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.http.problems import Problem
from tidegate.gateway.settings import LimitSettings

AUTH_THREADS = 4
REGISTRY_THREADS = 8
HEAVY_THREADS = 4
"""They share one interpreter with the event loop: more would only slow each other, and delivery, down."""

T = TypeVar("T")


class _Turns:
    """The heavy calls of one caller."""

    __slots__ = ("calls", "semaphore")

    def __init__(self, at_once: int) -> None:
        self.semaphore = asyncio.Semaphore(at_once)
        self.calls = 0
        """Calls that run or wait."""


class Executors:
    """Runs blocking calls in threads. For the event loop's thread alone."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self.auth = ThreadPoolExecutor(AUTH_THREADS, "auth")
        self.registry = ThreadPoolExecutor(REGISTRY_THREADS, "registry")
        self._heavy = ThreadPoolExecutor(HEAVY_THREADS, "heavy")
        self._turns: dict[str, _Turns] = {}
        self.refused = 0
        """Heavy calls that were answered with 429."""

    def start(self) -> None:
        """Become the default of the running event loop, for what names no pool."""
        asyncio.get_running_loop().set_default_executor(self.registry)

    def close(self) -> None:
        """Take no more calls; those that run end by themselves."""
        for pool in (self.auth, self.registry, self._heavy):
            pool.shutdown(wait=False, cancel_futures=True)

    async def heavy(self, caller: Caller, call: Callable[..., T], *args: Any, patient: bool = False) -> T:
        """Run a call that may take long, in its caller's turn.

        Raises a `Problem` with status 429 if too many of the caller's wait; `patient` waits anyhow.
        """
        async with self.turn(caller, patient=patient):
            return await asyncio.get_running_loop().run_in_executor(self._heavy, partial(call, *args))

    @asynccontextmanager
    async def turn(self, caller: Caller, *, patient: bool = False) -> AsyncIterator[None]:
        """Hold one of a caller's turns for heavy work, for work that is not done in a thread here, such as DNS."""
        name, limits = caller.id or caller.name, self._limits
        turns = self._turns.get(name)
        if turns is None:
            turns = self._turns[name] = _Turns(limits.heavy_calls)
        if not patient and turns.calls >= limits.heavy_calls + limits.heavy_waiting:
            self.refused += 1
            raise _too_many(turns.calls)
        turns.calls += 1
        try:
            async with turns.semaphore:
                yield
        finally:
            turns.calls -= 1
            if not turns.calls:
                self._turns.pop(name, None)


def _too_many(calls: int) -> Problem:
    detail = (
        f"{calls} of your calls that take long (definitions, filters, explain, backtest, discover, semantics, webhook "
        "targets) are under way or wait; try again when some have been answered"
    )
    return Problem(429, "busy", "Too many calls that take long", detail, headers={"retry-after": "1"})
