"""Liveness, readiness and metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from tidegate.gateway.auth.callers import GUEST
from tidegate.gateway.gateway import Gateway
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
    status: dict[str, Any] = {"status": _status(gateway)}
    view = gateway.view(request)
    if view.caller == GUEST:  # guests learn that a service fails, but not which
        return status
    seen = view.services(gateway.definitions.services)
    problems = {"problems": found} if (found := _problems(gateway)) else {}
    return {**status, **problems, "services": {name: gateway.state(name) for name in seen}}


def _status(gateway: Gateway) -> str:
    """Return `waiting` before the gateway is ready, `degraded` while a part that it needs is away, else `ok`."""
    if not gateway.is_ready:
        return "waiting"
    return "degraded" if _problems(gateway) else "ok"


def _problems(gateway: Gateway) -> dict[str, str]:
    """Return what is wrong with the registry, the log and Spark: they do not answer, or have no slots for services."""
    statuses = (gateway.statuses.newest.get(name, {}) for name in gateway.definitions.services)
    missing = sum(status.get("missing_tasks") or 0 for status in statuses)
    spark = {"spark": f"no executor has a slot for {missing} real-time tasks of the services"} if missing else {}
    return {**gateway.outages.problems, **spark}


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def _metrics(gateway: Serving) -> Response:
    await gateway.durable.measure()
    return Response(gateway.metrics.text(), media_type=CONTENT_TYPE)
