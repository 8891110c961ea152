"""Quotas and rate limits of each caller, so that no caller exhausts the gateway.

Gateways that share a registry count together: each reports the use of its callers once a second, and subtracts the use
that others report. In that second a caller may exceed a quota. All guests count as one caller.

A rate is divided by need: a bucket refills at the rate less what the buckets of the other gateways refilled, but at
least at an equal share of the gateways that the caller uses. So all gateways together refill no more than the rate.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any, NamedTuple

from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.http.problems import HttpProblem
from tidegate.gateway.settings import Quotas

_NAMES = {field.name for field in fields(Quotas)}


def share(total: int) -> int:
    """Return how much of a shared resource one caller may use: nine tenths.

    >>> share(10_000)
    9000
    """
    return max(1, total * 9 // 10)


class Meter:
    """Counts what callers hold and do, and refuses what exceeds their quotas. Used on the event loop only."""

    def __init__(
        self, quotas: Quotas, clock: Callable[[], float] = time.monotonic, *, max_connections: int | None = None
    ) -> None:
        """`max_connections` limits the connections of one caller, besides its quota; None: only the quota does."""
        self._quotas, self._clock, self._max_connections = quotas, clock, max_connections
        self._counts: dict[tuple[str, str], int] = {}
        self._rates: dict[tuple[str, str], Bucket] = {}
        self._elsewhere: Mapping[tuple[str, str], Use] = {}
        """The use of callers at other gateways, by quota and caller."""

    def of(self, caller: Caller) -> Quotas:
        """Return the quotas of a caller: those of their key, and the defaults for the rest."""
        own: dict[str, Any] = {name: limit for name, limit in caller.quotas if name in _NAMES}
        return replace(self._quotas, **own) if own else self._quotas

    # Concurrent use -------------------------------------------------------------------------------

    def begin(self, caller: Caller) -> None:
        """Count a request or WebSocket until `end`. Raises `HttpProblem` (429) beyond the quota."""
        self._need_rate("requests", caller, 1)
        self.take("connections", caller)

    def end(self, caller: Caller) -> None:
        """Release a request that was answered, or a WebSocket that was closed."""
        self.give_back("connections", caller)

    def take(self, quota: str, caller: Caller) -> None:
        """Count one more use. Raises `HttpProblem` (429) beyond the quota."""
        about = quota, _id(caller)
        count = self._counts.get(about, 0)
        self.need(quota, caller, count + round(self._elsewhere.get(about, _NONE).amount))
        own_limit = self._max_connections if quota == "connections" and quota not in dict(caller.quotas) else None
        if own_limit is not None and count >= own_limit:  # the limit of this gateway alone
            raise self._all_in_use(quota, caller, own_limit)
        self._counts[about] = count + 1

    def taken(self, quota: str, caller: Caller) -> Callable[[], None]:
        """Count one more use, and return the function that releases it."""
        self.take(quota, caller)
        return partial(self.give_back, quota, caller)

    def give_back(self, quota: str, caller: Caller) -> None:
        """Release one use."""
        about = quota, _id(caller)
        self._counts[about] -= 1
        if not self._counts[about]:
            del self._counts[about]

    def need(self, quota: str, caller: Caller, count: int) -> None:
        """Raise `HttpProblem` (429) if `count` uses leave no room for one more."""
        limit = getattr(self.of(caller), quota)
        if limit is not None and count >= limit:
            raise self._all_in_use(quota, caller, limit)

    def _all_in_use(self, quota: str, caller: Caller, limit: int) -> HttpProblem:
        return _beyond(quota, limit, f"{_who(caller)} has all {limit:,} {_WHAT[quota]} that it may have at once")

    def need_filter(self, caller: Caller, text: str | None) -> None:
        """Raise `HttpProblem` (429) if a filter is longer than the quota."""
        limit, size = self.of(caller).filter_bytes, len((text or "").encode())
        if limit is not None and size > limit:
            raise _beyond("filter_bytes", limit, f"expected a filter of at most {limit:,} bytes, not {size:,}")

    # Rates ---------------------------------------------------------------------------

    def need_events(self, caller: Caller) -> None:
        """Raise `HttpProblem` (429) while the caller has exceeded its ingest rate."""
        self._need_rate("events", caller, 0)

    def took_events(self, caller: Caller, count: int) -> None:
        """Charge ingested events to the rate. They are charged afterwards, as their number is not known before."""
        if self.of(caller).events is not None:
            self._rate("events", caller).spend(count)

    def need_deliveries(self, caller: Caller, limit: int) -> int:
        """Return how many events a page may have, at most `limit`. Raises `HttpProblem` (429) beyond the rate."""
        rate = self.of(caller).deliveries
        if rate is None:
            return limit
        self._need_rate("deliveries", caller, 1)
        self._rate("deliveries", caller).spend(-1)  # the page is charged once its size is known
        return min(limit, max(1, int(rate)))

    def delivered(self, caller: Caller, count: int) -> None:
        """Charge the events of a page to the rate."""
        if self.of(caller).deliveries is not None:
            self._rate("deliveries", caller).spend(count)

    def pace(self, caller: Caller) -> CallerPace | None:
        """Return the delivery rate limit of a caller; None if there is none."""
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
        bucket = self._rates.get(about)
        if bucket is None:
            if len(self._rates) >= _MAX_RATES:
                self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_full}
            bucket = self._rates[about] = Bucket(getattr(self.of(caller), quota), self._clock)
            bucket.share(self._elsewhere.get(about, _NONE))
        return bucket

    # Other gateways ------------------------------------------------------------------

    def report(self) -> dict[str, dict[str, float]]:
        """Return the use of the callers at this gateway since the last report, by quota and caller.

        Callers with little use are left out beyond `_MAX_REPORTED` entries.
        """
        rates = {about: bucket.take_refill_rate() for about, bucket in self._rates.items()}
        uses = [(about, use) for about, use in (*self._counts.items(), *rates.items()) if use > 0]
        report: dict[str, dict[str, float]] = {}
        for (quota, caller), use in heapq.nlargest(_MAX_REPORTED, uses, key=lambda pair: pair[1]):
            report.setdefault(quota, {})[caller] = use
        return report

    def note_others(self, reports: Iterable[object]) -> None:
        """Replace the use that other gateways have reported, which is subtracted from the quotas."""
        elsewhere: dict[tuple[str, str], Use] = {}
        for report in reports:
            for about, use in _uses(report):
                before = elsewhere.get(about, _NONE)
                elsewhere[about] = Use(before.amount + use, before.gateways + 1)
        self._elsewhere = elsewhere
        for about, bucket in self._rates.items():
            bucket.share(elsewhere.get(about, _NONE))


class Use(NamedTuple):
    """The use of one caller's quota at other gateways."""

    amount: float
    gateways: int


