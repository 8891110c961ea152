"""Who asks: whoever an API key, a token or a client certificate says, the same value for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from tidegate.gateway.problems import Problem
from tidegate.gateway.rights import Right, rights_of
from tidegate.registry import Key, Registry, Role
from tidegate.registry.keys import prefix_of

if TYPE_CHECKING:
    from tidegate.gateway.certificates import Certificates, PeerCertificate
    from tidegate.gateway.oidc import Issuer

REMEMBERED_S = 2.0
"""How long a key or token is believed without asking again: a revoked one opens nothing after so long."""
_MOST_REMEMBERED = 10_000

_WHO = "Who asks?"

KEY = "tg_"
"""What every API key begins with."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who asks, and what they may do."""

    id: str | None
    """A key's id, issuer and subject of a token, `cert:` and a name; None: nobody said who they are."""
    name: str
    role: Role
    services: tuple[str, ...] | None = None
    """The services and streams that they may touch; None: all."""
    groups: frozenset[str] = frozenset()
    """All roles that a token names, also those that mean nothing here by themselves."""
    expires_at: datetime | None = None
    quotas: tuple[tuple[str, float], ...] = ()
    """Limits of their own, by the names of `Quotas`."""
    prefix: str | None = None
    """Which secret of a key they showed; None: none, as they are not here. A rotated key has two for a while."""

    def may(self, right: Right) -> bool:
        """Say whether one of their roles has a right. A token may name several roles."""
        return right in rights_of(self.groups | {self.role})

    @property
    def told(self) -> str:
        """Who it is, for messages."""
        if self.id is None:
            return "a caller without a key"
        if self.id.startswith("cert:"):
            return f"the client certificate of {self.name!r}"
        return f"the key {self.name!r}" if self.id.startswith("key_") else f"the token of {self.name!r}"


ANYBODY = Caller(None, "anybody", "admin")
"""Whoever asks where nobody needs to say who they are."""


GUEST = Caller(None, "guest", "consumer", ())
"""Whoever asks and is not known, where others must be: they see what is public."""


def caller_of(request: HTTPConnection) -> Caller:
    """Who makes a request that was let through."""
    found: Caller = request.state.caller
    return found


def of_key(key: Key, prefix: str | None = None) -> Caller:
    """Whom a key stands for; `prefix` is that of the secret that was shown."""
    expires_at = key.expires_at
    return Caller(key.id, key.name, key.role, key.services, expires_at=expires_at, quotas=key.quotas, prefix=prefix)


class Callers:
    """Finds who somebody is by what they show."""

    def __init__(
        self,
        registry: Registry,
        issuer: Issuer | None = None,
        certificates: Certificates | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        pool: Executor | None = None,
    ) -> None:
        """`pool`: threads that look up keys, and do nothing else; None: those of the event loop."""
        self._registry, self._issuer, self._certificates = registry, issuer, certificates
        self._now, self._pool = now, pool
        self._known: dict[str, tuple[float, Caller]] = {}

    @property
    def has_issuer(self) -> bool:
        """Return whether tokens are taken beside API keys."""
        return self._issuer is not None

    def of_certificate(self, peer: PeerCertificate | None) -> Caller | None:
        """Whom the client certificate of a connection stands for; None: nobody. A problem where it has expired."""
        return None if peer is None or self._certificates is None else self._certificates.caller(peer, self._now())

    async def find(self, secret: str) -> Caller:
        """Whose key or token this is; a problem where it opens nothing."""
        loop = asyncio.get_running_loop()
        known = self._known.get(secret)
        if known is not None and known[0] >= loop.time():
            _need_time(known[1], self._now())
            return known[1]
        if self._issuer is not None and not secret.startswith(KEY):
            found = await self._issuer.caller(secret)
        else:
            found = await self._of_key(secret)
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[secret] = loop.time() + REMEMBERED_S, found
        return found

    def forget(self) -> None:
        """Look everybody up again: a key was changed."""
        self._known.clear()

    async def _of_key(self, secret: str) -> Caller:
        key = await asyncio.get_running_loop().run_in_executor(self._pool, self._registry.find_key, secret)
        if key is None:
            raise unknown("the API key is not known here")
        problem = key.problem(self._now())
        if problem is not None:
            raise KeyRefused(key, problem)
        return of_key(key, prefix_of(secret))


class KeyRefused(Problem):
    """A key that is known, and opens nothing: it was revoked, or has expired."""

    def __init__(self, key: Key, detail: str) -> None:
        super().__init__(401, "unauthorized", _WHO, detail, headers={"www-authenticate": "Bearer"})
        self.key = key


def _need_time(caller: Caller, now: datetime) -> None:
    if caller.expires_at is not None and caller.expires_at <= now:
        raise unknown(f"{caller.told} expired at {caller.expires_at.isoformat()}")


def unknown(detail: str, challenge: str = "Bearer") -> Problem:
    """Nobody knows who asks."""
    return Problem(401, "unauthorized", _WHO, detail, headers={"www-authenticate": challenge})
