"""The API as one ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from tidegate import __version__
from tidegate.gateway.audit.middleware import Audited
from tidegate.gateway.auth.access import AccessControl
from tidegate.gateway.auth.certificates import CertificateRequired
from tidegate.gateway.auth.loopback import LoopbackOnly
from tidegate.gateway.auth.origins import Origins
from tidegate.gateway.describe import openapi
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http import problems
from tidegate.gateway.http.limits import Limits
from tidegate.gateway.http.problems import HttpProblem
from tidegate.gateway.routes import (
    console,
    definitions,
    discover,
    documents,
    events,
    filters,
    health,
    keys,
    link_keys,
    links,
    overview,
    owners,
    quarantine,
    semantics,
    services,
    sockets,
    streams,
    subscriptions,
    webhooks,
)
from tidegate.gateway.routes.shortcut import Shortcut

_ROUTES = (
    health,
    documents,
    overview,
    definitions,
    discover,
    semantics,
    streams,
    services,
    quarantine,
    events,
    filters,
    sockets,
    subscriptions,
    webhooks,
    owners,
    keys,
    link_keys,
    links,
    console,
)


def make_app(gateway: Gateway) -> FastAPI:
    """Return the ASGI application of a started gateway: all routes and middleware. Closing it closes the gateway."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        await gateway.close()

    app = FastAPI(
        title="Tidegate",
        version=__version__,
        summary="Sensor streams as services: subscribe with a filter, get just the events that match.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
    )
    app.state.gateway, app.state.overview = gateway, overview.OverviewCache(gateway)
    console.files()  # read now, so that a broken installation fails at the start
    problems.install(app)
    app.add_middleware(Shortcut, gateway=gateway)
    app.add_middleware(Limits)  # inside AccessControl: the body of a refused request is not read at all
    app.add_middleware(
        AccessControl,
        callers=gateway.callers,
        policies=gateway.policies,
        meter=gateway.meter,
        sign_ins=gateway.sign_ins,
        required=gateway.needs_keys,
        origins=gateway.origins,
    )
    app.add_middleware(Audited, gateway=gateway)
    # Outside AccessControl: preflight requests of browsers have no key.
    app.add_middleware(Origins, allowed=gateway.origins, is_open=not gateway.needs_keys)
    if not gateway.needs_keys:
        app.add_middleware(LoopbackOnly, allowed=gateway.origins)
    if gateway.tls is not None and gateway.tls.settings.client_auth == "required":
        app.add_middleware(CertificateRequired)
    # One flat list, because an included router is searched by every request, and creates each of its routes twice.
    for module in _ROUTES:
        app.router.routes.extend(module.router.routes)
    app.router.default = _not_found
    described = openapi.describe(app, needs_keys=gateway.needs_keys)
    app.openapi = lambda: described  # type: ignore[method-assign]
    return app


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer requests and WebSockets for unknown paths with 404."""
    detail = f"nothing is at {scope['path']!r:.200}; all calls are in /openapi.json"
    await HttpProblem(404, "not-found", "There is no such thing", detail).response()(scope, receive, send)
