"""Services: what there is, how it does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from tidegate.gateway.bodies import document_of
from tidegate.gateway.callers import caller_of
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.policy import View
from tidegate.gateway.untrusted import apply_untrusted, remove_untrusted
from tidegate.services import Service, from_dict, to_dict

TOLD = ("qos", "retention", "properties", "categories", "themes", "description")
"""Of a definition, what is known of another broker's service."""
SHOWN = ("from", "constraints", "qos", "retention", "properties", "categories", "themes", "description")
"""Of a definition, what those are shown who subscribe: neither what it is made of, nor who else may."""


def router(gateway: Gateway) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/v1", tags=["services"])

    async def lost() -> set[str]:
        # In a thread: whoever looks for services holds the directory meanwhile.
        return await asyncio.to_thread(gateway.finder.lost) | gateway.unreached()

    def described(request: Request, name: str, service: Service, lost: set[str]) -> dict[str, Any]:
        view, remote = gateway.view(request), gateway.remotes.get(name)
        definition = to_dict(service)
        if remote is not None:
            definition = {key: value for key, value in definition.items() if key in TOLD}
        elif not view.sees_making(service):
            definition = _shown(definition, service, view)
        return {
            "name": name,
            "version": gateway.versions.get(name),
            "definition": definition,
            "schema": view.schema(name).to_dict(),
            "key": view.key(name),
            "lost": name in lost,
            "status": view.status(name, gateway.status.get(name)),
            "origin": None if remote is None else remote.origin,
        }

    @routes.get("/services", summary="All services")
    async def services(request: Request) -> Response:
        gone = await lost()
        known = gateway.services
        seen = gateway.view(request).services(known)
        # By orjson: FastAPI takes tens of milliseconds to write hundreds of services, in which no event would go out.
        said = orjson.dumps({"services": [described(request, name, known[name], gone) for name in seen]})
        return Response(said, media_type="application/json")

    @routes.get("/services/{name}", summary="One service")
    async def service(request: Request, name: str) -> dict[str, Any]:
        return described(request, name, gateway.service(name), await lost())

    @routes.get("/services/{name}/status", summary="How a service does")
    async def status(request: Request, name: str) -> dict[str, Any]:
        gateway.service(name)
        counts = gateway.hub.counts().get(name, {})
        remote = gateway.remotes.get(name)
        known = gateway.view(request).status(name, gateway.status.get(name))
        said = known or {"state": "never ran" if remote is None else f"of {remote.origin}"}
        quality = await asyncio.to_thread(gateway.finder.quality, name)
        return {"name": name, **said, "lost": name in await lost(), "subscribers": counts, "quality": quality}

    @routes.put("/services/{name}", summary="Add or change a service; the body is its definition, JSON or YAML")
    async def put(
        request: Request,
        name: str,
        force: Annotated[bool, Query(description="Also where subscribers would be broken.")] = False,
        backfill: Annotated[bool, Query(description="Run over the retained history first.")] = False,
    ) -> dict[str, Any]:
        definitions = from_dict({"services": {name: await document_of(request)}}, remote=True)
        apply = partial(apply_untrusted, gateway, caller_of(request), definitions, force=force, backfill=backfill)
        await asyncio.get_running_loop().run_in_executor(None, apply)
        await gateway.look()
        return described(request, name, gateway.service(name), await lost())

    @routes.delete("/services/{name}", status_code=204, summary="Remove a service that nothing reads")
    async def delete(
        request: Request,
        name: str,
        force: Annotated[bool, Query(description="Also where somebody subscribes.")] = False,
    ) -> None:
        gateway.service(name)
        remove = partial(remove_untrusted, gateway, caller_of(request), name, force=force)
        await asyncio.get_running_loop().run_in_executor(None, remove)
        await gateway.look()

    return routes


def _shown(definition: Mapping[str, Any], service: Service, view: View) -> dict[str, Any]:
    """Return what is shown of a definition to those who may not see how the service is made."""
    shown = {key: value for key, value in definition.items() if key in SHOWN}
    if view.withheld(service.name):  # constraints tell of values
        shown.pop("constraints", None)
    inputs = view.named(service.inputs)
    if len(inputs) < len(service.inputs):
        shown["from"] = inputs
    return shown
