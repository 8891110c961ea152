"""`/asyncapi.json`: the events of all services that one may see, or of one, described."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from tidegate.gateway.describe import asyncapi
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.routes.subscriptions import caller_of


def router(gateway: Gateway) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["documents"])

    def origin(request: Request) -> asyncapi.Origin:
        return asyncapi.Origin(request.url.netloc, request.url.scheme == "https", gateway.needs_keys)

    @routes.get("/asyncapi.json", summary="The events of all services, as AsyncAPI 3.0 has it")
    async def of_all(request: Request) -> dict[str, Any]:
        caller, known = caller_of(request), gateway.definitions
        opens = None if caller is None else caller.services
        services = [each for each in known.services.values() if opens is None or each.name in opens]
        streams = [each for each in known.streams.values() if opens is None or each.name in opens]
        return asyncapi.describe(services, streams, gateway.schemas, origin(request))

    @routes.get("/v1/services/{name}/asyncapi.json", summary="The events of a service, as AsyncAPI 3.0 has it")
    async def of_one(request: Request, name: str) -> dict[str, Any]:
        return asyncapi.describe([gateway.service(name)], [], gateway.schemas, origin(request))

    return routes
