"""Raw streams: what there is, and the events that come in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Request, Response

from tidegate.errors import NotRegistered, did_you_mean
from tidegate.gateway.callers import caller_of
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.problems import Problem
from tidegate.services import to_dict


def router(gateway: Gateway) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["streams"])

    @routes.get("/streams", summary="All raw streams")
    async def streams(request: Request) -> dict[str, Any]:
        scope = caller_of(request).services
        return {
            "streams": [
                {"name": each.name, "definition": to_dict(each)}
                for each in gateway.definitions.streams.values()
                if scope is None or each.name in scope
            ]
        }

    @routes.post(
        "/streams/{stream}/events",
        summary="Put events into a raw stream; they are in the log when this answers",
        responses={
            413: {"description": "Too large"},
            415: {"description": "Another content type"},
            422: {"description": "Events that do not fit the schema"},
            503: {"description": "Not yet, or not now"},
        },
    )
    async def ingest(
        request: Request,
        stream: str,
        mode: Annotated[Literal["all", "partial"], Query(description="all: all or nothing.")] = "all",
    ) -> Response:
        _need_stream(gateway, stream)
        caller = caller_of(request)
        gateway.meter.need_events(caller)
        body = await request.body()
        receipt = await gateway.ingest.ingest(
            stream, request.headers.get("content-type"), dict(request.headers), body, mode
        )
        gateway.meter.took_events(caller, receipt.accepted + receipt.duplicates + receipt.refused)
        said = receipt.to_json()
        if mode == "all" and receipt.refused:
            first = "; ".join(_told(each) for each in said["errors"][:3])
            raise Problem(
                422,
                "bad-event",
                "Events do not fit the schema",
                f"nothing was taken: {receipt.refused} of the events do not fit: {first}",
                said.pop("errors"),
                **said,
            )
        return Response(orjson.dumps(said), media_type="application/json")

    return routes


def _need_stream(gateway: Gateway, stream: str) -> None:
    if stream not in gateway.definitions.streams:
        raise NotRegistered(f"no stream {stream!r}{did_you_mean(stream, gateway.definitions.streams)}")
    waiting = sorted(
        each.name
        for each in gateway.definitions.services.values()
        if stream in each.inputs and not gateway.has_run(each)
    )
    if waiting:
        raise Problem(
            503,
            "starting",
            "Services are starting",
            f"{', '.join(waiting)} has not begun to read {stream!r} yet, and would miss what comes now; try again",
            headers={"retry-after": "1"},
        )


def _told(error: dict[str, Any]) -> str:
    place = f"line {error['line']}" if error.get("line") is not None else f"event {error['index']}"
    return f"{place}: {error['path']}: {error['message']}" if error.get("path") else f"{place}: {error['message']}"
