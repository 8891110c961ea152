"""Decides which web pages may use the gateway: its own, and those of configured origins (CORS).

A browser sends the origin of the page that makes a request (`Origin`). It hides the response from a page of another
origin unless the response allows that origin. But the request has been executed by then, and browsers do not apply
this rule to WebSockets. The gateway therefore refuses requests of other origins. Otherwise any page in a browser
could read events from an open gateway on loopback, or create webhooks there.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.errors import EnvironmentProblem
from tidegate.gateway.http.problems import HttpProblem

ANY = "*"
REMEMBERED_S = 600
"""How long a browser may cache the answer to a preflight request."""

_ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?")
_METHODS = b"GET, POST, PUT, PATCH, DELETE"
_SHOWN = b"ETag, Location, Retry-After"
FORBIDDEN = 4403
"""Close code of a WebSocket of a page whose origin is not allowed."""


def checked(origins: Collection[str], *, needs_keys: bool) -> tuple[str, ...]:
    """Return configured origins. Raises an `EnvironmentProblem` if one is malformed, or `*` is set without keys.

    >>> checked(["https://example.com"], needs_keys=False)
    ('https://example.com',)
    """
    for origin in origins:
        if origin == ANY:
            if not needs_keys:
                raise EnvironmentProblem(
                    "--origin *: any page in a browser on this machine could read and write everything, as no keys are "
                    "asked for; name the origins, such as http://localhost:3000"
                )
        elif _ORIGIN.fullmatch(origin) is None:
            raise EnvironmentProblem(f"--origin: expected an origin such as https://example.com, or *, not {origin!r}")
    return tuple(origins)


class Origins:
    """ASGI middleware: answers preflight requests, adds CORS headers, and refuses pages of other origins with 403."""

    def __init__(self, app: ASGIApp, allowed: Collection[str], *, is_open: bool) -> None:
        """`is_open`: no keys are required, so a page's own host name for this machine (DNS rebinding) is refused."""
        self._app, self._allowed, self._is_open = app, frozenset(allowed), is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request with an `Origin`. Requests without one are passed on."""
        origin = _header(scope, b"origin") if scope["type"] in ("http", "websocket") else None
        if origin is None or (_is_own(origin, scope) and (not self._is_open or _is_local(origin))):
            await self._app(scope, receive, send)
        elif not {origin, ANY} & self._allowed:
            await _refuse(scope, receive, send, origin)
        elif scope["type"] == "websocket":
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and _header(scope, b"access-control-request-method") is not None:
            await send(
                {"type": "http.response.start", "status": 204, "headers": self._headers(origin) + _preflight(scope)}
            )
            await send({"type": "http.response.body"})
        else:
            await self._app(scope, receive, self._allowing(send, origin))

    def _allowing(self, send: Send, origin: str) -> Send:
        async def allowed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self._headers(origin)]}
            await send(message)

        return allowed

    def _headers(self, origin: str) -> list[tuple[bytes, bytes]]:
        if ANY in self._allowed:
            origin = ANY
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", _SHOWN),
            (b"vary", b"Origin"),
        ]


def is_foreign_page(scope: Scope, allowed: Collection[str]) -> bool:
    """True if the browser says that a page of another site made a request, and `allowed` does not name its origin.

    `*` does not count: it lets pages use their own keys, not the credentials that the browser adds.
    """
    origin = _header(scope, b"origin")
    if origin is not None:
        return not _is_own(origin, scope) and origin not in allowed
    return _header(scope, b"sec-fetch-site") in ("cross-site", "same-site")


def _preflight(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers that allow what a preflight request asks for."""
    names = _header(scope, b"access-control-request-headers") or ""
    return [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", names.encode("latin-1")),
        (b"access-control-max-age", b"%d" % REMEMBERED_S),
    ]


async def _refuse(scope: Scope, receive: Receive, send: Send, origin: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": FORBIDDEN})
        return
    detail = f"a page of {origin[:200]} may not use this gateway; its operator can allow the origin: --origin"
    await HttpProblem(403, "bad-origin", "The page may not do this", detail).response()(scope, receive, send)


def _header(scope: Scope, name: bytes) -> str | None:
    return next((str(value, "latin-1") for key, value in scope["headers"] if key == name), None)


def _is_local(origin: str) -> bool:
    """True if an origin is one of the usual names of this machine. Asks no DNS.

    >>> _is_local("http://127.0.0.1:8080"), _is_local("http://[::1]"), _is_local("http://localhost.example.com")
    (True, True, False)
    """
    host = urlsplit(origin).hostname or ""
    return host == "localhost" or host == "::1" or re.fullmatch(r"127(\.[0-9]{1,3}){3}", host) is not None


def _is_own(origin: str, scope: Scope) -> bool:
    """True if a page is the gateway's own. The scheme is not compared, because a proxy may add TLS."""
    return origin.partition("://")[2].lower() == (_header(scope, b"host") or "").lower() != ""