_NONE = Use(0.0, 0)
_MAX_REPORTED = 2_000
"""Entries of a report, which every gateway reads once a second."""


def _uses(report: object) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield the entries of a report. Entries in another form, of a newer version, are skipped."""
    for quota, callers in report.items() if isinstance(report, Mapping) else ():
        for caller, use in callers.items() if isinstance(callers, Mapping) else ():
            if isinstance(use, int | float) and use > 0:
                yield (quota, caller), use


_MAX_RATES = 10_000
"""Buckets that are kept. Beyond that, full ones are dropped: a new one would be full as well."""


class Bucket:
    """A token bucket for one second of its rate. It may go into debt, which has to be refilled first."""

    __slots__ = ("_at", "_clock", "_left", "_limit", "_rate", "_refilled", "_reported_at")

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._limit = self._rate = rate
        self._clock = clock
        self._left = self._capacity
        self._at = self._reported_at = clock()
        self._refilled = 0.0

    @property
    def _capacity(self) -> float:
        return max(1.0, self._limit)

    @property
    def is_full(self) -> bool:
        """True if the bucket is full: nothing was spent recently."""
        return self._filled() >= self._capacity

    def wait_s(self, count: float) -> float:
        """Return the seconds until `count` tokens are available; for 0, until there is no debt."""
        return max(0.0, (count - self._filled()) / self._rate)

    def spend(self, count: float) -> None:
        """Take tokens, into debt if needed. A negative count puts tokens back."""
        self._refill()
        self._left -= count

    def share(self, others: Use) -> None:
        """Leave to the buckets of other gateways what they refilled, but keep at least an equal share."""
        self._refill()
        self._rate = max(self._limit - others.amount, self._limit / (1 + others.gateways))

    def take_refill_rate(self) -> float:
        """Return how many tokens a second were refilled since the last call; 0 if the bucket was full all the time."""
        self._refill()
        passed_s = self._at - self._reported_at
        refilled, self._refilled, self._reported_at = self._refilled, 0.0, self._at
        return refilled / passed_s if passed_s > 0 else 0.0

    def _filled(self) -> float:
        return min(self._capacity, self._left + (self._clock() - self._at) * self._rate)

    def _refill(self) -> None:
        filled = self._filled()
        self._refilled += max(0.0, filled - self._left)
        self._left, self._at = filled, self._clock()


class CallerPace:
    """The delivery rate limit of one caller, shared by all their subscriptions and transports."""

    __slots__ = ("_bucket", "_worth")

    def __init__(self, bucket: Callable[[], Bucket], rate: float) -> None:
        self._bucket = bucket
        self._worth = max(1.0, rate * _MIN_BATCH_S)

    def take(self) -> bool:
        """Take one token. Returns False if the event has to wait."""
        bucket = self._bucket()
        if bucket.wait_s(1) > 0:
            return False
        bucket.spend(1)
        return True

    def give_back(self) -> None:
        """Put back the token of an event that was not sent."""
        self._bucket().spend(-1)

    def wait_s(self) -> float:
        """Return the seconds until enough tokens for a batch are available."""
        return self._bucket().wait_s(self._worth)


_MIN_BATCH_S = 0.05
"""A paused caller waits until it can get this much of its rate at once."""

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
    """Return the identity of a caller, which is the same for all of their tokens."""
    return caller.id or caller.name


def _who(caller: Caller) -> str:
    return caller.told if caller.id is not None else f"a caller without a key ({caller.name})"


def _beyond(quota: str, limit: float, detail: str, wait_s: float | None = None) -> HttpProblem:
    headers = {} if wait_s is None else {"retry-after": str(int(wait_s) + 1)}
    title = "That is more than your quota"
    return HttpProblem(429, "quota", title, f"{detail}; {_MORE}", headers=headers, quota=quota, limit=limit)
