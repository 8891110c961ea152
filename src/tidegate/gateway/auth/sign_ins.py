"""Identifies the callers of requests, and limits failed attempts per address.

API keys have 256 random bits and tokens are signed, so neither can be guessed. The limit protects the registry and
the logs against many failures. A valid key is therefore always accepted, even if its address is over the limit,
because several callers may share an address. Beyond the limit a failure is answered with 429 instead of 401, is no
longer recorded one by one, and a key with an unknown prefix is not looked up at all.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from tidegate.gateway.audit.log import Audit, network_of
from tidegate.gateway.auth.callers import KEY, Caller, Callers, KeyRefused, of_key, unknown
from tidegate.gateway.http.problems import HttpProblem
from tidegate.registry import Key
from tidegate.registry.keys import prefix_of

WINDOW_S = 60.0
MAX_ADDRESSES = 10_000
"""Addresses whose failures are counted. The address whose last failure is oldest is dropped first."""
ACTION = "sign-in"


class FailureLimit:
    """A token bucket of failures per address, which is refilled within a minute."""

    def __init__(self, failures: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`failures`: how many one address may have per minute."""
        self._capacity, self._clock = failures, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Return the seconds until an address is below its limit; 0 if it is."""
        left = self._now(address)
        return 0.0 if left >= 1 else (1 - left) * WINDOW_S / self._capacity

    def fail(self, address: str) -> None:
        """Count a failure of an address."""
        left = self._now(address)
        self._left[address] = max(0.0, left - 1), self._clock()
        self._left.move_to_end(address)
        if len(self._left) > MAX_ADDRESSES:
            self._left.popitem(last=False)

    def _now(self, address: str) -> float:
        left, at = self._left.get(address, (float(self._capacity), 0.0))
        return min(float(self._capacity), left + (self._clock() - at) * self._capacity / WINDOW_S)


class SignIns:
    """Identifies callers by their credentials, and counts failures. All methods are called on the event loop."""

    def __init__(
        self, callers: Callers, audit: Audit, failures: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`failures`: how many one address may have per minute."""
        self._callers, self._audit, self._limit = callers, audit, FailureLimit(failures, clock)
        self._keys: Mapping[str, Key] = {}
        self._prefixes: frozenset[str] = frozenset()
        self.failures: Counter[str] = Counter()
        """Failed sign-ins by reason: `missing`, `unknown`, `revoked`, `expired`, `token`, `certificate`, `link`."""
        self.limited = 0
        """Number of failed sign-ins that were answered with 429."""
        self.uses: dict[str, tuple[datetime, str]] = {}
        """Time and address of each key's last use, until `Sweep` stores them in the registry."""

    def know(self, keys: Mapping[str, Key]) -> None:
        """Replace the known keys, by id."""
        if keys is not self._keys:
            self._keys = keys
            prefixes = [prefix for key in keys.values() for prefix in (key.prefix, key.previous_prefix)]
            self._prefixes = frozenset(prefix for prefix in prefixes if prefix is not None)

    async def caller(self, secret: str, address: str) -> Caller:
        """Return the caller of a key or token. Raises `HttpProblem`: 401, or 429 if its address failed too often."""
        network = network_of(address)
        try:
            if self._limit.wait_s(network) and self._is_hopeless(secret):
                raise unknown("the API key is not known here")
            caller = await self._callers.find(secret)
        except KeyRefused as problem:
            reason = "revoked" if problem.key.revoked_at is not None else "expired"
            raise self._failed(address, reason, problem, of_key(problem.key)) from None
        except HttpProblem as problem:
            if problem.status != 401:
                raise
            reason = "unknown" if secret.startswith(KEY) or not self._callers.has_issuer else "token"
            raise self._failed(address, reason, problem) from None
        if caller.prefix is not None and caller.id is not None:
            self.uses[caller.id] = datetime.now(UTC), address
        return caller

    def link_refused(self, address: str) -> None:
        """Count a neighbour broker that failed to authenticate. Links retry by themselves, so they are not limited."""
        self.failures["link"] += 1
        self._audit.record("link.sign-in", caller=None, address=address, result="failed", detail="not proved")

    def refused(self, address: str, reason: str, problem: HttpProblem) -> HttpProblem:
        """Count a failure that the caller of this method has found. Returns the problem to answer with."""
        return self._failed(address, reason, problem)

    def _is_hopeless(self, secret: str) -> bool:
        """True if no key has the prefix of a secret. Always False for tokens, which have no known prefix."""
        if self._callers.has_issuer and not secret.startswith(KEY):
            return False
        return prefix_of(secret) not in self._prefixes

    def _failed(self, address: str, reason: str, problem: HttpProblem, caller: Caller | None = None) -> HttpProblem:
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
        return HttpProblem(
            429, "too-many-failures", "Too many failed sign-ins", detail, headers={"retry-after": str(again_s)}
        )
