"""`POST /v1/discover`: services by attributes, properties and quality; once, or watched."""

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

LOOK_S = 0.5
"""Between two looks at what is different, for whoever watches."""
BEAT_S = 15.0

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
    wanted = await gateway.executors.heavy(caller, lambda: discovery.Request.from_dict(read_json(body)))
    gateway.meter.need_filter(caller, None if wanted.filter is None else wanted.filter.text)
    first = await _search(gateway, request, wanted)
    if not is_watched:
        # In a thread: a thousand results with their reasons are tenths of a second.
        said = await gateway.executors.heavy(caller, lambda: orjson.dumps(_with_origins(gateway, first)))
        return Response(said, media_type="application/json")
    return StreamingResponse(_watch(gateway, request, wanted, first, used), media_type="text/event-stream")


async def _search(gateway: Gateway, request: Request, wanted: discovery.Request, *, patient: bool = False) -> Answer:
    view = gateway.view(request)
    return await gateway.executors.heavy(view.caller, gateway.finder.discover, view, wanted, patient=patient)


def _with_origins(gateway: Gateway, answer: Answer) -> dict[str, Any]:
    """An answer as JSON values, with the broker that each service comes from."""
    said, remotes = answer.to_dict(), gateway.remotes
    for each in (*said["results"], *said["near"]):
        remote = remotes.get(each["name"])
        each["origin"] = None if remote is None else remote.origin
    return said


async def _watch(
    gateway: Gateway, request: Request, wanted: discovery.Request, before: Answer, used: str | None
) -> AsyncIterator[bytes]:
    """The answer, then what is different, for as long as somebody listens and may."""
    yield b"retry: 1000\n\n" + event("answer", _with_origins(gateway, before))
    caller, quiet_s = gateway.view(request).caller, 0.0
    while not gateway.is_draining:
        await asyncio.sleep(LOOK_S)
        void = gateway.sweep.void(caller)
        if void is not None:
            yield event("error", {"detail": void})
            return
        after = await _search(gateway, request, wanted, patient=True)
        found = changes(before, after, used=used)
        quiet_s += LOOK_S
        if found:
            yield event("changes", _told(found, _with_origins(gateway, after)))
            before, quiet_s = after, 0.0
        elif quiet_s >= BEAT_S:
            yield b":\n\n"
            quiet_s = 0.0


def _told(found: Changes, said: dict[str, Any]) -> dict[str, Any]:
    by_name = {each["name"]: each for each in said["results"]}
    return {
        "appeared": [by_name[each.name] for each in found.appeared],
        "changed": [by_name[each.after.name] for each in found.changed],
        "left": [each.name for each in found.left],
        "better": None if found.better is None else found.better.name,
        "total": said["total"],
        "version": said["version"],
    }


def _is_true(said: str) -> bool:
    if said and said not in _TRUTH:
        raise bad_parameter("watch", said, "true or false, or nothing for true")
    return _TRUTH.get(said, True)
