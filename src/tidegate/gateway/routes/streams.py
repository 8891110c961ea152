"""Raw streams: list, describe, define and remove them, and ingest events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BeforeValidator

from tidegate.gateway.auth.callers import Caller, caller_of
from tidegate.gateway.describe.definition import shown_stream
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http.bodies import read_document
from tidegate.gateway.http.names import NamedRoute
from tidegate.gateway.http.problems import HttpProblem
from tidegate.gateway.routes.dependencies import Serving
from tidegate.gateway.routes.untrusted import apply_untrusted, remove_untrusted
from tidegate.ingress.http import Mode
from tidegate.services import from_dict


def _read_mode(value: Any) -> Any:
    """Accept other usual names of the mode `all`."""
    is_alias = isinstance(value, str) and value.lower().replace("_", "-") in ("atomic", "all-or-nothing")
    return "all" if is_alias else value


router = APIRouter(prefix="/v1", tags=["streams"], route_class=NamedRoute)


@router.get("/streams", summary="All raw streams")
async def _streams(gateway: Serving, request: Request) -> dict[str, Any]:
    view = gateway.view(request)
    streams = [name for name in gateway.definitions.streams if view.knows_stream(name)]
    return {"streams": [_described(gateway, request, name) for name in streams]}


@router.get("/streams/{stream}", summary="One raw stream")
async def _one(gateway: Serving, request: Request, stream: str) -> dict[str, Any]:
    return _described(gateway, request, stream)


@router.put("/streams/{stream}", summary="Add or change a raw stream; the body is its definition, JSON or YAML")
async def _put(
    gateway: Serving,
    request: Request,
    stream: str,
    force: Annotated[bool, Query(description="Also where subscribers would be broken.")] = False,
) -> dict[str, Any]:
    body, caller = await request.body(), caller_of(request)

    def change() -> None:
        definitions = from_dict({"streams": {stream: read_document(body)}}, remote=True)
        apply_untrusted(gateway, caller, definitions, force=force)

    await gateway.executors.heavy(caller, change)
    await gateway.refresh()
    return _described(gateway, request, stream)


@router.delete("/streams/{stream}", status_code=204, summary="Remove a raw stream that nothing reads")
async def _delete(gateway: Serving, request: Request, stream: str) -> None:
    gateway.stream(stream)
    remove = partial(remove_untrusted, gateway, caller_of(request), stream)
    await asyncio.get_running_loop().run_in_executor(None, remove)
    await gateway.refresh()


@router.post(
    "/streams/{stream}/events",
    summary="Put events into a raw stream; they are in the log when this answers",
)
async def _ingest(
    gateway: Serving,
    request: Request,
    stream: str,
    mode: Annotated[Mode, BeforeValidator(_read_mode), Query(description="all: all or nothing.")] = "all",
) -> Response:
    return await ingest_events(gateway, caller_of(request), stream, dict(request.headers), request.body, mode)


def _described(gateway: Gateway, request: Request, name: str) -> dict[str, Any]:
    return {"name": name, "definition": shown_stream(caller_of(request), gateway.stream(name))}


async def ingest_events(
    gateway: Gateway,
    caller: Caller,
    stream: str,
    headers: Mapping[str, str],
    read: Callable[[], Awaitable[bytes]],
    mode: Mode = "all",
) -> Response:
    """Append the events of a request to a raw stream. They are in the log when this returns.

    `read` returns the body; it is called only after the first checks. Raises `NotRegistered` for an unknown stream,
    and an `HttpProblem` (429) beyond a quota, or (422) if the mode is `all` and an event does not fit.
    """
    gateway.stream(stream)  # raises if there is none
    gateway.meter.need_events(caller)
    body = await read()
    take = partial(gateway.ingest.ingest, stream, headers.get("content-type"), headers, body, mode)
    if gateway.tracing is None:
        receipt = await take()
    else:
        with gateway.tracing.ingest(stream, headers) as span:
            receipt = await take()
            counts = {"accepted": receipt.accepted, "duplicates": receipt.duplicates, "refused": receipt.refused}
            span.set_attributes({f"tidegate.{name}": count for name, count in counts.items()})
            gateway.tracing.took(span, headers, body)
    gateway.meter.took_events(caller, receipt.accepted + receipt.duplicates + receipt.refused)
    document = receipt.to_json()
    if mode == "all" and receipt.refused:
        first = "; ".join(_error_text(error) for error in document["errors"][:3])
        raise HttpProblem(
            422,
            "bad-event",
            "Events do not fit the schema",
            f"nothing was taken: {receipt.refused} of the events do not fit: {first}",
            document.pop("errors"),
            **document,
        )
    return Response(orjson.dumps(document), media_type="application/json")


def _error_text(error: dict[str, Any]) -> str:
    place = f"line {error['line']}" if error.get("line") is not None else f"event {error['index']}"
    return f"{place}: {error['pointer']}: {error['detail']}" if error.get("pointer") else f"{place}: {error['detail']}"
