"""`GET /v1/services/{name}/events`: an ad-hoc subscription, which ends with its connection."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from tidegate.delivery.conflation import Conflation, conflated
from tidegate.delivery.encoding import Encoding
from tidegate.delivery.latest import Latest
from tidegate.delivery.start import Start
from tidegate.delivery.subscriber import Sink, Subscriber
from tidegate.filters import Filter
from tidegate.gateway.auth.view import View
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.history.reader import HistorySpan
from tidegate.gateway.history.response import HistoryResponse
from tidegate.gateway.history.writers import history_media_type
from tidegate.gateway.http import parameters
from tidegate.gateway.http.compiling import filter_of
from tidegate.gateway.http.names import NamedRoute
from tidegate.gateway.http.problems import HttpProblem, bad_parameter
from tidegate.gateway.routes.dependencies import Serving
from tidegate.gateway.transports.poll import page
from tidegate.gateway.transports.sse import EventStream
from tidegate.logs import Cursor
from tidegate.model import ServiceName
from tidegate.subscriptions.rules import MAX_INTERVAL_S, MIN_INTERVAL_S

MAX_WAIT_S = 60.0
MAX_PAGE_EVENTS = 10_000

_numbers = itertools.count()


router = APIRouter(prefix="/v1", tags=["events"], route_class=NamedRoute)


@router.get(
    "/services/{name}/events",
    summary="Events of a service: SSE with Accept: text/event-stream, history as Arrow or Parquet, else a page",
)
async def _events(
    gateway: Serving,
    request: Request,
    name: str,
    filter_: Annotated[str | None, Query(alias="filter", description="Only events that match.")] = None,
    param: Annotated[list[str] | None, Query(description="Values of the filter's %0, %1, ...")] = None,
    cursor: Annotated[str | None, Query(description="Start after this cursor.")] = None,
    last_event_id: Annotated[str | None, Query(alias="Last-Event-ID")] = None,
    begin: Annotated[
        str | None, Query(alias="from", description="now, beginning, a time, or 10m for ten minutes ago.")
    ] = None,
    to: Annotated[str | None, Query(description="History: events before this time; 10m is ten minutes ago.")] = None,
    select: Annotated[str | None, Query(description="Attributes, separated by commas.")] = None,
    format_: Annotated[
        str | None, Query(alias="format", description="cloudevents or plain; arrow or parquet for history.")
    ] = None,
    wait: Annotated[str | None, Query(description="A page: how long to wait for the first event.")] = None,
    limit: Annotated[
        int, Query(alias="max", ge=1, le=MAX_PAGE_EVENTS, description="A page: the largest number of events.")
    ] = 1_000,
    idle: Annotated[str | None, Query(description="SSE: send an idle notice after this time without an event.")] = None,
    every: Annotated[str | None, Query(description="At most the latest event per key in this interval.")] = None,
    latest: Annotated[
        str | None, Query(description="Of past events, only the newest per value of this attribute; true: of the key.")
    ] = None,
    key: Annotated[
        str | None, Query(description="The key attribute of `every`; by default that of the service.")
    ] = None,
) -> Any:
    view = gateway.view(request)
    schema = view.schema(name)
    media_type = history_media_type(request.headers.get("accept", ""), format_)
    if media_type is not None:
        unused = {"wait": wait, "idle": idle, "every": every, "latest": latest, "key": key}
        span = _HistoryRequest(name, cursor, begin, to, select, unused)
        matching = await filter_of(gateway.executors, view, filter_, param, name)
        return await span.respond(gateway, view, matching, media_type)
    if to:
        raise bad_parameter("to", to, "format=arrow or format=parquet with it: events as JSON have no end")
    is_stream = "text/event-stream" in request.headers.get("accept", "")
    after = (request.headers.get("last-event-id") or last_event_id) if is_stream else None
    latest_by = parameters.latest(latest, schema, view.key(name))
    every_s = parameters.seconds("every", every, MAX_INTERVAL_S, MIN_INTERVAL_S)
    start = parameters.start(after or cursor, None if after else begin, latest_by)
    subscription = _AdHoc(
        gateway,
        view,
        name,
        await filter_of(gateway.executors, view, filter_, param, name),
        view.encoding(parameters.encoding(format_, select, schema), name),
        parameters.conflation(every_s, key, schema, view.key(name)),
        start,
        None if after or start.is_now else latest_by,
    )
    wait_s = parameters.seconds("wait", wait, MAX_WAIT_S) or 0.0
    idle_s = parameters.seconds("idle", idle, MAX_INTERVAL_S, MIN_INTERVAL_S)
    if is_stream:
        return await subscription.stream(idle_s)
    return await subscription.page(limit, wait_s)


@dataclass(frozen=True, slots=True)
class _HistoryRequest:
    """The parameters of a request for history."""

    service: str
    cursor: str | None
    begin: str | None
    to: str | None
    select: str | None
    unused: Mapping[str, str | None]
    """Parameters that a history does not have."""

    async def respond(self, gateway: Gateway, view: View, filter_: Filter | None, media_type: str) -> Response:
        """Return the response, or raise HttpProblem."""
        for name, value in self.unused.items():
            if value:
                raise bad_parameter(name, value, "no such parameter for history as Arrow or Parquet")
        if ServiceName.parse(self.service).is_remote:
            detail = "expected a service of this broker: ask the broker of a remote service for its history"
            raise HttpProblem(400, "bad-parameter", "History is at the origin", detail)
        schema = view.schema(self.service)
        start = parameters.start(self.cursor, self.begin or ("" if self.cursor else "beginning"))
        encoding = view.encoding(parameters.encoding("plain", self.select, schema), self.service)
        span = HistorySpan(self.service, start, parameters.end(self.to, start), filter_, encoding)
        return await HistoryResponse(gateway, view, span, schema, media_type).respond()


@dataclass(frozen=True, slots=True)
class _AdHoc:
    """An ad-hoc subscription of one request."""

    gateway: Gateway
    view: View
    service: str
    filter: Filter | None
    encoding: Encoding
    conflation: Conflation
    start: Start
    latest_by: str | None
    """Send only the newest event per value of this attribute until the subscriber has caught up."""

    async def stream(self, idle_s: float | None) -> EventStream:
        """Return a response that sends events until the client disconnects."""
        gateway, view = self.gateway, self.view
        position = None if self.start.is_now else await gateway.hub.begin(self.service, self.start, self.filter)

        def make(sink: Sink) -> Subscriber:
            return self._subscriber(conflated(view.paced(sink), self.conflation), position)

        tally = gateway.metrics.delivered(self.service, "sse")
        ended = view.meter.taken("subscriptions", view.caller)
        return EventStream(gateway.hub, make, tally, now=self.start.is_now, idle_s=idle_s, ended=ended)

    async def page(self, limit: int, wait_s: float) -> Response:
        """Return the next events, or none if none matches within `wait_s`."""
        gateway, view = self.gateway, self.view
        position = await gateway.hub.begin(self.service, self.start, self.filter)
        limit = view.meter.need_deliveries(view.caller, limit)
        got = await page(gateway.hub, lambda sink: self._subscriber(sink, position), limit, wait_s, self.conflation)
        view.meter.delivered(view.caller, len(got.events))
        gateway.metrics.delivered(self.service, "poll").add(len(got.events))
        return Response(got.to_json(), media_type="application/json")

    def _subscriber(self, sink: Sink, position: Cursor | None) -> Subscriber:
        id_ = f"adhoc-{next(_numbers)}"
        subscriber = Subscriber(id_, self.service, self.filter, sink, self.encoding, position)
        subscriber.sink.caller = self.view.caller
        if self.latest_by:
            subscriber.latest = Latest(self.latest_by)
        return subscriber
