"""Limits the size of request bodies by the bytes that arrive, not only by their headers."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.gateway.auth.callers import GUEST
from tidegate.gateway.http.problems import HttpProblem
from tidegate.gateway.transports.protocol import MAX_EVENTS_BYTES, establish

MAX_BODY_BYTES = 1024 * 1024
"""Size of a request body that is a document. The largest known service file has a hundredth of it."""


class Limits:
    """ASGI middleware: refuses request bodies that are too large or compressed, with 413 and 415."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the headers of a request, and count the bytes of its body while the route reads them."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if scope.get("state", {}).get("caller", GUEST) is not GUEST:
            establish(scope)  # `AccessControl` has identified the caller
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        limit = _limit(scope["path"])
        problem = _encoded(scope)
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if problem is None and length.isdigit() and int(length) > limit:
            problem = _too_large(limit)
        if problem is not None:
            await problem.response()(scope, receive, send)
            return
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > limit:
                raise _too_large(limit)
            return message

        await self._app(scope, counted, send)


def _limit(path: str) -> int:
    is_ingest = path.startswith("/v1/streams/") and path.endswith("/events")
    has_events = is_ingest or path.endswith("/quarantine/replay")
    return MAX_EVENTS_BYTES if has_events else MAX_BODY_BYTES


def _encoded(scope: Scope) -> HttpProblem | None:
    """Return the refusal of a compressed body, because its size does not bound its content; None if it is plain."""
    for name, value in scope["headers"]:
        plain = {b"content-encoding": b"identity", b"transfer-encoding": b"chunked"}.get(name)
        if plain is not None and value.strip().lower() not in (plain, b""):
            kind, shown = str(name, "latin-1").replace("-", " "), str(value[:60], "latin-1")
            detail = f"{kind} {shown!r}; expected a body that is not compressed"
            headers = {"accept-encoding": "identity", "connection": "close"}
            return HttpProblem(415, "bad-media-type", "The body's encoding can't be read", detail, headers=headers)
    return None


def _too_large(limit: int) -> HttpProblem:
    hint = ": send several" if limit == MAX_EVENTS_BYTES else ""
    detail = f"expected at most {limit:,} bytes in one request{hint}"
    return HttpProblem(
        413, "too-large", "The request is too large", detail, limit=limit, headers={"connection": "close"}
    )
