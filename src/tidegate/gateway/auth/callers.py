"""The callers of the API, identified by an API key, a token or a client certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cachetools import LRUCache
from starlette.requests import HTTPConnection

from tidegate.gateway.auth.rights import Right, rights_of
from tidegate.gateway.http.problems import HttpProblem
from tidegate.registry import Key, Registry, Role
from tidegate.registry.keys import prefix_of

if TYPE_CHECKING:
    from tidegate.gateway.auth.certificates import Certificates, PeerCertificate
    from tidegate.gateway.auth.oidc import Issuer

CACHE_S = 2.0
"""How long the result for a key or token is cached. A revoked key stops working after this time."""
_MAX_CACHED = 10_000

_UNAUTHORIZED = "Authentication is required"

KEY = "tg_"
"""The prefix of every API key."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller of the API, and what they may do."""

    id: str | None
    """The id of a key, issuer and subject of a token, or `cert:` and a name; None for a caller without credentials."""
    name: str
    role: Role
    services: tuple[str, ...] | None = None
    """The services and streams that they may use; None means all."""
    groups: frozenset[str] = frozenset()
    """All roles in a token, including those that only access policies use."""
    expires_at: datetime | None = None
    quotas: tuple[tuple[str, float], ...] = ()
    """Their own limits, by the names of `Quotas`."""
    prefix: str | None = None
    """The prefix of the key's secret that the request used; a rotated key has two. None if there is no request."""

    def may(self, right: Right) -> bool:
        """True if one of their roles has a right. A token may have several roles."""
        return right in rights_of(self.groups | {self.role})

    @property
    def told(self) -> str:
        """A description of the caller, for messages."""
        if self.id is None:
            return "a caller without a key"
        if self.id.startswith("cert:"):
            return f"the client certificate of {self.name!r}"
        return f"the key {self.name!r}" if self.id.startswith("key_") else f"the token of {self.name!r}"


ANYBODY = Caller(None, "anybody", "admin")
"""Every caller without credentials, if the gateway requires no keys. They may do everything."""


GUEST = Caller(None, "guest", "consumer", ())
"""Every caller without credentials, if the gateway requires keys. They see public services."""


def caller_of(request: HTTPConnection) -> Caller:
    """Return the caller of a request. Works behind the `AccessControl` middleware only."""
    caller: Caller = request.state.caller
    return caller


def of_key(key: Key, prefix: str | None = None) -> Caller:
    """Return the caller of a key; `prefix` is that of the secret that the request used."""
    expires_at = key.expires_at
    return Caller(key.id, key.name, key.role, key.services, expires_at=expires_at, quotas=key.quotas, prefix=prefix)


class Callers:
    """Finds callers by their credentials. Runs on the event loop; results are cached for `CACHE_S`."""

    def __init__(
        self,
        registry: Registry,
        issuer: Issuer | None = None,
        certificates: Certificates | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        pool: Executor | None = None,
    ) -> None:
        """`pool`: the threads that look up keys; None means the default executor of the event loop."""
        self._registry, self._issuer, self._certificates = registry, issuer, certificates
        self._now, self._pool = now, pool
        self._cache: LRUCache[str, tuple[float, Caller]] = LRUCache(_MAX_CACHED)

    @property
    def has_issuer(self) -> bool:
        """True if OIDC tokens are accepted, as well as API keys."""
        return self._issuer is not None

    def of_certificate(self, peer: PeerCertificate | None) -> Caller | None:
        """Return the caller of a client certificate; None without one. Raises `HttpProblem` (401) if it expired."""
        return None if peer is None or self._certificates is None else self._certificates.caller(peer, self._now())

    async def find(self, secret: str) -> Caller:
        """Return the caller of a key or token. Raises `HttpProblem` (401) if it is not valid."""
        loop = asyncio.get_running_loop()
        cached = self._cache.get(secret)
        if cached is not None and cached[0] >= loop.time():
            _need_not_expired(cached[1], self._now())
            return cached[1]
        if self._issuer is not None and not secret.startswith(KEY):
            caller = await self._issuer.caller(secret)
        else:
            caller = await self._of_key(secret)
        self._cache[secret] = loop.time() + CACHE_S, caller
        return caller

    def forget(self) -> None:
        """Clear the cache, because a key was changed."""
        self._cache.clear()

    async def _of_key(self, secret: str) -> Caller:
        key = await asyncio.get_running_loop().run_in_executor(self._pool, self._registry.find_key, secret)
        if key is None:
            raise unknown("the API key is not known here")
        problem = key.problem(self._now())
        if problem is not None:
            raise KeyRefused(key, problem)
        return of_key(key, prefix_of(secret))


class KeyRefused(HttpProblem):
    """A 401 for a known key that was revoked or has expired."""

    def __init__(self, key: Key, detail: str) -> None:
        super().__init__(401, "unauthorized", _UNAUTHORIZED, detail, headers={"www-authenticate": "Bearer"})
        self.key = key


def _need_not_expired(caller: Caller, now: datetime) -> None:
    if caller.expires_at is not None and caller.expires_at <= now:
        raise unknown(f"{caller.told} expired at {caller.expires_at.isoformat()}")


def unknown(detail: str, challenge: str = "Bearer") -> HttpProblem:
    """Return the `HttpProblem` (401) for a request without valid credentials."""
    return HttpProblem(401, "unauthorized", _UNAUTHORIZED, detail, headers={"www-authenticate": challenge})
