"""The way of the call that comes most often: events for a raw stream.

What FastAPI does on the way to a route takes longer than all that this route does. A request that needs none of it,
as it has no parameters, goes straight to what the route calls, too.
"""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.errors import TidegateError
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http import problems
from tidegate.gateway.http.problems import Problem
from tidegate.gateway.routes.streams import ingest_events

_BEFORE, _BEHIND = "/v1/streams/", "/events"


class Shortcut:
    """ASGI middleware, inside those that say who may do what: takes events, and passes on all else."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app, self._gateway = app, gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, where the request is for events and nothing but them."""
        stream = _stream(scope)
        if stream is None:
            await self._app(scope, receive, send)
            return
        headers = {str(name, "latin-1"): str(value, "latin-1") for name, value in reversed(scope["headers"])}
        caller = scope["state"]["caller"]
        try:
            answer = await ingest_events(self._gateway, caller, stream, headers, Request(scope, receive).body)
        except Problem as problem:
            answer = problem.response()
        except TidegateError as error:
            answer = problems.of(error).response()
        except ClientDisconnect:
            return
        await answer(scope, receive, send)


def _stream(scope: Scope) -> str | None:
    """The stream that a request has events for; None: it is another's."""
    path = scope.get("path", "")
    if scope["type"] != "http" or scope["method"] != "POST" or scope["query_string"]:
        return None
    if not path.startswith(_BEFORE) or not path.endswith(_BEHIND):
        return None
    name = path[len(_BEFORE) : -len(_BEHIND)]
    return name if name and "/" not in name else None
