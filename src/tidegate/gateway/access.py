"""Who may do what: API keys, checked before any route runs.

    consumer   sees services and their events, and subscribes
    provider   also puts events into raw streams, changes services, and sees what they refuse
    admin      everything

A key that is for some services opens just those, and raw streams of those names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import parse_qs, unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.gateway.problems import Problem
from tidegate.registry import Key, Registry, Role

REMEMBERED_S = 2.0
"""How long a key is believed without asking the registry again: a revoked one opens nothing after so long."""
_MOST_REMEMBERED = 10_000

_GUARDED = ("/v1", "/asyncapi.json")
"""What begins so is for those with a key: the calls, and the document that names services."""

_RANK: dict[Role, int] = {"consumer": 0, "provider": 1, "admin": 2}


class Access:
    """ASGI middleware: lets a request through, with its caller in the scope, or says why not.

    Where keys are not required, whoever shows none may do everything.
    """

    def __init__(
        self, app: ASGIApp, registry: Registry, *, required: bool, now: Callable[[], datetime] | None = None
    ) -> None:
        self._app, self._registry, self._required = app, registry, required
        self._now = now or (lambda: datetime.now(UTC))
        self._known: dict[str, tuple[float, Key | None]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request for the API; all else passes."""
        if scope["type"] not in ("http", "websocket") or not scope["path"].startswith(_GUARDED):
            await self._app(scope, receive, send)
            return
        try:
            scope.setdefault("state", {})["caller"] = await self._caller(scope)
        except Problem as problem:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 4401 if problem.status == 401 else 4403})
            else:
                await problem.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _caller(self, scope: Scope) -> Key | None:
        secret = _secret(scope)
        if secret is None:
            if self._required:
                raise _unknown("expected an API key: Authorization: Bearer tg_...")
            return None
        key = await self._find(secret)
        if key is None:
            raise _unknown("the API key is not known here")
        problem = key.problem(self._now())
        if problem is not None:
            raise _unknown(problem)
        _need_role(key, _role(scope))
        _need_name(key, scope["path"])
        return key

    async def _find(self, secret: str) -> Key | None:
        loop = asyncio.get_running_loop()
        known = self._known.get(secret)
        if known is None or known[0] < loop.time():
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            found = await loop.run_in_executor(None, self._registry.find_key, secret)
            known = self._known[secret] = loop.time() + REMEMBERED_S, found
        return known[1]


def _secret(scope: Scope) -> str | None:
    """The key that a request shows: in a header, or, where a browser can't set one, in the query."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, rest = str(value, "latin-1").partition(" ")
            if kind.lower() != "bearer":
                raise _unknown(f"expected Authorization: Bearer tg_..., not {kind!r}")
            return rest.strip()
        if name == b"x-api-key":
            return str(value, "latin-1")
    asked = parse_qs(scope["query_string"].decode("latin-1")).get("access_token")
    return asked[0] if asked else None


def _role(scope: Scope) -> Role:
    """Who may make a request, at least."""
    method, path = scope.get("method", "GET"), scope["path"]
    if path.split("/")[4:5] == ["quarantine"]:  # what a service keeps from its consumers
        return "provider"
    if method in ("GET", "HEAD", "OPTIONS"):
        return "consumer"
    if (
        path == "/v1/apply"
        or path.startswith("/v1/streams/")
        or (path.startswith("/v1/services/") and not path.endswith("/subscriptions"))
    ):
        return "provider"
    return "consumer"


def _need_role(key: Key, role: Role) -> None:
    if _RANK[key.role] < _RANK[role]:
        detail = f"the key {key.name!r} is a {key.role}'s, and this needs a {role}'s"
        raise Problem(403, "forbidden", "The key does not open this", detail)


def _need_name(key: Key, path: str) -> None:
    parts = path.split("/")
    if key.services is None or len(parts) < 4 or parts[2] not in ("services", "streams"):
        return
    name = unquote(parts[3])
    if name not in key.services:
        detail = f"the key {key.name!r} is for {', '.join(key.services)}, not for {name!r}"
        raise Problem(403, "forbidden", "The key does not open this", detail)


def _unknown(detail: str) -> Problem:
    return Problem(401, "unauthorized", "Who asks?", detail, headers={"www-authenticate": "Bearer"})
