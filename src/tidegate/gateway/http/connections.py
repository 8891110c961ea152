"""Counts the open connections of a gateway, and closes slow ones and those without an authorised request.

A connection is *waiting* until it has made an authorised request. No credentials are needed to open waiting
connections, so each address may have only a few of them, and a new connection replaces the oldest waiting one when
the gateway is full: idle connections can't keep other callers out. Connections of identified callers are not closed
here; quotas limit them.
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
"""Why a connection was closed: its head or body was too slow, or its address or the gateway had too many."""
RESERVED_FILES = 256
"""File descriptors that connections may not use: for the log, the registry, webhooks and links."""


class Connection(Protocol):
    """A connection. The HTTP and WebSocket protocols implement it."""

    address: str

    def overdue(self, now: float, /) -> str | None:
        """Return the part of the request that is too slow (`head`, `body`); None if none is."""

    def expire(self, status: int, detail: str, /) -> None:
        """Close the connection, with a response if none has started."""


class Connections:
    """All connections of a gateway. All methods are called on the event loop."""

    def __init__(self, limits: LimitSettings) -> None:
        self.limits = limits
        self.max_open = min(limits.connections, _files() - RESERVED_FILES)
        """Connections that may be open at the same time."""
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}
        self._by_address: dict[str, dict[Connection, None]] = {}
        self._watched: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._swept_at = 0.0
        self.closed: Counter[str] = Counter()
        """Number of connections closed here, by reason."""
        self.longest_lag_s = 0.0
        """The longest delay of a sweep since the last call of `take_lag`."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of open connections by state: `waiting`, `established`."""
        return {"waiting": len(self._waiting), "established": len(self._open) - len(self._waiting)}

    def opened(self, connection: Connection) -> None:
        """Register a new connection as waiting. Closes an older waiting one, or this one, if there are too many."""
        of_address = self._by_address.setdefault(connection.address, {})
        if len(of_address) >= self.limits.connections_per_address:
            self._evict(next(iter(of_address)), "address", "too many connections of this address wait")
        if len(self._open) >= self.max_open:
            if not self._waiting:
                self.closed["full"] += 1
                detail = f"all {self.max_open:,} connections of this gateway are in use; try again later"
                connection.expire(503, detail)
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
        """Mark a connection as established: it has made an authorised request."""
        if connection in self._waiting:
            self._forget_waiting(connection)

    def replaced(self, before: Connection, after: Connection) -> None:
        """Register a connection under the protocol that it was upgraded to."""
        if before in self._open:
            self.lost(before)
            self._open.add(after)
            self._waiting[after] = None
            self._by_address.setdefault(after.address, {})[after] = None

    def lost(self, connection: Connection) -> None:
        """Deregister a connection that was lost or evicted."""
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
        """Check at each sweep whether the peer of a connection is too slow."""
        self._watched.add(connection)

    def unwatch(self, connection: Connection) -> None:
        """Stop checking a connection."""
        self._watched.discard(connection)

    def start(self) -> None:
        """Start the sweeps on the running event loop."""
        loop = asyncio.get_running_loop()
        self._swept_at = loop.time()
        self._timer = loop.call_later(SWEEP_INTERVAL_S, self._sweep, loop)

    def stop(self) -> None:
        """Stop the sweeps."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take_lag(self) -> float:
        """Return the longest delay of a sweep since the last call, which shows how late the event loop was."""
        lag_s, self.longest_lag_s = self.longest_lag_s, 0.0
        return lag_s

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
    """Raise the soft limit of open files of this process to the hard limit. The usual soft limit is only 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems report no limit, and refuse values above an internal one
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else max(soft, 2 * RESERVED_FILES)
