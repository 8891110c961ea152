"""Services: list, describe, define and remove them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from tidegate.gateway.auth.callers import caller_of
from tidegate.gateway.describe.definition import is_transparent, shown_service, shown_status
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http.bodies import read_document
from tidegate.gateway.routes.dependencies import Serving
from tidegate.gateway.routes.untrusted import apply_untrusted, remove_untrusted
from tidegate.services import Service, from_dict

router = APIRouter(prefix="/v1", tags=["services"])


@router.get("/services", summary="All services")
async def _services(gateway: Serving, request: Request) -> Response:
    gone = await _lost_services(gateway)
    services = gateway.services
    seen = gateway.view(request).services(services)
    # orjson, because FastAPI would block the event loop for tens of milliseconds to encode hundreds of services.
    body = orjson.dumps({"services": [_described(gateway, request, name, services[name], gone) for name in seen]})
    return Response(body, media_type="application/json")


@router.get("/services/{name}", summary="One service")
async def _service(gateway: Serving, request: Request, name: str) -> dict[str, Any]:
    return _described(gateway, request, name, gateway.service(name), await _lost_services(gateway))


@router.get("/services/{name}/status", summary="How a service does")
async def _status(gateway: Serving, request: Request, name: str) -> dict[str, Any]:
    transparent = is_transparent(gateway, caller_of(request), gateway.service(name))
    counts = gateway.hub.counts().get(name, {})
    remote = gateway.remotes.get(name)
    seen = shown_status(gateway.statuses.newest.get(name), transparent=transparent)
    status = seen or {"state": "never ran" if remote is None else f"of {remote.origin}"}
    quality = await asyncio.to_thread(gateway.finder.quality, name)
    return {
        "name": name,
        **status,
        "lost": name in await _lost_services(gateway),
        "subscribers": counts,
        "quality": quality,
    }


@router.put("/services/{name}", summary="Add or change a service; the body is its definition, JSON or YAML")
async def _put(
    gateway: Serving,
    request: Request,
    name: str,
    force: Annotated[bool, Query(description="Also where subscribers would be broken.")] = False,
    backfill: Annotated[bool, Query(description="Run over the retained history first.")] = False,
) -> dict[str, Any]:
    body, caller = await request.body(), caller_of(request)

    def change() -> None:
        definitions = from_dict({"services": {name: read_document(body)}}, remote=True)
        apply_untrusted(gateway, caller, definitions, force=force, backfill=backfill)

    await gateway.executors.heavy(caller, change)
    await gateway.refresh()
    return _described(gateway, request, name, gateway.service(name), await _lost_services(gateway))


@router.delete("/services/{name}", status_code=204, summary="Remove a service that nothing reads")
async def _delete(
    gateway: Serving,
    request: Request,
    name: str,
    force: Annotated[bool, Query(description="Also if it has subscribers.")] = False,
) -> None:
    gateway.service(name)
    remove = partial(remove_untrusted, gateway, caller_of(request), name, force=force)
    await asyncio.get_running_loop().run_in_executor(None, remove)
    await gateway.refresh()


async def _lost_services(gateway: Gateway) -> set[str]:
    # In a thread, because a search may hold the lock of the directory.
    return await asyncio.to_thread(gateway.finder.lost) | gateway.unreached()


def _described(gateway: Gateway, request: Request, name: str, service: Service, lost: set[str]) -> dict[str, Any]:
    view, remote, caller = gateway.view(request), gateway.remotes.get(name), caller_of(request)
    transparent = is_transparent(gateway, caller, service)
    return {
        "name": name,
        "version": gateway.versions.get(name),
        "definition": shown_service(gateway, caller, name, service),
        "schema": view.schema(name).to_dict(),
        "constraints": dict(view.schema(name).constraints),
        "key": view.key(name),
        "lost": name in lost,
        "status": shown_status(gateway.statuses.newest.get(name), transparent=transparent),
        "origin": None if remote is None else remote.origin,
    }
