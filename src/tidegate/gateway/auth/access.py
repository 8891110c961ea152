"""Authenticates and authorises every request before a route runs.

If a request has a key or token, only that counts, even if it is invalid; otherwise the client certificate counts.

`rights` defines what each role may do and which right each call needs. A key or token may be limited to some services
and raw streams. `policy` applies the access policy of each service and stream.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.errors import TidegateError
from tidegate.federation.link import PATH as LINK_PATH
from tidegate.gateway.audit.log import address_of
from tidegate.gateway.auth.audience import need_scope
from tidegate.gateway.auth.callers import ANYBODY, GUEST, Caller, Callers, unknown
from tidegate.gateway.auth.certificates import peer_of
from tidegate.gateway.auth.origins import is_foreign_page
from tidegate.gateway.auth.policy import Policies
from tidegate.gateway.auth.quotas import Meter
from tidegate.gateway.auth.rights import OPERATE, PHRASES, needed, roles_with
from tidegate.gateway.auth.sign_ins import SignIns
from tidegate.gateway.http import problems
from tidegate.gateway.http.problems import HttpProblem, forbidden
from tidegate.gateway.transports.protocol import kept_of

_GUARDED = ("/v1", "/asyncapi.json")
"""Prefixes of paths that need a key: the API, and the document that names services."""
_METRICS, _READY = "/metrics", "/readyz"
"""Metrics are for operators. The readiness probe reports more to callers with a key."""

IDENTIFIED = "identified"
"""The key in the state of a request's scope under which its caller is stored, even if the request is refused."""


