"""Explains a filter, and tests it on past events, before a caller subscribes with it."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from tidegate.delivery.encoding import Encoding
from tidegate.filters import Filter
from tidegate.filters.render import path_text
from tidegate.gateway.backtest import backtest, named
from tidegate.gateway.http import parameters
from tidegate.gateway.http.compiling import filter_of
from tidegate.gateway.http.problems import bad_parameter
from tidegate.gateway.routes.dependencies import Serving
from tidegate.gateway.routes.subscriptions import event_of
from tidegate.semantics.looking import described

MAX_EVENTS = 100_000
"""Events of one backtest, which takes about a second."""
MAX_SAMPLE = 100

_Text = Annotated[str | None, Query(alias="filter", description="The filter; without one, all events.")]
_Params = Annotated[list[str] | None, Query(description="Values of the filter's %0, %1, ...")]


router = APIRouter(prefix="/v1", tags=["filters"])


@router.get("/services/{name}/explain", summary="What a filter over a service means, and why an event matches")
async def _explain(
    gateway: Serving,
    request: Request,
    name: str,
    filter_: _Text = None,
    param: _Params = None,
    event: Annotated[str | None, Query(description="An event as JSON, or the id of one in the stream.")] = None,
) -> Response:
    view = gateway.view(request)
    schema = view.schema(name)

    def work() -> dict[str, Any]:
        compiled = view.filter_(filter_, param, name) or Filter("", schema)
        sample = None if event is None else event_of(event, name, gateway.log, view)
        attributes = [{"name": path_text(path), "type": str(path.type)} for path in named(compiled, schema)]
        return {"service": name, **described(compiled, sample), "attributes": attributes}

    answer = await gateway.executors.heavy(view.caller, work)
    return Response(orjson.dumps(answer, default=str), media_type="application/json")


@router.get("/services/{name}/backtest", summary="Past events that a filter matches, compared with all past events")
async def _backtest(
    gateway: Serving,
    request: Request,
    name: str,
    filter_: _Text = None,
    param: _Params = None,
    begin: Annotated[str, Query(alias="from", description="beginning, a moment, or 10m for ten minutes ago.")] = ("5m"),
    limit: Annotated[int, Query(alias="max", ge=1, le=MAX_EVENTS, description="Events, about: the newest.")] = (20_000),
    sample: Annotated[int, Query(ge=0, le=MAX_SAMPLE, description="Matches that are shown: the newest.")] = 5,
) -> Response:
    view = gateway.view(request)
    schema = view.schema(name)
    compiled = await filter_of(gateway.executors, view, filter_, param, name)
    start = parameters.start(None, begin)
    if start.is_now:
        raise bad_parameter("from", begin, "beginning, a moment such as 2026-01-01T00:00:00Z, or 10m")
    encoding = view.encoding(Encoding("plain"), name)
    work = partial(
        backtest, gateway.log, name, schema, compiled, start.since_micros, limit, encoding=encoding, sample=sample
    )
    started = time.perf_counter()
    result = await gateway.executors.heavy(view.caller, work)
    took_ms = round((time.perf_counter() - started) * 1e3, 1)
    text = "" if compiled is None else str(compiled)
    answer = {"service": name, "filter": text, **asdict(result), "took_ms": took_ms}
    answer["complete"] = result.complete and name not in gateway.remotes  # a mirror has only the requested events
    return Response(orjson.dumps(answer), media_type="application/json")
