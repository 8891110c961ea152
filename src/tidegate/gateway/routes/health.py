"""Whether the process lives, and whether it serves."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from tidegate.gateway.gateway import Gateway
from tidegate.gateway.metrics import CONTENT_TYPE


def router(gateway: Gateway) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["health"])

    @routes.get("/livez", summary="Whether the process lives")
    async def livez() -> dict[str, str]:
        return {"status": "ok"}

    @routes.get("/readyz", summary="Whether every service runs or is known to fail")
    async def readyz(response: Response) -> dict[str, Any]:
        states = {name: gateway.state(name) for name in gateway.definitions.services}
        if not gateway.is_ready:
            response.status_code = 503
        return {"status": "ok" if gateway.is_ready else "waiting", "services": states}

    @routes.get("/metrics", summary="What Prometheus is told", response_class=Response)
    async def metrics() -> Response:
        await gateway.durable.measure()
        return Response(gateway.metrics.text(), media_type=CONTENT_TYPE)

    return routes
