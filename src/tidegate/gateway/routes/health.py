"""Whether the process lives, and whether it serves."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from tidegate.gateway.callers import GUEST
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.metrics import CONTENT_TYPE


def router(gateway: Gateway) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["health"])

    @routes.get("/livez", summary="Whether the process lives")
    async def livez() -> dict[str, str]:
        return {"status": "ok"}

    @routes.get("/readyz", summary="Whether every service runs or is known to fail")
    async def readyz(request: Request, response: Response) -> dict[str, Any]:
        if not gateway.is_ready:
            response.status_code = 503
        status = {"status": "ok" if gateway.is_ready else "waiting"}
        view = gateway.view(request)
        if view.caller == GUEST:  # whoever is not known learns that something is wrong, and not what
            return status
        seen = view.services(gateway.definitions.services)
        return {**status, "services": {name: gateway.state(name) for name in seen}}

    @routes.get("/metrics", summary="What Prometheus is told", response_class=Response)
    async def metrics() -> Response:
        await gateway.durable.measure()
        return Response(gateway.metrics.text(), media_type=CONTENT_TYPE)

    return routes
