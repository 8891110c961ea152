"""How much one caller may have at once, or do in a second, so that none takes the gateway from the others.

Counted for each caller, on each gateway for itself. All guests are one caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

from tidegate.gateway.callers import Caller
from tidegate.gateway.problems import Problem
from tidegate.gateway.settings import Quotas

_NAMES = {each.name for each in fields(Quotas)}


def share(total: int) -> int:
    """What one caller may have of something that all callers share: not all of it.

    >>> share(10_000)
    9000
    """
    return max(1, total * 9 // 10)


class Meter:
    """Counts what callers have and do, and refuses what is beyond their quotas."""

    def __init__(
        self, quotas: Quotas, clock: Callable[[], float] = time.monotonic, *, most_connections: int | None = None
    ) -> None:
        """`most_connections`: what one caller may have of them, if its quota is more; None: all of its quota."""
        if most_connections is not None:
            limit = quotas.connections
            quotas = replace(quotas, connections=min(most_connections, most_connections if limit is None else limit))
        self._quotas, self._clock = quotas, clock
        self._counts: dict[tuple[str, str], int] = {}
        self._rates: dict[tuple[str, str], Bucket] = {}

    def of(self, caller: Caller) -> Quotas:
        """The quotas of a caller: their key's own, over all callers'."""
        own: dict[str, Any] = {name: limit for name, limit in caller.quotas if name in _NAMES}
        return replace(self._quotas, **own) if own else self._quotas

    # At once -------------------------------------------------------------------------------

    def begin(self, caller: Caller) -> None:
        """Let a request, or a socket, be under way, until it has come to its `end`."""
        self._need_rate("requests", caller, 1)
        self.take("connections", caller)

    def end(self, caller: Caller) -> None:
        """A request has been answered, or a socket is closed."""
        self.give_back("connections", caller)

    def take(self, quota: str, caller: Caller) -> None:
        """Count one more; refuse it beyond the quota."""
        about = quota, _id(caller)
        count = self._counts.get(about, 0)
        self.need(quota, caller, count)
        self._counts[about] = count + 1

    def taken(self, quota: str, caller: Caller) -> Callable[[], None]:
        """Count one more, and give what counts it less."""
        self.take(quota, caller)
        return partial(self.give_back, quota, caller)

    def give_back(self, quota: str, caller: Caller) -> None:
        """Count one less."""
        about = quota, _id(caller)
        self._counts[about] -= 1
        if not self._counts[about]:
            del self._counts[about]

    def need(self, quota: str, caller: Caller, count: int) -> None:
        """Refuse one more where there are `count`."""
        limit = getattr(self.of(caller), quota)
        if limit is not None and count >= limit:
            raise _beyond(quota, limit, f"{_who(caller)} has all {limit:,} {_WHAT[quota]} that it may have at once")

    def need_filter(self, caller: Caller, text: str | None) -> None:
        """Refuse a filter that is too long."""
        limit, size = self.of(caller).filter_bytes, len((text or "").encode())
        if limit is not None and size > limit:
            raise _beyond("filter_bytes", limit, f"expected a filter of at most {limit:,} bytes, not {size:,}")

    # In a second ---------------------------------------------------------------------------

    def need_events(self, caller: Caller) -> None:
        """Refuse to take events while there were too many lately."""
        self._need_rate("events", caller, 0)

    def took_events(self, caller: Caller, count: int) -> None:
        """Note how many were taken: how many a request has nobody knows before it is read, so it is paid afterwards."""
        if self.of(caller).events is not None:
            self._rate("events", caller).spend(count)

    def need_deliveries(self, caller: Caller, most: int) -> int:
        """How many events a page may have, of `most` that are wanted; refuse it while too many went out lately."""
        limit = self.of(caller).deliveries
        if limit is None:
            return most
        self._need_rate("deliveries", caller, 1)
        self._rate("deliveries", caller).spend(-1)  # what the page has is paid when it is known
        return min(most, max(1, int(limit)))

    def delivered(self, caller: Caller, count: int) -> None:
        """Note how many events a page had."""
        if self.of(caller).deliveries is not None:
            self._rate("deliveries", caller).spend(count)

    def pace(self, caller: Caller) -> CallerPace | None:
        """What events that go out to a caller keep to; None: nothing."""
        limit = self.of(caller).deliveries
        return None if limit is None else CallerPace(partial(self._rate, "deliveries", caller), limit)

    def _need_rate(self, quota: str, caller: Caller, count: int) -> None:
        limit = getattr(self.of(caller), quota)
        if limit is None:
            return
        bucket = self._rate(quota, caller)
        wait_s = bucket.wait_s(count)
        if wait_s > 0:
            verb = "get" if quota == "deliveries" else "send"
            raise _beyond(quota, limit, f"{_who(caller)} may {verb} {limit:,g} {_WHAT[quota]} a second", wait_s)
        bucket.spend(count)

    def _rate(self, quota: str, caller: Caller) -> Bucket:
        about = quota, _id(caller)
        found = self._rates.get(about)
        if found is None:
            if len(self._rates) >= _MOST_RATES:
                self._rates = {key: each for key, each in self._rates.items() if not each.is_full}
            found = self._rates[about] = Bucket(getattr(self.of(caller), quota), self._clock)
        return found


_MOST_RATES = 10_000
"""Callers whose rates are remembered; of more, those are forgotten who have sent nothing lately."""


class Bucket:
    """Holds a second's worth, and is filled all the time; what is spent beyond it has to come in first."""

    __slots__ = ("_at", "_clock", "_left", "_rate")

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate, self._clock = rate, clock
        self._left, self._at = self._most, clock()

    @property
    def _most(self) -> float:
        return max(1.0, self._rate)

    @property
    def is_full(self) -> bool:
        """Whether nothing was spent lately."""
        return self._filled() >= self._most

    def wait_s(self, count: float) -> float:
        """How long until there is so much; of nothing, until there is no debt."""
        return max(0.0, (count - self._filled()) / self._rate)

    def spend(self, count: float) -> None:
        """Take so much out, also what is not in."""
        self._left, self._at = self._filled() - count, self._clock()

    def _filled(self) -> float:
        return min(self._most, self._left + (self._clock() - self._at) * self._rate)


