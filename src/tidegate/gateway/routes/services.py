"""Services: what there is, how it does."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from tidegate.gateway.gateway import Gateway
from tidegate.services import to_dict


def router(gateway: Gateway) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["services"])

    def described(name: str) -> dict[str, Any]:
        service = gateway.definitions.services[name]
        return {
            "name": name,
            "version": gateway.versions.get(name),
            "definition": to_dict(service),
            "schema": gateway.schemas[name].to_dict(),
            "status": gateway.status.get(name),
        }

    @routes.get("/services", summary="All services")
    async def services() -> dict[str, Any]:
        return {"services": [described(name) for name in gateway.definitions.services]}

    @routes.get("/services/{name}", summary="One service")
    async def service(name: str) -> dict[str, Any]:
        gateway.service(name)
        return described(name)

    @routes.get("/services/{name}/status", summary="How a service does")
    async def status(name: str) -> dict[str, Any]:
        gateway.service(name)
        counts = gateway.hub.counts().get(name, {})
        return {"name": name, **(gateway.status.get(name) or {"state": "never ran"}), "subscribers": counts}

    return routes
