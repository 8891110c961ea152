"""Who may do what: API keys, tokens and client certificates, checked before any route runs.

A key or token that is shown decides alone, also where it opens nothing; then a client certificate does.

    consumer   sees services and their events, and subscribes
    provider   also puts events into raw streams, changes services, and sees what they refuse
    admin      everything

Whoever is for some services opens just those, and raw streams of those names. What
each service says of its own access, `policy` knows.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.errors import TidegateError
from tidegate.federation.link import PATH as LINK_PATH
from tidegate.gateway import problems
from tidegate.gateway.audit import address_of
from tidegate.gateway.callers import ANYBODY, GUEST, Caller, Callers, unknown
from tidegate.gateway.certificates import peer_of
from tidegate.gateway.origins import is_foreign_page
from tidegate.gateway.policy import Policies, need_scope
from tidegate.gateway.problems import Problem, forbidden
from tidegate.gateway.protocol import kept_of
from tidegate.gateway.quotas import Meter
from tidegate.gateway.sign_ins import SignIns
from tidegate.registry import Role

_GUARDED = ("/v1", "/asyncapi.json")
"""What begins so is for those with a key: the calls, and the document that names services."""

IDENTIFIED = "identified"
"""Where the state of a request's scope has its caller, also one who may not do what they ask for."""

_RANK: dict[Role, int] = {"consumer": 0, "provider": 1, "admin": 2}


class Access:
    """ASGI middleware: lets a request through, with its caller in the scope, or says why not.

    Where nobody needs to be known, whoever shows nothing may do everything.
    Elsewhere they may read what is public.
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
        """`origins`: whose web pages may use a client certificate of the browser, beside the gateway's own."""
        self._app, self._callers, self._policies, self._meter, self._required = app, callers, policies, meter, required
        self._sign_ins, self._origins = sign_ins, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request for the API; all else passes."""
        # Brokers prove to each other who they are.
        is_link = scope["type"] == "websocket" and scope["path"] == LINK_PATH
        if scope["type"] not in ("http", "websocket") or not scope["path"].startswith(_GUARDED) or is_link:
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._caller(scope)
            self._meter.begin(caller)
        except (Problem, TidegateError) as problem:
            said = problem if isinstance(problem, Problem) else problems.of(problem)
            await said.response()(scope, receive, send)
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
        _need_role(caller, _role(scope))
        if scope["type"] == "http":  # a socket opens first, and is then told in full
            self._need_name(caller, scope)
        return caller

    def _certified(self, scope: Scope) -> Caller | None:
        """Who a request's client certificate says; a browser sends it along with what any page asks for."""
        try:
            caller = self._callers.of_certificate(peer_of(scope))
        except Problem as problem:
            raise self._sign_ins.refused(address_of(scope), "certificate", problem) from None
        if caller is not None and is_foreign_page(scope, self._origins):
            detail = "a page of another site may not use the client certificate of this browser; use an API key"
            raise forbidden(detail)
        return caller

    def _is_open(self, scope: Scope) -> bool:
        """Whether a request may be a guest's: one that reads a public service, or looks for one."""
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
        """Refuse what a caller does not see; what is not there yet may be put."""
        match scope["path"].split("/")[2:]:
            case ["streams", name, *_]:
                need_scope(caller, name)
            case ["services", name, "quarantine", *_] if self._policies.hidden(caller, name):
                self._policies.need(caller, name)
                detail = f"what {name!r} has refused shows all attributes, and {caller.told} may not see all"
                raise forbidden(detail)
            case ["services", name, *_] if name:
                if scope["method"] == "PUT" and not self._policies.is_there(name):
                    need_scope(caller, name)
                else:
                    self._policies.need(caller, name)


def _secret(scope: Scope) -> str | None:
    """The key that a request shows: in a header, or, where a browser can't set one, in the query."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, rest = str(value, "latin-1").partition(" ")
            if kind.lower() != "bearer":
                raise unknown(f"expected Authorization: Bearer tg_..., not {kind!r}")
            return rest.strip()
        if name == b"x-api-key":
            return str(value, "latin-1")
    asked = parse_qs(scope["query_string"].decode("latin-1")).get("access_token")
    return asked[0] if asked else None


def _role(scope: Scope) -> Role:
    """Who may make a request, at least."""
    method, path = scope.get("method", "GET"), scope["path"]
    if path.split("/")[2:3] in (["links"], ["keys"]):
        return "admin"
    if path.split("/")[4:5] == ["quarantine"]:  # what a service keeps from its consumers
        return "provider"
    if method in ("GET", "HEAD", "OPTIONS"):
        return "consumer"
    if (
        path == "/v1/apply"
        or path.startswith("/v1/streams/")
        or (path.startswith("/v1/services/") and path.split("/")[4:] != ["subscriptions"])
    ):
        return "provider"
    return "consumer"


def _need_role(caller: Caller, role: Role) -> None:
    if _RANK[caller.role] < _RANK[role]:
        detail = f"{caller.told} is a {caller.role}'s, and this needs {'an' if role == 'admin' else 'a'} {role}'s"
        raise forbidden(detail)