class AccessControl:
    """ASGI middleware: puts the caller into the scope and calls the application, or answers with a problem.

    A request without credentials may do everything if keys are not required. Otherwise it may read public services.
    """

    def __init__(
        self,
        app: ASGIApp,
        callers: Callers,
        policies: Policies,
        meter: Meter,
        sign_ins: SignIns,
        *,
        required: bool,
        origins: Collection[str] = (),
    ) -> None:
        """`origins`: the other origins whose web pages may use a client certificate of the browser."""
        self._app, self._callers, self._policies, self._meter, self._required = app, callers, policies, meter, required
        self._sign_ins, self._origins = sign_ins, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request to a guarded path. Other requests are passed on unchecked."""
        # Links have their own authentication between brokers.
        is_link = scope["type"] == "websocket" and scope["path"] == LINK_PATH
        if scope["type"] not in ("http", "websocket") or not _is_guarded(scope["path"]) or is_link:
            await self._app(scope, receive, send)
            return
        if scope["path"] == _READY and _has_no_credentials(scope):  # probes must not use up the guests' quota
            scope.setdefault("state", {})["caller"] = GUEST if self._required else ANYBODY
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._caller(scope)
            self._meter.begin(caller)
        except (HttpProblem, TidegateError) as problem:
            refusal = problem if isinstance(problem, HttpProblem) else problems.of(problem)
            await refusal.response()(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        try:
            await self._app(scope, receive, send)
        finally:
            socket = kept_of(scope)
            if socket is None:
                self._meter.end(caller)
            else:
                socket.when_lost(partial(self._meter.end, caller))

    async def _caller(self, scope: Scope) -> Caller:
        secret = _secret(scope)
        certified = None if secret is not None else self._certified(scope)
        if secret is None and certified is None and self._required and not self._is_open(scope):
            self._sign_ins.failures["missing"] += 1
            raise unknown("expected an API key: Authorization: Bearer tg_...")
        if certified is not None:
            caller = certified
        elif secret is None:
            caller = GUEST if self._required else ANYBODY
        else:
            caller = await self._sign_ins.caller(secret, address_of(scope))
        scope.setdefault("state", {})[IDENTIFIED] = caller
        _need_right(caller, scope)
        if scope["type"] == "http":  # a WebSocket is accepted first, and then gets the whole problem as a message
            self._need_name(caller, scope)
        return caller

    def _certified(self, scope: Scope) -> Caller | None:
        """Return the caller of a request's client certificate; None if there is none.

        Raises `HttpProblem` (403) for pages of other sites, since a browser sends its certificate with their requests.
        """
        try:
            caller = self._callers.of_certificate(peer_of(scope))
        except HttpProblem as problem:
            raise self._sign_ins.refused(address_of(scope), "certificate", problem) from None
        if caller is not None and is_foreign_page(scope, self._origins):
            detail = "a page of another site may not use the client certificate of this browser; use an API key"
            raise forbidden(detail)
        return caller

    def _is_open(self, scope: Scope) -> bool:
        """True if a request needs no credentials, because it reads or searches public services."""
        if scope["path"] == "/v1/discover":
            return self._policies.has_public
        if scope.get("method", "GET") not in ("GET", "HEAD"):
            return False
        match scope["path"].split("/")[2:]:
            case ["services"] | ["events"] | ["me"] | ["overview"]:
                return self._policies.has_public
            case ["services", name] | ["services", name, "events" | "status" | "asyncapi.json"]:
                return self._policies.is_public(name)
            case ["services", name, "explain" | "backtest"]:
                return self._policies.is_public(name)
        return False

    def _need_name(self, caller: Caller, scope: Scope) -> None:
        """Raise unless a caller sees the stream or service of a path. A `PUT` may create a new one."""
        match scope["path"].split("/")[2:]:
            case ["streams", name, "events"] if scope["method"] == "POST":
                self._policies.streams.need_append(caller, name)
            case ["streams", name, "quarantine", *_]:
                self._policies.streams.need(caller, name)
                if not self._policies.streams.sees(caller, name):
                    detail = f"what {name!r} has refused shows its events, and {caller.told} may not see them"
                    raise forbidden(detail)
            case ["streams", name, *_] if name:
                if scope["method"] == "PUT" and not self._policies.streams.exists(name):
                    need_scope(caller, name)
                else:
                    self._policies.streams.need(caller, name)
            case ["services", name, "quarantine", *_]:
                self._policies.need_quarantine(caller, name)
            case ["services", name, *_] if name:
                if scope["method"] == "PUT" and not self._policies.exists(name):
                    need_scope(caller, name)
                else:
                    self._policies.need(caller, name)


def _secret(scope: Scope) -> str | None:
    """Return the key or token of a request: from a header, or from the query, as browsers can't always set headers."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, rest = str(value, "latin-1").partition(" ")
            if kind.lower() != "bearer":
                raise unknown(f"expected Authorization: Bearer tg_..., not {kind!r}")
            return rest.strip()
        if name == b"x-api-key":
            return str(value, "latin-1")
    tokens = parse_qs(scope["query_string"].decode("latin-1")).get("access_token")
    return tokens[0] if tokens else None


def _has_no_credentials(scope: Scope) -> bool:
    names = {name for name, _ in scope["headers"]}
    return not names & {b"authorization", b"x-api-key"} and b"access_token" not in scope["query_string"]


def _is_guarded(path: str) -> bool:
    return path.startswith(_GUARDED) or path in (_METRICS, _READY)


def _need_right(caller: Caller, scope: Scope) -> None:
    rights = needed(scope.get("method", "GET"), scope["path"])
    if not rights or any(caller.may(right) for right in rights):
        # Keys, links and metrics concern all services: a limited operator could create an unlimited key.
        if rights == OPERATE and caller.services is not None:
            detail = (
                f"{caller.told} is for {', '.join(caller.services) or 'no service'}, and this is about all services"
            )
            raise forbidden(detail)
        return
    right = min(rights, key=lambda each: len(roles_with(each)))
    *others, last = roles_with(right)
    expected = f"{', '.join(others)} or {last}" if others else last
    detail = f"{caller.told} has the role {caller.role}, which may not {PHRASES[right]}; expected the role {expected}"
    raise forbidden(detail)
