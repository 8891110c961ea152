"""Guards a gateway that requires no keys: only programs and pages of this machine may use it.

Such a gateway trusts every request. Listening on loopback is not enough: a reverse proxy on the same machine opens it
to the whole network, and the host name of a web page can resolve to 127.0.0.1 (DNS rebinding). Both leave traces in
the request, so such requests are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.gateway.http.problems import HttpProblem

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_LOOPBACK = re.compile(rf"(?:localhost|127(?:\.{_OCTET}){{3}}|\[::1\])(?::[0-9]{{1,5}})?", re.IGNORECASE)
_REFERER = re.compile(r"(https?://[^/?#]*)", re.IGNORECASE)

_FORWARDED = frozenset(
    {
        *("forwarded", "via", "x-real-ip", "true-client-ip", "x-client-ip", "client-ip", "x-cluster-client-ip"),
        *("fastly-client-ip", "x-proxyuser-ip", "x-originating-ip", "x-remote-ip", "x-remote-addr", "proxy-connection"),
        *("cdn-loop", "x-arr-ssl", "x-arr-log-id", "surrogate-capability"),
        *("x-scheme", "x-url-scheme", "x-host", "x-server-name", "front-end-https", "x-ssl-client-verify"),
    }
)
_FORWARDED_PREFIXES = (
    *("x-forwarded", "x-original-", "x-rewrite-", "x-proxy-", "x-envoy-", "cf-", "x-amzn-", "x-amz-cf-", "x-azure-"),
    *("fly-", "x-vercel-", "x-appengine-", "x-nginx-", "x-akamai-", "x-varnish", "x-traefik-", "tailscale-"),
)

_FORWARDED_PARTS = ("forwarded", "real-ip", "client-ip", "connecting-ip", "clientip")
"""Parts of header names that show a proxy which is not listed above."""

_OPEN_PATHS = frozenset({"/livez"})
"""Paths that are open under any host name: the answer is a constant."""
_API_PREFIXES = ("/v1", "/asyncapi.json", "/openapi.json", "/metrics", "/readyz")
"""Prefixes of paths that links on other sites may not lead to. They may lead to pages of the console."""

_REMEDY = (
    "this gateway requires no keys, so it answers this machine alone; to open it to others, set access: {required: "
    "true} in its profile and create keys (tidegate keys create NAME --role ROLE)"
)


def is_loopback_host(host: str) -> bool:
    """True if a `Host` header is one of the usual names of this machine. Asks no DNS.

    >>> [is_loopback_host(each) for each in ("localhost:8080", "127.0.0.1", "[::1]:80", "127.0.0.1.nip.io")]
    [True, True, True, False]
    """
    return _LOOPBACK.fullmatch(host) is not None


class LoopbackOnly:
    """ASGI middleware: refuses requests that came through a proxy, for a foreign host, or from another site's page.

    Only installed while the gateway requires no keys.
    """

    def __init__(self, app: ASGIApp, allowed: Collection[str]) -> None:
        """`allowed`: the other origins whose pages may use the gateway."""
        self._app, self._allowed = app, frozenset(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a local request on; answer any other with 403."""
        if scope["type"] in ("http", "websocket"):
            reason = self._refusal(scope)
            if reason is not None:
                problem = HttpProblem(
                    403, "not-local", "Only this machine may use this gateway", f"{reason}: {_REMEDY}"
                )
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        """Return why a request is not local; None if it is."""
        if scope["path"] in _OPEN_PATHS:
            return None
        return (
            _foreign_peer(scope)
            or _foreign_host([value for name, value in scope["headers"] if name == b"host"])
            or _forwarded(scope)
            or self._foreign_page(scope)
        )

    def _foreign_page(self, scope: Scope) -> str | None:
        """Return why the page that made a request may not make it; None if it may. `Origins` checks `Origin`."""
        headers = _first_values(scope, (b"origin", b"referer", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"))
        if headers.get("origin") in self._allowed or _is_visit(scope, headers):
            return None
        site = headers.get("sec-fetch-site", "none").strip().lower()
        if site not in ("none", "same-origin"):
            return f"a page of another site made this request (Sec-Fetch-Site: {site[:40]})"
        referer = _REFERER.match(headers.get("referer", ""))
        if referer is not None:
            origin = referer[1].lower()
            if not is_loopback_host(origin.partition("://")[2]) and origin not in self._allowed:
                return f"a page of {origin[:200]} made this request (Referer)"
        return None


def _foreign_peer(scope: Scope) -> str | None:
    client = scope.get("client")
    if client is None:
        return None
    try:
        address = ip_address(client[0].partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return None if (mapped or address).is_loopback else f"the request came from {client[0]}, which is not loopback"


def _foreign_host(values: list[bytes]) -> str | None:
    if len(values) != 1:
        return f"expected one Host header, not {len(values)}"
    host = str(values[0], "latin-1")
    return None if is_loopback_host(host) else f"the request is for the host {host[:200]!r}, which is not loopback"


def _forwarded(scope: Scope) -> str | None:
    """Return how a request shows that it passed through a proxy; None if it does not."""
    if scope.get("http_version") == "1.0":  # nginx uses it for upstream servers by default, and rewrites Host
        return "expected HTTP/1.1; proxies that rewrite Host speak HTTP/1.0"
    for name, _ in scope["headers"]:
        text = str(name, "latin-1").lower()
        header = text.replace("_", "-")  # some servers treat both as the same
        if (
            header in _FORWARDED
            or header.startswith(_FORWARDED_PREFIXES)
            or any(part in header for part in _FORWARDED_PARTS)
        ):
            return f"a proxy passed the request on (it has the header {text[:60]!r})"
    return None


def _is_visit(scope: Scope, headers: dict[str, str]) -> bool:
    """True if a user follows a link to a console page. It opens in a tab, and the linking site can't read it."""
    is_navigation = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    is_page = scope["type"] == "http" and scope["method"] == "GET" and not scope["path"].startswith(_API_PREFIXES)
    return is_navigation and is_page


def _first_values(scope: Scope, names: Iterable[bytes]) -> dict[str, str]:
    selected = frozenset(names)
    values: dict[str, str] = {}
    for name, value in scope["headers"]:
        if name in selected:
            values.setdefault(str(name, "latin-1"), str(value, "latin-1"))
    return values
