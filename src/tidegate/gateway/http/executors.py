"""The thread pools of a gateway, one per kind of work, so that no kind delays another.

    auth       looks up API keys, and nothing else, so that signing in is always possible
    registry   short calls to the registry and the log; also the default executor of the event loop
    heavy      calls whose duration the caller controls: definitions, long filters, explain, backtest, discover,
               semantics

Each caller runs a limited number of heavy calls at a time. Further calls wait, and too many are refused with 429.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.http.problems import HttpProblem
from tidegate.gateway.settings import LimitSettings

AUTH_THREADS = 4
REGISTRY_THREADS = 8
HEAVY_THREADS = 4
"""All threads share the interpreter lock with the event loop: more of them would slow delivery down."""

T = TypeVar("T")


class _Turns:
    """The heavy calls of one caller that run or wait."""

    __slots__ = ("calls", "semaphore")

    def __init__(self, at_once: int) -> None:
        self.semaphore = asyncio.Semaphore(at_once)
        self.calls = 0
        """Calls that run or wait."""


class Executors:
    """Runs blocking calls in threads. All methods are called on the event loop."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self.auth = ThreadPoolExecutor(AUTH_THREADS, "auth")
        self.registry = ThreadPoolExecutor(REGISTRY_THREADS, "registry")
        self._heavy = ThreadPoolExecutor(HEAVY_THREADS, "heavy")
        self._turns: dict[str, _Turns] = {}
        self.refused = 0
        """Number of heavy calls that were refused with 429."""

    def start(self) -> None:
        """Make the registry pool the default executor of the running event loop."""
        asyncio.get_running_loop().set_default_executor(self.registry)

    def close(self) -> None:
        """Shut the pools down without waiting. Running calls finish; waiting calls are cancelled."""
        for pool in (self.auth, self.registry, self._heavy):
            pool.shutdown(wait=False, cancel_futures=True)

    async def heavy(self, caller: Caller, call: Callable[..., T], *args: Any, patient: bool = False) -> T:
        """Run a long call in the heavy pool, within the limit of its caller, and return its result.

        Raises `HttpProblem` (429) if too many calls of the caller wait already; with `patient` it waits instead.
        """
        async with self.turn(caller, patient=patient):
            return await asyncio.get_running_loop().run_in_executor(self._heavy, partial(call, *args))

    @asynccontextmanager
    async def turn(self, caller: Caller, *, patient: bool = False) -> AsyncIterator[None]:
        """Count heavy work of a caller that does not run in the heavy pool, such as DNS. Raises as `heavy` does."""
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


def _too_many(calls: int) -> HttpProblem:
    detail = (
        f"{calls} of your long calls (definitions, filters, explain, backtest, discover, semantics, webhook "
        "targets) are running or waiting; try again when some have been answered"
    )
    return HttpProblem(429, "busy", "Too many calls that take long", detail, headers={"retry-after": "1"})
