"""Counts the open connections of a gateway, and closes those that keep it waiting.

A connection *waits* until it has made a request that was let in. Anybody can open waiting connections, so they are few
for each address, and where all places are taken the oldest of them is closed for a new one: whoever holds them open
keeps nobody else out. Connections of known callers are not closed here; quotas count them.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from contextlib import suppress
from typing import Protocol

from tidegate.gateway.settings import LimitSettings

SWEEP_INTERVAL_S = 0.5
REASONS = ("head", "body", "address", "full")
"""Why a connection is cut off or refused: its peer was too slow, its address or the gateway has too many."""
RESERVED_FILES = 256
"""File descriptors that are not for connections: the log, the registry, webhooks, links."""


class Connection(Protocol):
    """One connection, as its HTTP or WebSocket protocol sees it."""

    address: str

    def overdue(self, now: float, /) -> str | None:
        """Say what the peer has taken too long for; None: nothing."""

    def expire(self, status: int, detail: str, /) -> None:
        """Close, with an answer where none has begun."""


class Connections:
    """All connections of a gateway. For the event loop's thread alone."""

    def __init__(self, limits: LimitSettings) -> None:
        self.limits = limits
        self.most = min(limits.connections, _files() - RESERVED_FILES)
        """Open at once."""
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}
        self._by_address: dict[str, dict[Connection, None]] = {}
        self._watched: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._swept_at = 0.0
        self.closed: Counter[str] = Counter()
        """Connections that were cut off or refused here, by reason."""
        self.longest_lag_s = 0.0
        """The longest delay of a sweep since `take_lag` was called."""

    @property
    def counts(self) -> dict[str, int]:
        """Open connections by state."""
        return {"waiting": len(self._waiting), "established": len(self._open) - len(self._waiting)}

    def opened(self, connection: Connection) -> None:
        """Count a new connection, which waits; make room for it, or refuse it where there is none."""
        of_address = self._by_address.setdefault(connection.address, {})
        if len(of_address) >= self.limits.connections_per_address:
            self._evict(next(iter(of_address)), "address", "too many connections of this address wait")
        if len(self._open) >= self.most:
            if not self._waiting:
                self.closed["full"] += 1
                connection.expire(503, f"all {self.most:,} connections of this gateway are in use; try again later")
                return
            self._evict(next(iter(self._waiting)), "full", "too many connections wait")
        self._open.add(connection)
        self._waiting[connection] = None
        self._by_address.setdefault(connection.address, {})[connection] = None

    def _evict(self, connection: Connection, reason: str, detail: str) -> None:
        self.closed[reason] += 1
        self.lost(connection)
        connection.expire(408, f"{detail}, and this one has made no request for the longest")

    def established(self, connection: Connection) -> None:
        """Let a connection stay: it has made a request that was let in."""
        if connection in self._waiting:
            self._forget_waiting(connection)

    def replaced(self, before: Connection, after: Connection) -> None:
        """Count a connection under the protocol that it has switched to."""
        if before in self._open:
            self.lost(before)
            self._open.add(after)
            self._waiting[after] = None
            self._by_address.setdefault(after.address, {})[after] = None

    def lost(self, connection: Connection) -> None:
        """Count a connection no more."""
        self._open.discard(connection)
        self._watched.discard(connection)
        if connection in self._waiting:
            self._forget_waiting(connection)

    def _forget_waiting(self, connection: Connection) -> None:
        del self._waiting[connection]
        of_address = self._by_address[connection.address]
        del of_address[connection]
        if not of_address:
            del self._by_address[connection.address]

    # Timeouts ------------------------------------------------------------------------------

    def watch(self, connection: Connection) -> None:
        """Ask a connection at each sweep whether its peer takes too long."""
        self._watched.add(connection)

    def unwatch(self, connection: Connection) -> None:
        """Ask it no more."""
        self._watched.discard(connection)

    def start(self) -> None:
        """Sweep from now on."""
        loop = asyncio.get_running_loop()
        self._swept_at = loop.time()
        self._timer = loop.call_later(SWEEP_INTERVAL_S, self._sweep, loop)

    def stop(self) -> None:
        """Sweep no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take_lag(self) -> float:
        """Return the longest time that the event loop was late for a sweep since the last call."""
        found, self.longest_lag_s = self.longest_lag_s, 0.0
        return found

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self.longest_lag_s = max(self.longest_lag_s, now - self._swept_at - SWEEP_INTERVAL_S)
        for connection in list(self._watched):
            reason = connection.overdue(now)
            if reason is not None:
                self.closed[reason] += 1
                self._watched.discard(connection)
                connection.expire(408, _LATE[reason])
        self._swept_at = now
        self._timer = loop.call_later(SWEEP_INTERVAL_S, self._sweep, loop)


_LATE = {
    "head": "the request's head took too long; see limits.head_timeout in the gateway's profile",
    "body": "the request's body came too slowly; see limits.body_timeout in the gateway's profile",
}


def raise_file_limit() -> None:
    """Let this process open as many files as it may: systems often begin with 1,024, for programs of the 1980s."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems say that there is no limit, and have one
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else max(soft, 2 * RESERVED_FILES)
