"""Links to other brokers: made, listed and removed; and the socket over which they come."""

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
from tidegate.federation.link import PATH, SUBPROTOCOL, Federation, LinkClosed
from tidegate.federation.link.neighbour import REFUSALS, Neighbour
from tidegate.filters import Filter
from tidegate.gateway.audit import address_of
from tidegate.gateway.bodies import json_of
from tidegate.gateway.callers import caller_of
from tidegate.gateway.certificates import peer_of
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.problems import Problem
from tidegate.gateway.protocol import establish
from tidegate.gateway.routes.link_keys import described_keys

BAD_REQUEST = 4400
_LONGEST_REASON = 123
"""Bytes, as RFC 6455 has it."""
_FIELDS = ("name", "url", "secret", "services", "transit", "public")
_CHANGES = ("transit", "public")
MOST_ROUTES = 1000
"""Of one answer: a table may have tens of thousands."""


def _some(tables: Mapping[str, Mapping[int, Filter]], most: int) -> list[dict[str, str]]:
    """The first entries of some tables, by service."""
    filters = ((service, each) for service, entries in tables.items() for each in entries.values())
    return [{"service": service, "filter": str(each)} for service, each in islice(filters, most)]


class Accepted:
    """A WebSocket that another broker has opened."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def send(self, data: bytes) -> None:
        """Send a frame, as soon as there is room."""
        try:
            await self._websocket.send_bytes(data)
        except (WebSocketDisconnect, RuntimeError) as exc:
            raise LinkClosed("the link broke") from exc

    async def receive(self) -> bytes:
        """The next frame."""
        try:
            return await self._websocket.receive_bytes()
        except (WebSocketDisconnect, RuntimeError, KeyError) as exc:
            raise LinkClosed(str(getattr(exc, "reason", "")) or "the link broke") from exc

    async def close(self, reason: str) -> None:
        """Close, and say why."""
        with suppress(WebSocketDisconnect, RuntimeError):
            await self._websocket.close(1000, reason.encode()[:_LONGEST_REASON].decode(errors="ignore"))


def router(gateway: Gateway) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/v1", tags=["links"])

    def federation() -> Federation:
        if gateway.linked is None:
            detail = "this gateway has no name among brokers: start it with --broker NAME"
            raise Problem(409, "conflict", "There are no links here", detail)
        return gateway.linked.federation

    def neighbour(name: str) -> Neighbour:
        known = federation().neighbours
        if name not in known:
            raise NotRegistered(f"there is no link to {name!r}{did_you_mean(name, known)}")
        return known[name]

    def entries(found: Neighbour) -> dict[str, int]:
        """Of each service, filters that we were asked for and look for."""
        begun = {name for name, each in found.forwarders.items() if each.has_begun}
        tables = federation().broker.link(found.name).tables()
        return {each.service: len(each.entries) for each in tables if found.session is None or each.service in begun}

    def filtering(found: Neighbour) -> dict[str, dict[str, Any]]:
        """Of each service that it has asked for, whether all is forwarded, and what that or filtering has come to."""
        policies = federation().broker.link(found.name).filter_policies()
        return {name: {"coarse": each.is_coarse, **asdict(each.figures)} for name, each in sorted(policies.items())}

    def described(found: Neighbour) -> dict[str, Any]:
        broker = federation().broker
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
            "entries": entries(found) if is_known else {},
            "paths": [list(path) for path in broker.paths(found.name)],
            "figures": asdict(found.figures()),
            "filtering": filtering(found) if is_known else {},
        }

    @routes.get("/links", summary="All links to other brokers, and how they do")
    async def links() -> dict[str, Any]:
        known = federation()
        pinned = [described_keys(name, keys) for name, keys in sorted(known.trust.pinned.items())]
        found = [described(each) for _, each in sorted(known.neighbours.items())]
        return {"broker": known.name, "links": found, "pinned": pinned}

    @routes.post("/links", status_code=201, summary="Link this broker to another")
    async def add(request: Request) -> dict[str, Any]:
        said = _read(await json_of(request, gateway.executors, caller_of(request)))
        known = federation()
        if said["name"] not in known.neighbours:
            known.broker.check(said["name"])
        believed = {"transit": said["transit"] or (), "public": said["public"] or ()}
        call = partial(
            gateway.registry.add_link, said["name"], said["url"], said["secret"], said["services"], **believed
        )
        link = await asyncio.get_running_loop().run_in_executor(None, call)
        await known.reload_links()
        return {**described(neighbour(link.name)), "secret": link.secret}

    @routes.get("/links/{broker}", summary="One link")
    async def link(broker: str) -> dict[str, Any]:
        return described(neighbour(broker))

    @routes.patch("/links/{broker}", summary="Change what is believed of a neighbour")
    async def change(broker: str, request: Request) -> dict[str, Any]:
        said = _entries(await json_of(request), _CHANGES)
        lists = {name: _names(said.get(name), name) for name in _CHANGES}
        known = federation()
        call = partial(gateway.registry.change_link, broker, **lists)
        await asyncio.get_running_loop().run_in_executor(None, call)
        await known.reload_links()
        return described(neighbour(broker))

    @routes.get(
        "/links/{broker}/routes", summary="The routing entries of one link: filters that are asked for each way"
    )
    async def entries_of(
        broker: str,
        most: Annotated[int, Query(alias="max", ge=1, le=MOST_ROUTES, description="So many of each way.")] = 100,
    ) -> dict[str, Any]:
        found, known = neighbour(broker), federation().broker
        if found.name not in known.links:
            return {"name": found.name, "asked": [], "entries": [], "total": {"asked": 0, "entries": 0}}
        tables = known.link(found.name)
        asked = {each: tables.requested(each) for each in sorted(found.offers)}
        wanted = {each: tables.routes(each) for each in sorted(tables.wanted_services())}
        total = {"asked": sum(map(len, asked.values())), "entries": sum(map(len, wanted.values()))}
        return {"name": found.name, "asked": _some(asked, most), "entries": _some(wanted, most), "total": total}

    @routes.delete("/links/{broker}", status_code=204, summary="Remove a link")
    async def remove(broker: str) -> None:
        known = federation()
        await asyncio.get_running_loop().run_in_executor(None, gateway.registry.remove_link, broker)
        await known.reload_links()

    @routes.websocket(PATH.removeprefix("/v1"))
    async def socket(websocket: WebSocket) -> None:
        is_ours = SUBPROTOCOL in websocket.scope["subprotocols"]
        await websocket.accept(SUBPROTOCOL if is_ours else None)
        if not is_ours:
            await websocket.close(BAD_REQUEST, f"expected the subprotocol {SUBPROTOCOL}")
        elif gateway.linked is None:
            await websocket.close(BAD_REQUEST, "this gateway has no links")
        else:
            peer = peer_of(websocket.scope)
            # By then it has proved who it is, or the federation has closed it.
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

    return routes


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
