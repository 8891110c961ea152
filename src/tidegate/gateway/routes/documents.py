"""`/asyncapi.json`: describes the events of one service, or of all services that the caller sees."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from tidegate.gateway.describe import asyncapi
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.routes.dependencies import Serving

router = APIRouter(tags=["documents"])


@router.get("/asyncapi.json", summary="The events of all services, as AsyncAPI 3.0 has it")
async def _of_all(gateway: Serving, request: Request) -> dict[str, Any]:
    definitions, view = gateway.definitions, gateway.view(request)
    seen = view.services(definitions.services)
    streams = [stream for stream in definitions.streams.values() if view.knows_stream(stream.name)]
    schemas = {**gateway.schemas, **{name: view.schema(name) for name in seen}}
    return asyncapi.describe(
        [definitions.services[name] for name in seen], streams, schemas, _server_of(gateway, request)
    )


@router.get("/v1/services/{name}/asyncapi.json", summary="The events of a service, as AsyncAPI 3.0 has it")
async def _of_one(gateway: Serving, request: Request, name: str) -> dict[str, Any]:
    schema = gateway.view(request).schema(name)
    return asyncapi.describe([gateway.service(name)], [], {name: schema}, _server_of(gateway, request))


def _server_of(gateway: Gateway, request: Request) -> asyncapi.Origin:
    return asyncapi.Origin(request.url.netloc, request.url.scheme == "https", gateway.needs_keys)
