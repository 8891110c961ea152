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


def _some(tables: Mapping[str, Mapping[int, Filter]], most: int) -> list[dict[str, str]]:
    """Return the first entries of routing tables, which are given by service."""
    filters = ((service, each) for service, entries in tables.items() for each in entries.values())
    return [{"service": service, "filter": str(each)} for service, each in islice(filters, most)]


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
    known = federation_of(gateway)
    pinned = [described_keys(name, keys) for name, keys in sorted(known.trust.pinned.items())]
    found = [_described(gateway, each) for _, each in sorted(known.neighbours.items())]
    return {"broker": known.name, "links": found, "pinned": pinned}


@router.post("/links", status_code=201, summary="Link this broker to another")
async def _add(gateway: Serving, request: Request) -> dict[str, Any]:
    said = _read(await json_of(request, gateway.executors, caller_of(request)))
    known = federation_of(gateway)
    if said["name"] not in known.neighbours:
        known.broker.check(said["name"])
    believed = {"transit": said["transit"] or (), "public": said["public"] or ()}
    call = partial(gateway.registry.add_link, said["name"], said["url"], said["secret"], said["services"], **believed)
    link = await asyncio.get_running_loop().run_in_executor(None, call)
    await known.reload_links()
    return {**_described(gateway, _neighbour(gateway, link.name)), "secret": link.secret}


@router.get("/links/{broker}", summary="One link")
async def _link(gateway: Serving, broker: str) -> dict[str, Any]:
    return _described(gateway, _neighbour(gateway, broker))


@router.patch("/links/{broker}", summary="Change what is believed of a neighbour")
async def _change(gateway: Serving, broker: str, request: Request) -> dict[str, Any]:
    said = _entries(await json_of(request), _CHANGES)
    lists = {name: _names(said.get(name), name) for name in _CHANGES}
    known = federation_of(gateway)
    call = partial(gateway.registry.change_link, broker, **lists)
    await asyncio.get_running_loop().run_in_executor(None, call)
    await known.reload_links()
    return _described(gateway, _neighbour(gateway, broker))


@router.get("/links/{broker}/routes", summary="The routing entries of one link: filters that are asked for each way")
async def _entries_of(
    gateway: Serving,
    broker: str,
    most: Annotated[int, Query(alias="max", ge=1, le=MAX_ROUTES, description="So many of each way.")] = 100,
) -> dict[str, Any]:
    found, known = _neighbour(gateway, broker), federation_of(gateway).broker
    if found.name not in known.links:
        return {"name": found.name, "asked": [], "entries": [], "total": {"asked": 0, "entries": 0}}
    tables = known.link(found.name)
    asked = {each: tables.requested(each) for each in sorted(found.offers)}
    wanted = {each: tables.routes(each) for each in sorted(tables.wanted_services())}
    total = {"asked": sum(map(len, asked.values())), "entries": sum(map(len, wanted.values()))}
    return {"name": found.name, "asked": _some(asked, most), "entries": _some(wanted, most), "total": total}


@router.delete("/links/{broker}", status_code=204, summary="Remove a link")
async def _remove(gateway: Serving, broker: str) -> None:
    known = federation_of(gateway)
    await asyncio.get_running_loop().run_in_executor(None, gateway.registry.remove_link, broker)
    await known.reload_links()


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
    known = federation_of(gateway).neighbours
    if name not in known:
        raise NotRegistered(f"there is no link to {name!r}{did_you_mean(name, known)}")
    return known[name]


def _entry_counts(gateway: Gateway, found: Neighbour) -> dict[str, int]:
    """Return the number of filters per service that a neighbour has asked for and that are being forwarded."""
    begun = {name for name, each in found.forwarders.items() if each.has_begun}
    tables = federation_of(gateway).broker.link(found.name).tables()
    return {each.service: len(each.entries) for each in tables if found.session is None or each.service in begun}


def _filtering(gateway: Gateway, found: Neighbour) -> dict[str, dict[str, Any]]:
    """Return, per service that a neighbour has asked for, whether all events are forwarded, and the figures of that."""
    policies = federation_of(gateway).broker.link(found.name).filter_policies()
    return {name: {"coarse": each.is_coarse, **asdict(each.figures)} for name, each in sorted(policies.items())}


def _described(gateway: Gateway, found: Neighbour) -> dict[str, Any]:
    broker = federation_of(gateway).broker
    is_known = found.name in broker.links
    return {
        "name": found.name,
        "url": found.link.url,
        "services": None if found.link.services is None else list(found.link.services),
        "created_at": found.link.created_at.isoformat(),
        "state": found.state,
        "problem": found.problem,
        "transit": list(found.link.transit),
        "public": list(found.link.public),
        "offers": sorted(found.offers),
        "refused": dict(sorted(found.refused.items())),
        "refusals": {kind: found.refusals[kind] for kind in REFUSALS},
        "asked": {each: len(broker.link(found.name).requested(each)) for each in found.offers} if is_known else {},
        "entries": _entry_counts(gateway, found) if is_known else {},
        "paths": [list(path) for path in broker.paths(found.name)],
        "figures": asdict(found.figures()),
        "filtering": _filtering(gateway, found) if is_known else {},
    }


def _read(said: Any) -> dict[str, Any]:
    given = _entries(said, _FIELDS)
    found = {key: given.get(key) for key in _FIELDS}
    for key in ("name", "url", "secret"):
        if not isinstance(found[key], str) and (key == "name" or found[key] is not None):
            raise FederationError(f"{key}: expected a text, not {found[key]!r:.60}")
    return found | {name: _names(found[name], name) for name in ("services", *_CHANGES)}


def _entries(said: Any, known: Sequence[str]) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise FederationError(f"expected an object with {', '.join(known)}, not {said!r:.60}")
    for key in said:
        if key not in known:
            hint = did_you_mean(key, known) or f"; expected {', '.join(known)}"
            raise FederationError(f"unknown field {key!r}{hint}")
    return said


def _names(value: Any, field: str) -> list[str] | None:
    if value is not None and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        raise FederationError(f"{field}: expected a list of names, not {value!r:.60}")
    return value
