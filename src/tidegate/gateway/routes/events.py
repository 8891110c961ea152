"""`GET /v1/services/{name}/events`: an ad-hoc subscription, as long as the connection lives."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from tidegate.delivery.conflation import conflated
from tidegate.delivery.latest import Latest
from tidegate.delivery.subscriber import Sink, Subscriber
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.http import parameters
from tidegate.gateway.http.compiling import filter_of
from tidegate.gateway.http.names import NamedRoute
from tidegate.gateway.transports.poll import page
from tidegate.gateway.transports.sse import EventStream
from tidegate.subscriptions.rules import MAX_INTERVAL_S, MIN_INTERVAL_S

MOST_WAIT_S = 60.0
MOST_EVENTS = 10_000

_numbers = itertools.count()


def router(gateway: Gateway) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/v1", tags=["events"], route_class=NamedRoute)

    @routes.get(
        "/services/{name}/events",
        summary="Events of a service: SSE with Accept: text/event-stream, else a page",
    )
    async def events(
        request: Request,
        name: str,
        filter_: Annotated[str | None, Query(alias="filter", description="Just events that match.")] = None,
        param: Annotated[list[str] | None, Query(description="Values of the filter's %0, %1, ...")] = None,
        cursor: Annotated[str | None, Query(description="Go on behind it.")] = None,
        last_event_id: Annotated[str | None, Query(alias="Last-Event-ID")] = None,
        begin: Annotated[
            str | None, Query(alias="from", description="now, beginning, a moment, or 10m for ten minutes ago.")
        ] = None,
        select: Annotated[str | None, Query(description="Attributes, separated by commas.")] = None,
        format_: Annotated[str | None, Query(alias="format", description="cloudevents or plain.")] = None,
        wait: Annotated[str | None, Query(description="A page: how long to wait for a first event.")] = None,
        most: Annotated[int, Query(alias="max", ge=1, le=MOST_EVENTS, description="A page: events at most.")] = 1_000,
        idle: Annotated[str | None, Query(description="SSE: tell when nothing has come for so long.")] = None,
        every: Annotated[str | None, Query(description="At most the latest event of each key in so long.")] = None,
        latest: Annotated[
            str | None,
            Query(
                description="Of what is there already, just the newest event of each value of this; "
                "true: of the service's key."
            ),
        ] = None,
        key: Annotated[
            str | None,
            Query(description="The attribute that every tells events apart by, if it is not the service's key."),
        ] = None,
    ) -> Any:
        view = gateway.view(request)
        schema = view.schema(name)
        wanted = await filter_of(gateway.executors, view, filter_, param, name)
        encoding = view.encoding(parameters.encoding(format_, select, schema), name)
        wait_s = parameters.seconds("wait", wait, MOST_WAIT_S) or 0.0
        idle_s = parameters.seconds("idle", idle, MAX_INTERVAL_S, MIN_INTERVAL_S)
        is_stream = "text/event-stream" in request.headers.get("accept", "")
        every_s = parameters.seconds("every", every, MAX_INTERVAL_S, MIN_INTERVAL_S)
        conflation = parameters.conflation(every_s, key, schema, view.key(name))
        behind = (request.headers.get("last-event-id") or last_event_id) if is_stream else None
        newest = parameters.latest(latest, schema, view.key(name))
        start = parameters.start(behind or cursor, None if behind else begin, newest)
        now = is_stream and start.is_now
        position = None if now else await gateway.hub.begin(name, start, wanted)

        def make(sink: Sink) -> Subscriber:
            first = conflated(view.paced(sink), conflation) if is_stream else sink
            made = Subscriber(f"adhoc-{next(_numbers)}", name, wanted, first, encoding, position)
            made.sink.caller = view.caller
            if newest and not behind and not start.is_now:
                made.latest = Latest(newest)
            return made

        if is_stream:
            tally = gateway.metrics.delivered(name, "sse")
            ended = view.meter.taken("subscriptions", view.caller)
            return EventStream(gateway.hub, make, tally, now=now, idle_s=idle_s, ended=ended)
        most = view.meter.need_deliveries(view.caller, most)
        found = await page(gateway.hub, make, most, wait_s, conflation)
        view.meter.delivered(view.caller, len(found.events))
        gateway.metrics.delivered(name, "poll").add(len(found.events))
        return Response(found.to_json(), media_type="application/json")

    return routes
