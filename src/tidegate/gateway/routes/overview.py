"""All at once: who asks, and how everything that they see does."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request

from tidegate import __version__
from tidegate.gateway.callers import caller_of
from tidegate.gateway.gateway import Gateway
from tidegate.model import timestamps
from tidegate.services import to_dict

FRESH_S = 2.0
"""How long what lags were measured is told again: whoever looks on asks every other second."""
COUNTED_S = 1.0
"""How long what was counted is: to count ten thousand subscribers takes milliseconds, whoever asks."""


def router(gateway: Gateway) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/v1", tags=["overview"])
    counted = _Counted(gateway)

    @routes.get("/me", summary="Who asks, and what they may do")
    async def me(request: Request) -> dict[str, Any]:
        caller = caller_of(request)
        return {
            "name": caller.name,
            "known": caller.id is not None,
            "role": caller.role,
            "services": None if caller.services is None else list(caller.services),
            "expires_at": None if caller.expires_at is None else caller.expires_at.isoformat(),
            "version": __version__,
        }

    @routes.get("/overview", summary="The graph of streams, services and subscribers, and how each does")
    async def overview(request: Request) -> dict[str, Any]:
        await gateway.durable.measure(FRESH_S)
        view, scope = gateway.view(request), caller_of(request).services
        seen = view.services(gateway.services)
        streams = [name for name in gateway.definitions.streams if scope is None or name in scope]
        return {
            "at": timestamps.to_text(time.time_ns() // 1_000),
            "streams": [_stream(gateway, name) for name in streams],
            "services": _services(gateway, seen, counted.newest()),
        }

    return routes


def _stream(gateway: Gateway, name: str) -> dict[str, Any]:
    said = to_dict(gateway.stream(name))
    source = said.get("source") or "http"
    kind = source if isinstance(source, str) else next(iter(source))
    return {"name": name, "source": kind, "description": said.get("description", "")}


class _Counted:
    """What is counted of all services, once in a while for all who ask."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._at = gateway, float("-inf")

    def newest(self) -> _Counted:
        """Count, where the last time is too long ago."""
        now = time.monotonic()
        if now - self._at >= COUNTED_S:
            self._at, hub = now, self._gateway.hub
            self.lost, self.counts, self.kinds = self._gateway.finder.lost(), hub.counts(), hub.kinds()
            self.dispatched = self._gateway.metrics.dispatch_buckets()
        return self


def _services(gateway: Gateway, names: list[str], counted: _Counted) -> list[dict[str, Any]]:
    delivered, lags = gateway.metrics.deliveries, gateway.durable.lags
    services, remotes, found = gateway.services, gateway.remotes, []
    for name in names:
        service, remote = services[name], remotes.get(name)
        stored = [lag for (of, _), lag in lags.stored.items() if of == name]
        found.append(
            {
                "name": name,
                "version": gateway.versions.get(name),
                "description": service.description,
                "inputs": [] if remote is not None else list(service.inputs),
                "origin": None if remote is None else remote.origin,
                "lost": name in counted.lost,
                "status": gateway.status.get(name),
                "subscribers": {kind: count for (of, kind), count in counted.kinds.items() if of == name},
                "behind": counted.counts.get(name, {}).get("behind", 0),
                "lag": lags.connected.get(name, 0),
                "durable": {"count": len(stored), "lag": max(stored, default=0)},
                "delivered": {way: tally.count for (of, way), tally in list(delivered.items()) if of == name},
                "dispatch": counted.dispatched.get(name, {}),
            }
        )
    return found
