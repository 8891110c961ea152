"""`/v1/me` and `/v1/overview`: the caller, and the state of all streams and services that they see."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from tidegate import __version__
from tidegate.delivery.subscriber import Subscriber, SubscriberState
from tidegate.federation.link import Remote
from tidegate.gateway import service_status
from tidegate.gateway.auth.callers import GUEST, Caller, caller_of
from tidegate.gateway.describe.definition import is_transparent, shown_status
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.routes.dependencies import Serving
from tidegate.model import timestamps
from tidegate.services import Service, Stream, audit_stream, to_dict

LAG_CACHE_S = 2.0
"""Lags that are younger than this are not measured again. The console polls every two seconds."""
CACHE_S = 1.0
"""How long one count serves all callers."""

MASKED_SOURCE_ERROR = "the source failed; providers see why"

_Seen = tuple[tuple[str, ...], tuple[str, ...], frozenset[str], bool]
"""The streams and services that a caller sees, the services whose pipeline they see, and if they see sources."""


router = APIRouter(prefix="/v1", tags=["overview"])


@router.get("/me", summary="Who asks, and what they may do")
async def _me(gateway: Serving, request: Request) -> dict[str, Any]:
    caller = caller_of(request)
    return {
        "name": caller.name,
        "known": caller.id is not None,
        "role": caller.role,
        "services": None if caller.services is None else list(caller.services),
        "expires_at": None if caller.expires_at is None else caller.expires_at.isoformat(),
        "version": __version__,
        "has": _has(gateway, caller),
    }


@router.get("/overview", summary="The graph of streams, services and subscribers, and how each does")
async def _overview(gateway: Serving, request: Request) -> Response:
    await gateway.durable.measure(LAG_CACHE_S)
    view = gateway.view(request)
    seen = tuple(view.services(gateway.services))
    streams = tuple(name for name in gateway.definitions.streams if view.knows_stream(name))
    services, caller = gateway.services, caller_of(request)
    transparent = frozenset(name for name in seen if is_transparent(gateway, caller, services[name]))
    return Response(
        await request.app.state.overview.newest((streams, seen, transparent, caller.may("define"))),
        media_type="application/json",
    )


def _has(gateway: Gateway, caller: Caller) -> list[str]:
    """Return the optional features that this gateway offers to a caller."""
    features = {
        "semantics": gateway.semantics is not None and caller != GUEST,
        "links": gateway.linked is not None and caller.may("operate"),
        service_status.STREAM: gateway.policies.sees(caller, service_status.STREAM),
        "keys": caller.role == "admin" and caller.services is None and caller.id is not None,
        audit_stream.STREAM: gateway.policies.sees(caller, audit_stream.STREAM),
    }
    return [name for name, is_available in features.items() if is_available]


class OverviewCache:
    """Caches the counts of all services, and one response per set of visible services.

    Counts in a thread, because ten thousand subscribers or a thousand services take milliseconds.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._at = gateway, float("-inf")
        self._answers: dict[_Seen, bytes] = {}
        self._turn = asyncio.Lock()

    async def newest(self, seen: _Seen) -> bytes:
        """Return the response for callers who see these streams and services. Runs on the event loop."""
        async with self._turn:
            if time.monotonic() - self._at >= CACHE_S:
                listening, unreached = self._gateway.hub.listening(), self._gateway.unreached()
                self._counted = await asyncio.to_thread(_Counted, self._gateway, listening, unreached)
                self._at, self._answers = time.monotonic(), {}
            if seen not in self._answers:
                services, remotes = self._gateway.services, dict(self._gateway.remotes)
                answer = partial(_answer, self._gateway, seen, self._counted, services, remotes)
                self._answers[seen] = await asyncio.to_thread(answer)
            return self._answers[seen]


class _Counted:
    """The counts of all services, by service. Created in a thread."""

    def __init__(self, gateway: Gateway, listening: Sequence[Subscriber], unreached: set[str]) -> None:
        self.at = timestamps.to_text(time.time_ns() // 1_000)
        self.lost = gateway.finder.lost() | unreached
        self.broken = gateway.finder.broken()
        self.dispatched = gateway.metrics.dispatch_buckets()
        self.behind = Counter(
            subscriber.service for subscriber in listening if subscriber.state is not SubscriberState.LIVE
        )
        self.kinds: dict[str, Counter[str]] = defaultdict(Counter)
        for subscriber in listening:
            self.kinds[subscriber.service][subscriber.sink.kind] += 1
        self.delivered: dict[str, dict[str, int]] = defaultdict(dict)
        for (service, way), tally in list(gateway.metrics.deliveries.items()):
            self.delivered[service][way] = tally.count
        self.lags: dict[str, list[int]] = defaultdict(list)
        measured = gateway.durable.lags
        self.failing, self.disabled = measured.failing, measured.disabled
        for (service, _), lag in measured.stored.items():
            self.lags[service].append(lag)


def _answer(
    gateway: Gateway,
    seen: _Seen,
    counted: _Counted,
    known: Mapping[str, Service],
    remotes: Mapping[str, Remote],
) -> bytes:
    streams, services, transparent, sees_sources = seen
    raw = gateway.definitions.streams  # streams that were removed meanwhile are left out
    return orjson.dumps(
        {
            "at": counted.at,
            "streams": [_stream(gateway, name, raw[name], sees_sources) for name in streams if name in raw],
            "services": [
                _service(gateway, name, known[name], counted, remotes.get(name), transparent=name in transparent)
                for name in services
                if name in known
            ],
        }
    )


def _stream(gateway: Gateway, name: str, stream: Stream, sees_source: bool) -> dict[str, Any]:
    document = to_dict(stream)
    source = document.get("source") or "http"
    kind = source if isinstance(source, str) else next(iter(source))
    return {
        "name": name,
        "source": kind,
        "description": document.get("description", ""),
        "status": _source_status(gateway, name, sees_source),
    }


def _source_status(gateway: Gateway, stream: str, sees_source: bool) -> dict[str, Any] | None:
    """Return how the source of a stream does; None if it has none, or none has run. Its error may name hosts."""
    status = gateway.statuses.sources.get(stream)
    if status is None:
        return None
    error = status.get("error")
    return {
        "state": gateway.source_state(stream),
        "error": error if error is None or sees_source else MASKED_SOURCE_ERROR,
        "events_per_s": status.get("written_per_s"),
        "events": status.get("written"),
        "refused": status.get("quarantined"),
        "restarts": status.get("restarts"),
    }


def _service(
    gateway: Gateway, name: str, service: Service, counted: _Counted, remote: Remote | None, *, transparent: bool
) -> dict[str, Any]:
    lags = counted.lags[name]
    return {
        "name": name,
        "version": gateway.versions.get(name),
        "description": service.description,
        "inputs": list(service.inputs) if transparent else [],
        "origin": None if remote is None else remote.origin,
        "lost": name in counted.lost,
        "status": shown_status(gateway.statuses.newest.get(name), transparent=transparent),
        "subscribers": counted.kinds[name],
        "behind": counted.behind[name],
        "lag": gateway.durable.lags.connected.get(name, 0),
        "durable": {"count": len(lags), "lag": max(lags, default=0)},
        "failing": counted.failing.get(name, 0),
        "disabled": counted.disabled.get(name, 0),
        "broken": counted.broken.get(name, []),
        "delivered": counted.delivered[name],
        "dispatch": counted.dispatched.get(name, {}),
    }