class CallerPace:
    """What events that go out to one caller keep to, whatever ways they go."""

    __slots__ = ("_bucket", "_worth")

    def __init__(self, bucket: Callable[[], Bucket], rate: float) -> None:
        self._bucket = bucket
        self._worth = max(1.0, rate * _PAUSE_S)

    def take(self) -> bool:
        """Let one more go out; false: it has to wait."""
        bucket = self._bucket()
        if bucket.wait_s(1) > 0:
            return False
        bucket.spend(1)
        return True

    def give_back(self) -> None:
        """One that was taken has not gone out."""
        self._bucket().spend(-1)

    def wait_s(self) -> float:
        """How long until it is worth to go on."""
        return self._bucket().wait_s(self._worth)


_PAUSE_S = 0.05
"""Whoever has to wait gets so much together then, at least."""

_WHAT = {
    "connections": "connections",
    "subscriptions": "subscriptions",
    "durable": "durable subscriptions",
    "events": "events",
    "deliveries": "events",
    "requests": "requests",
}
_MORE = "an admin gives more with a key (tidegate keys create --quota NAME=NUMBER) or in the profile (access: {quotas})"


def _id(caller: Caller) -> str:
    """Who it is, whatever token they show."""
    return caller.id or caller.name


def _who(caller: Caller) -> str:
    return caller.told if caller.id is not None else f"whoever is not known ({caller.name})"


def _beyond(quota: str, limit: float, detail: str, wait_s: float | None = None) -> Problem:
    headers = {} if wait_s is None else {"retry-after": str(int(wait_s) + 1)}
    title = "That is more than your quota"
    return Problem(429, "quota", title, f"{detail}; {_MORE}", headers=headers, quota=quota, limit=limit)
