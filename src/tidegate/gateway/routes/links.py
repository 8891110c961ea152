"""Links to other brokers: add, list, change and remove them, and the WebSocket that other brokers open."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, WebSocket, WebSocketDisconnect

from tidegate.errors import FederationError, NotRegistered, did_you_mean
from tidegate.federation.link import PATH, SUBPROTOCOL, LinkClosed
from tidegate.federation.link.neighbour import REFUSALS, Neighbour
from tidegate.filters import Filter
from tidegate.gateway.audit.log import address_of
from tidegate.gateway.auth.callers import caller_of
from tidegate.gateway.auth.certificates import peer_of
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http.bodies import json_of
from tidegate.gateway.routes.dependencies import Serving, federation_of
from tidegate.gateway.routes.link_keys import described_keys
from tidegate.gateway.transports.protocol import establish

BAD_REQUEST = 4400
_MAX_REASON_BYTES = 123
"""Size of the reason in a close frame (RFC 6455)."""
_FIELDS = ("name", "url", "secret", "services", "transit", "public")
_CHANGES = ("transit", "public")
MAX_ROUTES = 1000
"""Routes in one response: a table may have tens of thousands."""


def _some(tables: Mapping[str, Mapping[int, Filter]], limit: int) -> list[dict[str, str]]:
    """Return the first entries of routing tables, which are given by service."""
    filters = ((service, filter_) for service, entries in tables.items() for filter_ in entries.values())
    return [{"service": service, "filter": str(filter_)} for service, filter_ in islice(filters, limit)]


class Accepted:
    """A WebSocket that another broker has opened."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def send(self, data: bytes) -> None:
        """Send a frame, once the buffer has room. Raises `LinkClosed`."""
        try:
            await self._websocket.send_bytes(data)
        except (WebSocketDisconnect, RuntimeError) as exc:
            raise LinkClosed("the link broke") from exc

    async def receive(self) -> bytes:
        """Return the next frame. Raises `LinkClosed`."""
        try:
            return await self._websocket.receive_bytes()
        except (WebSocketDisconnect, RuntimeError, KeyError) as exc:
            raise LinkClosed(str(getattr(exc, "reason", "")) or "the link broke") from exc

    async def close(self, reason: str) -> None:
        """Close with a reason. Does nothing if the WebSocket is closed already."""
        with suppress(WebSocketDisconnect, RuntimeError):
            await self._websocket.close(1000, reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore"))


router = APIRouter(prefix="/v1", tags=["links"])


@router.get("/links", summary="All links to other brokers, and how they do")
async def _links(gateway: Serving) -> dict[str, Any]:
    federation = federation_of(gateway)
    pinned = [described_keys(name, keys) for name, keys in sorted(federation.trust.pinned.items())]
    links = [_described(gateway, neighbour) for _, neighbour in sorted(federation.neighbours.items())]
    return {"broker": federation.name, "links": links, "pinned": pinned}


@router.post("/links", status_code=201, summary="Link this broker to another")
async def _add(gateway: Serving, request: Request) -> dict[str, Any]:
    fields = _read(await json_of(request, gateway.executors, caller_of(request)))
    federation = federation_of(gateway)
    if fields["name"] not in federation.neighbours:
        federation.broker.check(fields["name"])
    believed = {"transit": fields["transit"] or (), "public": fields["public"] or ()}
    call = partial(
        gateway.registry.add_link, fields["name"], fields["url"], fields["secret"], fields["services"], **believed
    )
    link = await asyncio.get_running_loop().run_in_executor(None, call)
    await federation.reload_links()
    return {**_described(gateway, _neighbour(gateway, link.name)), "secret": link.secret}


@router.get("/links/{broker}", summary="One link")
async def _link(gateway: Serving, broker: str) -> dict[str, Any]:
    return _described(gateway, _neighbour(gateway, broker))


@router.patch("/links/{broker}", summary="Change the trust in a neighbour")
async def _change(gateway: Serving, broker: str, request: Request) -> dict[str, Any]:
    changes = _entries(await json_of(request), _CHANGES)
    lists = {name: _names(changes.get(name), name) for name in _CHANGES}
    federation = federation_of(gateway)
    call = partial(gateway.registry.change_link, broker, **lists)
    await asyncio.get_running_loop().run_in_executor(None, call)
    await federation.reload_links()
    return _described(gateway, _neighbour(gateway, broker))


@router.get("/links/{broker}/routes", summary="The routing entries of one link: requested filters, each way")
async def _entries_of(
    gateway: Serving,
    broker: str,
    limit: Annotated[int, Query(alias="max", ge=1, le=MAX_ROUTES, description="At most so many each way.")] = 100,
) -> dict[str, Any]:
    neighbour, routing = _neighbour(gateway, broker), federation_of(gateway).broker
    if neighbour.name not in routing.links:
        return {"name": neighbour.name, "asked": [], "entries": [], "total": {"asked": 0, "entries": 0}}
    tables = routing.link(neighbour.name)
    requested = {service: tables.requested(service) for service in sorted(neighbour.offers)}
    entries = {service: tables.routes(service) for service in sorted(tables.wanted_services())}
    total = {"asked": sum(map(len, requested.values())), "entries": sum(map(len, entries.values()))}
    return {"name": neighbour.name, "asked": _some(requested, limit), "entries": _some(entries, limit), "total": total}


@router.delete("/links/{broker}", status_code=204, summary="Remove a link")
async def _remove(gateway: Serving, broker: str) -> None:
    federation = federation_of(gateway)
    await asyncio.get_running_loop().run_in_executor(None, gateway.registry.remove_link, broker)
    await federation.reload_links()


@router.websocket(PATH.removeprefix("/v1"))
async def _socket(gateway: Serving, websocket: WebSocket) -> None:
    is_ours = SUBPROTOCOL in websocket.scope["subprotocols"]
    await websocket.accept(SUBPROTOCOL if is_ours else None)
    if not is_ours:
        await websocket.close(BAD_REQUEST, f"expected the subprotocol {SUBPROTOCOL}")
    elif gateway.linked is None:
        await websocket.close(BAD_REQUEST, "this gateway has no links")
    else:
        peer = peer_of(websocket.scope)
        # By then the neighbour has authenticated, or the federation has closed the WebSocket.
        proven_s = gateway.linked.federation.settings.handshake_timeout_s + 1
        proven = asyncio.get_running_loop().call_later(proven_s, establish, websocket.scope)
        try:
            await gateway.linked.federation.accept(
                Accepted(websocket),
                lambda name: gateway.certificates.link_problem(name, peer),
                lambda: gateway.sign_ins.link_refused(address_of(websocket.scope)),
            )
        finally:
            proven.cancel()


def _neighbour(gateway: Gateway, name: str) -> Neighbour:
    neighbours = federation_of(gateway).neighbours
    if name not in neighbours:
        raise NotRegistered(f"there is no link to {name!r}{did_you_mean(name, neighbours)}")
    return neighbours[name]


def _entry_counts(gateway: Gateway, neighbour: Neighbour) -> dict[str, int]:
    """Return the number of filters per service that a neighbour has asked for and that are being forwarded."""
    begun = {name for name, forwarder in neighbour.forwarders.items() if forwarder.has_begun}
    tables = federation_of(gateway).broker.link(neighbour.name).tables()
    return {
        table.service: len(table.entries) for table in tables if neighbour.session is None or table.service in begun
    }


def _filtering(gateway: Gateway, neighbour: Neighbour) -> dict[str, dict[str, Any]]:
    """Return, per service that a neighbour has asked for, whether all events are forwarded, and the figures of that."""
    policies = federation_of(gateway).broker.link(neighbour.name).filter_policies()
    return {name: {"coarse": policy.is_coarse, **asdict(policy.figures)} for name, policy in sorted(policies.items())}


def _described(gateway: Gateway, neighbour: Neighbour) -> dict[str, Any]:
    broker = federation_of(gateway).broker
    is_known = neighbour.name in broker.links
    return {
        "name": neighbour.name,
        "url": neighbour.link.url,
        "services": None if neighbour.link.services is None else list(neighbour.link.services),
        "created_at": neighbour.link.created_at.isoformat(),
        "state": neighbour.state,
        "problem": neighbour.problem,
        "transit": list(neighbour.link.transit),
        "public": list(neighbour.link.public),
        "offers": sorted(neighbour.offers),
        "refused": dict(sorted(neighbour.refused.items())),
        "refusals": {kind: neighbour.refusals[kind] for kind in REFUSALS},
        "asked": {service: len(broker.link(neighbour.name).requested(service)) for service in neighbour.offers}
        if is_known
        else {},
        "entries": _entry_counts(gateway, neighbour) if is_known else {},
        "paths": [list(path) for path in broker.paths(neighbour.name)],
        "figures": asdict(neighbour.figures()),
        "filtering": _filtering(gateway, neighbour) if is_known else {},
    }


def _read(body: Any) -> dict[str, Any]:
    """Return the fields of a new link; absent ones are None. Raises a `FederationError` if one is malformed."""
    present = _entries(body, _FIELDS)
    fields = {key: present.get(key) for key in _FIELDS}
    for key in ("name", "url", "secret"):
        if not isinstance(fields[key], str) and (key == "name" or fields[key] is not None):
            raise FederationError(f"{key}: expected a text, not {fields[key]!r:.60}")
    return fields | {name: _names(fields[name], name) for name in ("services", *_CHANGES)}


def _entries(body: Any, allowed: Sequence[str]) -> dict[str, Any]:
    """Return a JSON object. Raises a `FederationError` if it is none, or has a field that is not allowed."""
    if not isinstance(body, dict):
        raise FederationError(f"expected an object with {', '.join(allowed)}, not {body!r:.60}")
    for key in body:
        if key not in allowed:
            hint = did_you_mean(key, allowed) or f"; expected {', '.join(allowed)}"
            raise FederationError(f"unknown field {key!r}{hint}")
    return body


def _names(value: Any, field: str) -> list[str] | None:
    if value is not None and not (isinstance(value, list) and all(isinstance(name, str) for name in value)):
        raise FederationError(f"{field}: expected a list of names, not {value!r:.60}")
    return value
