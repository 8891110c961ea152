"""WebSockets: `/v1/events`, and those of a service or durable subscription, which start with one subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from starlette.datastructures import QueryParams

from tidegate.delivery.subscriber import Sink
from tidegate.errors import TidegateError
from tidegate.gateway.auth.callers import Caller, caller_of
from tidegate.gateway.auth.quotas import share
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http import problems
from tidegate.gateway.http.names import canonical
from tidegate.gateway.http.problems import HttpProblem
from tidegate.gateway.routes.dependencies import Serving
from tidegate.gateway.routes.subscriptions import found_for
from tidegate.gateway.transports.messages import Subscribe
from tidegate.gateway.transports.protocol import frame_socket_of
from tidegate.gateway.transports.websocket import SUBPROTOCOL, WebSocketSession

MAX_SOCKETS = 10_000
"""Open WebSockets of one gateway."""
FIRST = "0"
"""The id of the subscription that a WebSocket starts with."""

BAD_REQUEST = 4400
CLOSES = {403: 4403, 404: 4404}
"""Close codes by the status of the first subscription's problem; others are `BAD_REQUEST`."""
TRY_AGAIN_LATER = 1013

CLOSE_TIMEOUT_S = 1.0
"""How long a client may take to read the close frame before the connection is aborted."""
MAX_REASON_BYTES = 123
"""Size of the reason in a close frame (RFC 6455)."""


class OpenSocket:
    """An open WebSocket, as `Sweep` sees it."""

    def __init__(self, websocket: WebSocket, session: WebSocketSession) -> None:
        self._websocket, self._session = websocket, session
        self.caller = caller_of(websocket)

    def is_left_idle(self, sink: Sink) -> bool:
        """True if a sink belongs to this WebSocket, and the WebSocket has no subscription left."""
        return self._session.has(sink) and self._session.is_idle

    async def dismiss(self, code: int, reason: str) -> None:
        """Close the WebSocket; abort it if the client does not read. Does nothing if it is closed already."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await _close(self._websocket, code, reason)
        except TimeoutError:
            frame_socket_of(self._websocket.scope).abort()
        except (RuntimeError, WebSocketDisconnect):
            pass


router = APIRouter(prefix="/v1", tags=["events"])


@router.websocket("/events")
async def _events(gateway: Serving, websocket: WebSocket) -> None:
    await _serve(gateway, websocket, None)


@router.websocket("/services/{name}/events")
async def _events_of(gateway: Serving, websocket: WebSocket, name: str) -> None:
    await _serve(gateway, websocket, partial(_first, name, websocket.query_params))


@router.websocket("/subscriptions/{id_}/events")
async def _events_of_subscription(gateway: Serving, websocket: WebSocket, id_: str) -> None:
    await _serve(gateway, websocket, partial(_first_of_durable, id_, websocket.query_params))


def _has_room(gateway: Gateway, caller: Caller) -> bool:
    """True if a caller may open one more WebSocket. With keys, no single caller may use all of them."""
    limit = share(MAX_SOCKETS) if gateway.needs_keys else MAX_SOCKETS
    return gateway.open_sockets.total() < MAX_SOCKETS and gateway.open_sockets[caller.id] < limit


async def _serve(gateway: Gateway, websocket: WebSocket, first: Callable[[], Subscribe] | None) -> None:
    offered = websocket.scope["subprotocols"]
    await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    if offered and SUBPROTOCOL not in offered:
        await _close(websocket, BAD_REQUEST, f"expected the subprotocol {SUBPROTOCOL}")
        return
    caller = caller_of(websocket)
    if gateway.is_draining or not _has_room(gateway, caller):
        await _close(websocket, TRY_AGAIN_LATER, "too many sockets")
        return
    gateway.open_sockets[caller.id] += 1
    find = partial(found_for, gateway, websocket)
    view = gateway.view(websocket)
    socket = frame_socket_of(websocket.scope)
    session = WebSocketSession(gateway.hub, socket, view, gateway.durable, find, gateway.metrics, gateway.executors)
    open_ = OpenSocket(websocket, session)
    gateway.sweep.connections.add(open_)
    try:
        problem = await _open(session, first) if first is not None else None
        if problem is not None:
            session.complain(problem, FIRST)
            code = CLOSES.get(problem.status, BAD_REQUEST)
            await _close(websocket, code, problem.document["detail"])
            return
        await session.serve(websocket.receive)
    finally:
        gateway.open_sockets[caller.id] -= 1
        gateway.sweep.connections.discard(open_)
        session.close()


PARAMETERS = (
    "filter",
    "param",
    "cursor",
    "Last-Event-ID",
    "from",
    "select",
    "format",
    *("latest", "every", "key", "idle"),
)
"""Query parameters of the WebSocket of a service."""
DURABLE_PARAMETERS = ("cursor", "Last-Event-ID", "latest")
"""Query parameters of the WebSocket of a durable subscription."""


def _first_of_durable(subscription: str, parameters: QueryParams) -> Subscribe:
    """Return the subscription that the query of a durable subscription's WebSocket asks for."""
    query = QueryParams(canonical(parameters.multi_items(), DURABLE_PARAMETERS))
    cursor = query.get("Last-Event-ID") or query.get("cursor")
    return Subscribe(FIRST, subscription=subscription, cursor=cursor, latest=query.get("latest"))


def _first(service: str, parameters: QueryParams) -> Subscribe:
    """Return the subscription that the query of a service's WebSocket asks for."""
    query = QueryParams(canonical(parameters.multi_items(), PARAMETERS))
    select = query.get("select")
    return Subscribe(
        id=FIRST,
        service=service,
        filter=query.get("filter"),
        params=tuple(query.getlist("param")) or None,
        cursor=query.get("Last-Event-ID") or query.get("cursor"),
        begin=query.get("from"),
        select=None if select is None else (select,),
        format=query.get("format"),
        latest=query.get("latest"),
        every=query.get("every"),
        key=query.get("key"),
        idle=query.get("idle"),
    )


async def _open(session: WebSocketSession, first: Callable[[], Subscribe]) -> HttpProblem | None:
    try:
        await session.subscribe(first())
    except HttpProblem as problem:
        return problem
    except TidegateError as error:
        return problems.of(error)
    return None


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    await websocket.close(code, reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore"))
