"""A fast path for the most frequent call: events for a raw stream.

FastAPI's work before a route takes longer than this route itself. A request without query parameters needs none of
it, so it goes directly to the function that the route calls as well.
"""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.errors import TidegateError
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http import problems
from tidegate.gateway.http.problems import HttpProblem
from tidegate.gateway.routes.streams import ingest_events

_BEFORE, _BEHIND = "/v1/streams/", "/events"


class Shortcut:
    """ASGI middleware after authentication: ingests events, and passes all other requests on."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app, self._gateway = app, gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a POST of events without query parameters; pass any other request on."""
        stream = _stream(scope)
        if stream is None:
            await self._app(scope, receive, send)
            return
        headers = {str(name, "latin-1"): str(value, "latin-1") for name, value in reversed(scope["headers"])}
        caller = scope["state"]["caller"]
        try:
            response = await ingest_events(self._gateway, caller, stream, headers, Request(scope, receive).body)
        except HttpProblem as problem:
            response = problem.response()
        except TidegateError as error:
            response = problems.of(error).response()
        except ClientDisconnect:
            return
        await response(scope, receive, send)


def _stream(scope: Scope) -> str | None:
    """Return the stream that a request posts events to; None if the request is not for this fast path."""
    path = scope.get("path", "")
    if scope["type"] != "http" or scope["method"] != "POST" or scope["query_string"]:
        return None
    if not path.startswith(_BEFORE) or not path.endswith(_BEHIND):
        return None
    name = path[len(_BEFORE) : -len(_BEHIND)]
    return name if name and "/" not in name else None
