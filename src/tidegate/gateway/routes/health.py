"""Liveness, readiness and metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from tidegate.gateway.auth.callers import GUEST
from tidegate.gateway.routes.dependencies import Serving
from tidegate.gateway.telemetry.metrics import CONTENT_TYPE

router = APIRouter(tags=["health"])


@router.get("/livez", summary="Whether the process lives")
async def _livez() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz", summary="Whether every service runs or is known to fail")
async def _readyz(gateway: Serving, request: Request, response: Response) -> dict[str, Any]:
    if not gateway.is_ready:
        response.status_code = 503
    status = {"status": "ok" if gateway.is_ready else "waiting"}
    view = gateway.view(request)
    if view.caller == GUEST:  # guests learn that a service fails, but not which
        return status
    seen = view.services(gateway.definitions.services)
    return {**status, "services": {name: gateway.state(name) for name in seen}}


@router.get("/metrics", summary="What Prometheus is told", response_class=Response)
async def _metrics(gateway: Serving) -> Response:
    await gateway.durable.measure()
    return Response(gateway.metrics.text(), media_type=CONTENT_TYPE)
