"""Finds who a request is from, and limits how often one address may fail at that.

API keys have 256 random bits and tokens are signed: nobody guesses one. Failures are limited so that whoever tries
does not use up the registry, or fill the logs. So what is shown is checked even when its address is over the limit:
a correct key of another caller behind the same address is let in at once, always. Beyond the limit a failure is
answered with 429 rather than 401, is no longer recorded one by one, and a key that begins like none of ours is not
even looked up.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from tidegate.gateway.audit.log import Audit, network_of
from tidegate.gateway.auth.callers import KEY, Caller, Callers, KeyRefused, of_key, unknown
from tidegate.gateway.http.problems import Problem
from tidegate.registry import Key
from tidegate.registry.keys import prefix_of

WINDOW_S = 60.0
MAX_ADDRESSES = 10_000
"""Addresses whose failures are known; the one that failed longest ago makes room for another."""
ACTION = "sign-in"


class FailureLimit:
    """How many failures each address has left: a bucket that fills up again within a minute."""

    def __init__(self, failures: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`failures`: of one address in a minute."""
        self._most, self._clock = failures, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Return how long an address is over the limit from now on; 0: it is not."""
        left = self._now(address)
        return 0.0 if left >= 1 else (1 - left) * WINDOW_S / self._most

    def fail(self, address: str) -> None:
        """Count a failure."""
        left = self._now(address)
        self._left[address] = max(0.0, left - 1), self._clock()
        self._left.move_to_end(address)
        if len(self._left) > MAX_ADDRESSES:
            self._left.popitem(last=False)

    def _now(self, address: str) -> float:
        left, at = self._left.get(address, (float(self._most), 0.0))
        return min(float(self._most), left + (self._clock() - at) * self._most / WINDOW_S)


class SignIns:
    """Lets callers in by what they show. For the event loop's thread alone."""

    def __init__(
        self, callers: Callers, audit: Audit, failures: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`failures`: of one address in a minute, until it is limited."""
        self._callers, self._audit, self._limit = callers, audit, FailureLimit(failures, clock)
        self._keys: Mapping[str, Key] = {}
        self._prefixes: frozenset[str] = frozenset()
        self.failures: Counter[str] = Counter()
        """Failed sign-ins by reason: `missing`, `unknown`, `revoked`, `expired`, `token`, `certificate`, `link`."""
        self.limited = 0
        """Failed sign-ins that were answered with 429."""
        self.uses: dict[str, tuple[datetime, str]] = {}
        """When and from where each key was last used, until it is written to the registry."""

    def know(self, keys: Mapping[str, Key]) -> None:
        """Take in which keys there are."""
        if keys is not self._keys:
            self._keys = keys
            of_all = [prefix for key in keys.values() for prefix in (key.prefix, key.previous_prefix)]
            self._prefixes = frozenset(each for each in of_all if each is not None)

    async def caller(self, secret: str, address: str) -> Caller:
        """Return whose key or token this is. Raises a `Problem`: 401, or 429 if its address has failed too often."""
        network = network_of(address)
        try:
            if self._limit.wait_s(network) and self._is_hopeless(secret):
                raise unknown("the API key is not known here")
            found = await self._callers.find(secret)
        except KeyRefused as problem:
            reason = "revoked" if problem.key.revoked_at is not None else "expired"
            raise self._failed(address, reason, problem, of_key(problem.key)) from None
        except Problem as problem:
            if problem.status != 401:
                raise
            reason = "unknown" if secret.startswith(KEY) or not self._callers.has_issuer else "token"
            raise self._failed(address, reason, problem) from None
        if found.prefix is not None and found.id is not None:
            self.uses[found.id] = datetime.now(UTC), address
        return found

    def link_refused(self, address: str) -> None:
        """Count a neighbour that did not prove who it is. Links try again by themselves, so they are not limited."""
        self.failures["link"] += 1
        self._audit.record("link.sign-in", caller=None, address=address, result="failed", detail="not proved")

    def refused(self, address: str, reason: str, problem: Problem) -> Problem:
        """Count a failure that was found elsewhere; return what to answer."""
        return self._failed(address, reason, problem)

    def _is_hopeless(self, secret: str) -> bool:
        """Return whether no key of ours begins like this; a token may be one, whatever it looks like."""
        if self._callers.has_issuer and not secret.startswith(KEY):
            return False
        return prefix_of(secret) not in self._prefixes

    def _failed(self, address: str, reason: str, problem: Problem, caller: Caller | None = None) -> Problem:
        network = network_of(address)
        self.failures[reason] += 1
        target = None if caller is None else caller.id
        self._audit.record(
            ACTION, caller=caller, address=address, target=target, result="failed", detail=f"{reason} key or token"
        )
        wait_s = self._limit.wait_s(network)
        self._limit.fail(network)
        if not wait_s:
            return problem
        self.limited += 1
        again_s = max(1, math.ceil(wait_s))
        detail = (
            f"too many sign-ins from {network} have failed, this one too: {problem}; try again in {again_s} s, with a "
            "key or token that holds"
        )
        return Problem(
            429, "too-many-failures", "Too many failed sign-ins", detail, headers={"retry-after": str(again_s)}
        )
