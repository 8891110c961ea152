"""How large a request's body may be: read no further than that, whatever it says of itself."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.gateway.callers import GUEST
from tidegate.gateway.problems import Problem
from tidegate.gateway.protocol import MOST_EVENTS_BYTES, establish

MOST_BYTES = 1024 * 1024
"""Of a body that is a document: the largest service file that anybody has written is a hundredth of it."""


class Limits:
    """ASGI middleware: no route gets more of a body than it may have."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse what says that it is too large, and stop to read what does not say so."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if scope.get("state", {}).get("caller", GUEST) is not GUEST:
            establish(scope)  # `Access` has let it in, and knows whose it is
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        most = _most(scope["path"])
        problem = _encoded(scope)
        said = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if problem is None and said.isdigit() and int(said) > most:
            problem = _too_large(most)
        if problem is not None:
            await problem.response()(scope, receive, send)
            return
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > most:
                raise _too_large(most)
            return message

        await self._app(scope, counted, send)


def _most(path: str) -> int:
    is_ingest = path.startswith("/v1/streams/") and path.endswith("/events")
    has_events = is_ingest or path.endswith("/quarantine/replay")
    return MOST_EVENTS_BYTES if has_events else MOST_BYTES


def _encoded(scope: Scope) -> Problem | None:
    """Refuse a compressed body: its size says nothing of what it expands to."""
    for name, value in scope["headers"]:
        plain = {b"content-encoding": b"identity", b"transfer-encoding": b"chunked"}.get(name)
        if plain is not None and value.strip().lower() not in (plain, b""):
            kind, shown = str(name, "latin-1").replace("-", " "), str(value[:60], "latin-1")
            detail = f"{kind} {shown!r}; expected a body that is not compressed"
            headers = {"accept-encoding": "identity", "connection": "close"}
            return Problem(415, "bad-media-type", "The body's encoding can't be read", detail, headers=headers)
    return None


def _too_large(most: int) -> Problem:
    hint = ": send several" if most == MOST_EVENTS_BYTES else ""
    detail = f"expected at most {most:,} bytes in one request{hint}"
    return Problem(413, "too-large", "The request is too large", detail, limit=most, headers={"connection": "close"})
