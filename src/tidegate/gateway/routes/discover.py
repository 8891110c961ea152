"""`POST /v1/discover`: find services by attributes, properties and quality, once or continuously."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from tidegate import discovery
from tidegate.discovery import Answer, Changes, changes
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http.bodies import read_json
from tidegate.gateway.http.problems import bad_parameter
from tidegate.gateway.routes.dependencies import Serving
from tidegate.gateway.transports.sse import event

POLL_INTERVAL_S = 0.5
"""Between two searches of a watched request."""
HEARTBEAT_INTERVAL_S = 15.0

_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_WATCH = "Go on, by server-sent events: what appears, changes, leaves, is better."


router = APIRouter(prefix="/v1", tags=["services"])


@router.post("/discover", summary="Find services: ranked, with the reasons")
async def _discover(
    gateway: Serving,
    request: Request,
    watch: Annotated[str | None, Query(description=_WATCH, json_schema_extra={"enum": ["", *_TRUTH]})] = None,
    used: Annotated[str | None, Query(description="Watched: the service that you have; is one better?")] = None,
) -> Response:
    is_watched = watch is not None and _is_true(watch)
    body, caller = await request.body(), gateway.view(request).caller
    search = await gateway.executors.heavy(caller, lambda: discovery.Request.from_dict(read_json(body)))
    gateway.meter.need_filter(caller, None if search.filter is None else search.filter.text)
    first = await _search(gateway, request, search)
    if not is_watched:
        # In a thread: encoding a thousand results with their reasons takes tenths of a second.
        body = await gateway.executors.heavy(caller, lambda: orjson.dumps(_with_origins(gateway, first)))
        return Response(body, media_type="application/json")
    return StreamingResponse(_watch(gateway, request, search, first, used), media_type="text/event-stream")


async def _search(gateway: Gateway, request: Request, search: discovery.Request, *, patient: bool = False) -> Answer:
    view = gateway.view(request)
    return await gateway.executors.heavy(view.caller, gateway.finder.discover, view, search, patient=patient)


def _with_origins(gateway: Gateway, answer: Answer) -> dict[str, Any]:
    """Return the document of an answer, with the broker of each service."""
    document, remotes = answer.to_dict(), gateway.remotes
    for result in (*document["results"], *document["near"]):
        remote = remotes.get(result["name"])
        result["origin"] = None if remote is None else remote.origin
    return document


async def _watch(
    gateway: Gateway, request: Request, search: discovery.Request, before: Answer, used: str | None
) -> AsyncIterator[bytes]:
    """Yield the answer, then its changes, until the client disconnects or loses its rights."""
    yield b"retry: 1000\n\n" + event("answer", _with_origins(gateway, before))
    caller, quiet_s = gateway.view(request).caller, 0.0
    while not gateway.is_draining:
        await asyncio.sleep(POLL_INTERVAL_S)
        void = gateway.sweep.void(caller)
        if void is not None:
            yield event("error", {"detail": void})
            return
        after = await _search(gateway, request, search, patient=True)
        changed = changes(before, after, used=used)
        quiet_s += POLL_INTERVAL_S
        if changed:
            yield event("changes", _document(changed, _with_origins(gateway, after)))
            before, quiet_s = after, 0.0
        elif quiet_s >= HEARTBEAT_INTERVAL_S:
            yield b":\n\n"
            quiet_s = 0.0


def _document(changed: Changes, answer: dict[str, Any]) -> dict[str, Any]:
    by_name = {result["name"]: result for result in answer["results"]}
    return {
        "appeared": [by_name[service.name] for service in changed.appeared],
        "changed": [by_name[service.after.name] for service in changed.changed],
        "left": [service.name for service in changed.left],
        "better": None if changed.better is None else changed.better.name,
        "total": answer["total"],
        "version": answer["version"],
    }


def _is_true(text: str) -> bool:
    if text and text not in _TRUTH:
        raise bad_parameter("watch", text, "true or false, or nothing for true")
    return _TRUTH.get(text, True)
